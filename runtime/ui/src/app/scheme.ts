// The colour scheme that the reader chose; without a choice, that of the system.
import { useSyncExternalStore } from "react";

export type Scheme = "auto" | "light" | "dark";
export const SCHEMES: Scheme[] = ["auto", "light", "dark"];

const KEY = "lifeformd.scheme";
const listeners = new Set<() => void>();
let current: Scheme = SCHEMES.find((one) => one === localStorage.getItem(KEY)) ?? "auto";

function apply() {
  if (current === "auto") delete document.documentElement.dataset.scheme;
  else document.documentElement.dataset.scheme = current;
}
apply();

export function setScheme(scheme: Scheme) {
  current = scheme;
  localStorage.setItem(KEY, scheme);
  apply();
  for (const listener of listeners) listener();
}

const system = matchMedia("(prefers-color-scheme: dark)");

/** Returns whether the page is dark, for what is drawn without style sheets. */
export function useIsDark(): boolean {
  const scheme = useScheme();
  const isDark = useSyncExternalStore(
    (listener) => {
      system.addEventListener("change", listener);
      return () => system.removeEventListener("change", listener);
    },
    () => system.matches,
  );
  return scheme === "auto" ? isDark : scheme === "dark";
}

export function useScheme(): Scheme {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}
