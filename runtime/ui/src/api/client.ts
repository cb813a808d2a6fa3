// The client of the daemon's API, with the types of its OpenAPI document.
import createClient from "openapi-fetch";
import { currentToken, refuse } from "../session/token";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
export type Lifeform = Schemas["Lifeform"];
export type Job = Schemas["JobBody"];
export type ListedJob = Schemas["ListedJob"];
export type Approval = Schemas["WaitingApproval"];
export type Goal = Schemas["Goal"];
export type Schedule = Schemas["Schedule"];
export type Canvas = Schemas["Canvas"];
export type Entry = Schemas["JournalEntry"];
export type Evidence = Schemas["Evidence"];
export type Statement = Schemas["Statement"];
export type Spending = Schemas["Spending"];
export type Health = Schemas["Health"];
export type Me = Schemas["Me"];

/** A refusal of the daemon: its problem document (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly hint?: string,
  ) {
    super(detail);
  }
}

export const api = createClient<paths>({ baseUrl: "" });

api.use({
  onRequest({ request }) {
    const token = currentToken();
    // Who signed out asks for nothing more, also where a timer still runs.
    if (!token) throw new Problem(401, "no_token", "not signed in");
    request.headers.set("authorization", `Bearer ${token}`);
    return request;
  },
  async onResponse({ request, response }) {
    if (response.ok) return response;
    const body = await response
      .clone()
      .json()
      .catch(() => ({}));
    if (response.status === 401) refuse(request.headers.get("authorization")?.slice("Bearer ".length) ?? null);
    throw new Problem(response.status, body.code ?? "error", body.detail ?? response.statusText, body.hint);
  },
});

/** Returns the data of an answer; a refusal was thrown before. */
export async function data<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T;
}

/** Returns the command that repeats a request in a terminal, without the token. */
export function curl(method: string, path: string, body?: unknown): string {
  const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
  const parts = ["curl", "-sH", `"authorization: Bearer $TOKEN"`];
  if (method !== "GET") parts.push("-X", method);
  if (body !== undefined) parts.push("--json", quoted(JSON.stringify(body)));
  parts.push(quoted(location.origin + path));
  return parts.join(" ");
}
