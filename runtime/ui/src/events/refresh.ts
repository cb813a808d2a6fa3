// The queries of the pages are asked again when something happens that changes their answers.
import type { QueryClient } from "@tanstack/react-query";
import { onEvents } from "./feed";
import type { Happened } from "./fold";

/** The shortest time between two rounds. */
const EVERY_MS = 1_000;

const CHANGED: Record<string, string[]> = {
  job: ["jobs", "job", "approvals"],
  trace: ["lifeforms", "lifeform", "goals", "schedules", "canvases", "live"],
  ledger: ["statement", "spending", "lifeform"],
};

/** Returns the names of the queries whose answers events change; all of them if events were missed. */
export function changedBy(events: readonly Happened[]): string[] {
  if (events.length === 0) return [...new Set(Object.values(CHANGED).flat())];
  const kinds = new Set(events.map((event) => event.kind.split(".")[0]!));
  return [...new Set([...kinds].flatMap((kind) => CHANGED[kind] ?? []))];
}

export function refreshOnEvents(queries: QueryClient) {
  const waiting = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | null = null;
  onEvents((events) => {
    for (const name of changedBy(events)) waiting.add(name);
    if (waiting.size === 0 || timer) return;
    timer = setTimeout(() => {
      timer = null;
      const names = [...waiting];
      waiting.clear();
      // What nobody looks at is only marked.
      for (const name of names) queries.invalidateQueries({ queryKey: [name] });
    }, EVERY_MS);
  });
}
