// The state of a canvas, folded from the frames of the canvas protocol. A fold is a plain function, so that it can be tested.

export interface Revision {
  n: number;
  content: string;
  status: string;
  by: string;
  reason: string;
  at: string;
}

export interface Message {
  id: string;
  sender: string;
  content: string;
  status: "streaming" | "final" | "interrupted" | "retracted";
  ord: string;
  rev: number;
  at: string;
  reply_to?: string;
  supplements?: string;
  urgent?: boolean;
  rests_on?: string[];
  reactions?: Record<string, string[]>;
  revisions: Record<string, Revision>;
  interrupted_by?: { reason?: string; by?: string };
  purged_by?: unknown;
}

export interface Topic {
  id: string;
  title: string;
  ord: string;
  archived?: boolean;
  messages: Record<string, Message>;
  read?: Record<string, string>;
}

export interface MapNode {
  id: string;
  title: string;
  body?: string;
  parent?: string;
  ord: string;
}

export interface Comment {
  id: string;
  node: string;
  content: string;
  by: string;
  resolved?: boolean;
}

export interface MapLink {
  id: string;
  from: string;
  to: string;
  label?: string;
}

export interface Proposal {
  id: string;
  by: string;
  reason?: string;
  status: "open" | "accepted" | "rejected";
  ops: { kind: string; id?: string; title?: string; body?: string; label?: string; content?: string }[];
}

export interface State {
  users: Record<string, { id?: string; name?: string }>;
  topics: Record<string, Topic>;
  nodes: Record<string, MapNode>;
  links: Record<string, MapLink>;
  comments: Record<string, Comment>;
  proposals: Record<string, Proposal>;
}

export interface Operation {
  op: "add" | "replace" | "remove";
  path: string;
  value?: unknown;
}

export interface Delta {
  t: "delta";
  rev: number;
  prev: number;
  kind: string;
  patch: Operation[];
}

export type Frame =
  | { t: "hello"; you: string }
  | { t: "reset" }
  | { t: "snapshot"; epoch: string; rev: number; state: Partial<State> }
  | { t: "live"; epoch: string; rev: number }
  | Delta
  | { t: "batch"; deltas: Delta[] }
  | { t: "skip"; to: number }
  | { t: "stream"; topic: string; msg: string; at_len: number; text: string }
  | { t: "acked" | "reject" | "presence" | "gone" | "pong" | "error"; [member: string]: unknown };

export interface Folded {
  epoch: string | null;
  rev: number;
  me: string | null;
  isLive: boolean;
  state: State;
  /** The text of unfinished answers, where it is ahead of the last checkpoint. */
  partial: Record<string, string>;
}

const EMPTY: State = { users: {}, topics: {}, nodes: {}, links: {}, comments: {}, proposals: {} };

export function empty(): Folded {
  return { epoch: null, rev: 0, me: null, isLive: false, state: EMPTY, partial: {} };
}

/** A frame that does not follow on what is known: the client connects again and resumes. */
export class Gap extends Error {}

const FORBIDDEN = new Set(["__proto__", "constructor", "prototype"]);

/** Applies an RFC 6902 patch to a document of maps. What it changes is copied, and the rest is shared. */
export function patched<T extends object>(document: T, operations: Operation[]): T {
  const root = { ...document } as Record<string, unknown>;
  const copied = new Set<object>([root]);
  for (const { op, path, value } of operations) {
    const keys = path
      .split("/")
      .slice(1)
      .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
    const last = keys.pop();
    if (last === undefined || FORBIDDEN.has(last) || keys.some((key) => FORBIDDEN.has(key))) throw new Gap(path);
    let at = root;
    for (const key of keys) {
      let next = Object.hasOwn(at, key) ? at[key] : undefined;
      if (typeof next !== "object" || next === null) throw new Gap(path);
      if (!copied.has(next)) {
        next = Array.isArray(next) ? [...next] : { ...next };
        copied.add(next as object);
        at[key] = next;
      }
      at = next as Record<string, unknown>;
    }
    if (op !== "add" && !Object.hasOwn(at, last)) throw new Gap(path);
    if (op === "remove") delete at[last];
    else at[last] = value;
  }
  return root as T;
}

/** Returns the streamed texts without those of answers that begin again. */
function withoutReopened(partial: Record<string, string>, patch: Operation[]): Record<string, string> {
  const reopened = patch.filter(({ value }) => value === "streaming").map(({ path }) => path.split("/")[4]);
  const old = reopened.filter((id) => id !== undefined && Object.hasOwn(partial, id));
  if (!old.length) return partial;
  return Object.fromEntries(Object.entries(partial).filter(([id]) => !old.includes(id)));
}

const bytes = new TextEncoder();

/** Folds a frame. Throws a gap if frames are missing before it. */
export function fold(known: Folded, frame: Frame): Folded {
  switch (frame.t) {
    case "hello":
      return { ...known, me: frame.you };
    case "reset":
      return { ...known, epoch: null, isLive: false };
    case "snapshot":
      return {
        ...known,
        epoch: frame.epoch,
        rev: frame.rev,
        state: { ...EMPTY, ...frame.state },
        partial: {},
      };
    case "live":
      return { ...known, epoch: known.epoch ?? frame.epoch, isLive: true };
    case "delta": {
      if (frame.prev < known.rev) return known;
      if (frame.prev > known.rev) throw new Gap(`${frame.prev} after ${known.rev}`);
      return {
        ...known,
        rev: frame.rev,
        state: patched(known.state, frame.patch),
        partial: withoutReopened(known.partial, frame.patch),
      };
    }
    case "batch":
      return frame.deltas.reduce<Folded>(fold, known);
    case "skip":
      return { ...known, rev: frame.to };
    case "stream": {
      // A piece follows on what was streamed, on the last checkpoint, or begins anew.
      const content = known.state.topics[frame.topic]?.messages[frame.msg]?.content ?? "";
      const texts = [known.partial[frame.msg] ?? "", content, ""];
      const said = texts.find((text) => bytes.encode(text).length === frame.at_len);
      if (said === undefined) return known;
      return { ...known, partial: { ...known.partial, [frame.msg]: said + frame.text } };
    }
    default:
      return known;
  }
}

export function inOrder<T extends { ord: string; id: string }>(map: Record<string, T> | undefined): T[] {
  const key = (one: T) => one.ord + one.id;
  return Object.values(map ?? {}).sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0));
}

/** Returns the text of a message, with what was streamed since its last checkpoint. What an interrupted answer had said stays. */
export function textOf(message: Message, partial: Record<string, string>): string {
  const streamed = partial[message.id] ?? "";
  const isUnfinished = message.status === "streaming" || message.status === "interrupted";
  return isUnfinished && streamed.startsWith(message.content) ? streamed : message.content;
}
