// The token of this tab. It comes by the fragment of the address, is kept for the tab alone, and is handed to a new tab of the same
// origin that asks for it, so that a deep link opens signed in.

const KEY = "lifeformd.token";
const ASKED_MS = 150;
const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("lifeformd.session");
const listeners = new Set<() => void>();

/** The reason why there is no token: the daemon refused it, or the person signed out. */
export type Absence = "refused" | "left" | null;

let token: string | null = null;
let absence: Absence = null;
let isAsking = false;

function take(next: string | null, why: Absence = null) {
  if (next === token) return;
  token = next;
  absence = why;
  if (next) sessionStorage.setItem(KEY, next);
  else sessionStorage.removeItem(KEY);
  for (const listener of listeners) listener();
}

export function currentToken(): string | null {
  return token;
}

export function whyAbsent(): Absence {
  return absence;
}

export function signIn(next: string) {
  take(next.trim());
}

/** Forgets the token, in the other tabs, too. */
export function signOut() {
  take(null, "left");
  channel?.postMessage("signed out");
}

/** Forgets a token that the daemon refused, unless another has taken its place meanwhile. */
export function refuse(sent: string | null) {
  if (sent && sent === token) take(null, "refused");
}

export function onToken(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Takes the token out of the address, or of the tab, or of another tab. */
export async function findToken(): Promise<void> {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (location.hash.includes("token=")) history.replaceState(null, "", location.pathname + location.search);
  const own = given ?? sessionStorage.getItem(KEY);
  if (own) take(own);
  else if (channel) {
    isAsking = true;
    channel.postMessage("who is signed in?");
    await new Promise((resolve) => setTimeout(resolve, ASKED_MS));
    isAsking = false;
  }
}

channel?.addEventListener("message", ({ data }) => {
  if (data === "who is signed in?") {
    if (token) channel.postMessage({ token });
  } else if (data === "signed out") take(null, "left");
  else if (isAsking && !token && typeof data?.token === "string") take(data.token);
});
