// The queries of the pages are asked again when something happens that changes their answers.
import type { QueryClient } from "@tanstack/react-query";
import { onEvents } from "./feed";
import type { Happened } from "./fold";

/** The shortest time between two rounds. */
const EVERY_MS = 1_000;

const OF_JOBS = ["jobs", "approvals"];
const OF_LIFEFORMS = ["lifeforms", "lifeform", "goals", "schedules", "canvases", "live"];
const OF_ACCOUNTS = ["statement", "spending", "lifeform"];
/** The facts that change a list of jobs. */
const LISTED = ["accepted", "ended", "paused", "answered", "retried"].map((fact) => `job.${fact}`);

/** Returns the keys of the queries whose answers events change; all of them if events were missed. */
export function changedBy(events: readonly Happened[]): string[][] {
  const names = new Set<string>();
  const jobs = new Set<string>();
  const add = (all: string[]) => {
    for (const name of all) names.add(name);
  };
  if (events.length === 0) {
    add(["job", ...OF_JOBS]);
    add(OF_LIFEFORMS);
    add(OF_ACCOUNTS);
  }
  for (const { kind, job } of events) {
    if (job) jobs.add(job);
    if (LISTED.includes(kind)) add(OF_JOBS);
    if (kind.startsWith("trace.")) add(OF_LIFEFORMS);
    if (kind.startsWith("ledger.")) add(OF_ACCOUNTS);
  }
  return [...[...names].map((name) => [name]), ...[...jobs].map((job) => ["job", job])];
}

export function refreshOnEvents(queries: QueryClient) {
  const waiting = new Map<string, string[]>();
  let timer: ReturnType<typeof setTimeout> | null = null;
  const refresh = () => {
    timer = null;
    // A page that nobody sees asks for nothing.
    if (document.hidden) return;
    const keys = [...waiting.values()];
    waiting.clear();
    for (const queryKey of keys) queries.invalidateQueries({ queryKey });
  };
  const soon = () => {
    if (waiting.size > 0 && !timer) timer = setTimeout(refresh, EVERY_MS);
  };
  onEvents((events) => {
    for (const key of changedBy(events)) waiting.set(key.join("/"), key);
    soon();
  });
  document.addEventListener("visibilitychange", soon);
}
