// What happens, folded: for each fascicle and node the last state, how many jobs are at it, and how often it ran.

/** An event of `WS /v1/events`. */
export interface Happened {
  n: number;
  ref: string;
  at: string;
  by: string;
  cause: string[];
  kind: string;
  lifeform?: string;
  job?: string;
  fascicle?: string;
  step?: string;
  what: Record<string, unknown>;
}

export const STATES = [
  "started",
  "paused",
  "done",
  "passed",
  "skipped",
  "failed",
  "given_up",
  "broken",
  "interrupted",
] as const;
export type StepState = (typeof STATES)[number];

export interface NodeActivity {
  state: StepState;
  /** The jobs that are at the node now. */
  jobs: Set<string>;
  /** The number of times that it was started. */
  count: number;
  at: string;
  error?: string;
  /** The reference of the last event. */
  ref: string;
}

export interface FascicleActivity {
  nodes: Map<string, NodeActivity>;
  /** The jobs that are not over. */
  jobs: Set<string>;
  count: number;
  at: string;
}

export type Activity = Map<string, FascicleActivity>;

/** Returns the node of the outermost fascicle in which a step is: "look[2]/read!" is in "look". */
export function nodeOf(step: string): string {
  return step
    .split("/")[0]!
    .replace(/!$/, "")
    .replace(/\[\d+\]$/, "");
}

const isState = (text: string): text is StepState => (STATES as readonly string[]).includes(text);

/** Adds an event to what is known. */
export function add(activity: Activity, event: Happened): void {
  const { fascicle: id, job, kind, step } = event;
  if (!id || !job || !kind.startsWith("job.")) return;
  let fascicle = activity.get(id);
  if (!fascicle) {
    fascicle = { nodes: new Map(), jobs: new Set(), count: 0, at: event.at };
    activity.set(id, fascicle);
  }
  fascicle.at = event.at;
  const fact = kind.slice("job.".length);
  if (fact === "accepted" || fact === "retried") {
    fascicle.jobs.add(job);
    fascicle.count += 1;
  } else if (fact === "ended") {
    fascicle.jobs.delete(job);
    for (const node of fascicle.nodes.values()) node.jobs.delete(job);
  } else if (step && isState(fact)) {
    const name = nodeOf(step);
    // The parts of a node end before it does.
    const isWhole = step === name;
    const known = fascicle.nodes.get(name);
    const node: NodeActivity = known ?? { state: fact, jobs: new Set(), count: 0, at: event.at, ref: event.ref };
    fascicle.nodes.set(name, node);
    if (fact === "started") {
      node.jobs.add(job);
      if (isWhole) node.count += 1;
    }
    if (fact !== "started" && fact !== "paused" && isWhole) node.jobs.delete(job);
    if (isWhole || fact === "failed" || fact === "paused") {
      node.state = fact;
      node.ref = event.ref;
    }
    node.at = event.at;
  }
}

/** Returns what is known after the first `count` events. */
export function fold(events: readonly Happened[], count = events.length): Activity {
  const activity: Activity = new Map();
  for (let at = 0; at < count; at += 1) add(activity, events[at]!);
  return activity;
}
