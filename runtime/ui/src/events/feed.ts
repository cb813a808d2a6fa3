// The events of the daemon in this tab: one socket for all pages, which connects again and resumes, and the last events.
import { useSyncExternalStore } from "react";
import { currentToken, onToken, refuse } from "../session/token";
import type { Happened } from "./fold";

export type Link = "connecting" | "live" | "offline";

/** The maximum number of events that the tab keeps. */
const EVENTS_MAX = 20_000;

type Frame =
  | { t: "hello"; epoch: string; n: number }
  | { t: "events"; from: number; to: number; events: Happened[] }
  | { t: "counts"; from: number; to: number; counts: { kind: string; count: number }[] }
  | { t: "reset"; n: number; skipped: number | null };

export interface Feed {
  /** The id of the sequence of numbers: another one after each start of the daemon. */
  epoch: string | null;
  events: readonly Happened[];
  link: Link;
  /** The number of events that were only counted, or missed. */
  missed: number;
}

const nothing: Feed = { epoch: null, events: [], link: "connecting", missed: 0 };
let feed: Feed = nothing;
let n = 0;
let socket: WebSocket | null = null;
let retries = 0;
let again: ReturnType<typeof setTimeout> | null = null;
const listeners = new Set<() => void>();
const watchers = new Set<(events: readonly Happened[]) => void>();

function set(next: Partial<Feed>) {
  feed = { ...feed, ...next };
  for (const listener of listeners) listener();
}

function take(frame: Frame) {
  if (frame.t === "hello") {
    retries = 0;
    if (frame.epoch === feed.epoch) set({ link: "live" });
    else {
      // What happened before is not awaited, and numbers of another epoch mean nothing here.
      n = frame.n;
      set({ epoch: frame.epoch, events: [], link: "live" });
      for (const watcher of watchers) watcher([]);
    }
  } else if (frame.t === "events") {
    n = frame.to;
    const kept = feed.events.length + frame.events.length - EVENTS_MAX;
    set({ events: [...(kept > 0 ? feed.events.slice(kept) : feed.events), ...frame.events] });
    for (const watcher of watchers) watcher(frame.events);
  } else if (frame.t === "counts") {
    n = frame.to;
    set({ missed: feed.missed + frame.counts.reduce((sum, one) => sum + one.count, 0) });
    for (const watcher of watchers) watcher([]);
  } else {
    n = frame.n;
    set({ missed: feed.missed + (frame.skipped ?? 0) });
    for (const watcher of watchers) watcher([]);
  }
}

function connect() {
  again = null;
  const token = currentToken();
  if (!token) return;
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const own = new WebSocket(`${scheme}://${location.host}/v1/events`, ["ailf.events.v1", `bearer.${token}`]);
  socket = own;
  own.onopen = () =>
    own.send(JSON.stringify({ t: "hello", v: 1, resume: feed.epoch === null ? null : { epoch: feed.epoch, n } }));
  own.onmessage = ({ data }) => {
    if (own === socket) take(JSON.parse(data as string) as Frame);
  };
  own.onclose = ({ code }) => {
    if (own !== socket) return;
    if (code === 4401) {
      refuse(token);
      return;
    }
    set({ link: retries > 0 ? "offline" : "connecting" });
    retries += 1;
    again = setTimeout(connect, Math.min(8_000, 400 * 2 ** Math.min(retries, 5)) * (0.75 + Math.random() / 2));
  };
}

function begin() {
  if (again) clearTimeout(again);
  again = null;
  socket?.close();
  socket = null;
  // What one person was shown is not shown to the next.
  n = 0;
  retries = 0;
  set(nothing);
  connect();
}

let isBegun = false;

/** Opens the socket, and a new one with each token. */
export function beginFeed() {
  if (isBegun) return;
  isBegun = true;
  onToken(begin);
  begin();
}

/** Calls a function with each part of the events. An empty part says that some were missed. */
export function onEvents(watcher: (events: readonly Happened[]) => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export function currentLink(): Link {
  return feed.link;
}

export function useFeed(): Feed {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => feed,
  );
}
