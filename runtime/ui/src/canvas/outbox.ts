// The messages that are on their way to a canvas, or were refused. They outlive the page that sent them, and go one after the other.
import { useSyncExternalStore } from "react";
import { api, data, Problem } from "../api/client";

const TITLE_CHARS = 60;

export interface Outgoing {
  /** The id of the message, which is also its idempotency key. */
  id: string;
  topic: string;
  content: string;
  replyTo?: string;
  error?: unknown;
}

export interface Place {
  lf: string;
  canvas: string;
}

const boxes = new Map<string, Outgoing[]>();
const queues = new Map<string, Promise<void>>();
const listeners = new Set<() => void>();
const NONE: Outgoing[] = [];

const keyOf = ({ lf, canvas }: Place) => `${lf}/${canvas}`;

function change(place: Place, next: (all: Outgoing[]) => Outgoing[]) {
  boxes.set(keyOf(place), next(boxes.get(keyOf(place)) ?? NONE));
  for (const listener of listeners) listener();
}

async function deliver(place: Place, one: Outgoing, isNewTopic: boolean) {
  const path = { id: place.lf, canvas: place.canvas };
  if (isNewTopic) {
    const title = one.content.slice(0, TITLE_CHARS).split("\n")[0] || one.topic;
    const made = api.POST("/v1/lifeforms/{id}/canvases/{canvas}/topics", {
      params: { path, header: { "Idempotency-Key": `${one.id}-topic` } },
      body: { id: one.topic, title },
    });
    await data(made).catch((error) => {
      // Another message, or another person, opened it meanwhile.
      if (!(error instanceof Problem && error.code === "exists")) throw error;
    });
  }
  await data(
    api.POST("/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages", {
      params: { path: { ...path, topic: one.topic }, header: { "Idempotency-Key": one.id } },
      body: { id: one.id, content: one.content, reply_to: one.replyTo ?? null },
    }),
  );
}

function enqueue(place: Place, one: Outgoing, isNewTopic: boolean) {
  const before = queues.get(keyOf(place)) ?? Promise.resolve();
  const next = before.then(() =>
    deliver(place, one, isNewTopic).catch((error) => {
      change(place, (all) => all.map((known) => (known.id === one.id ? { ...known, error } : known)));
    }),
  );
  queues.set(keyOf(place), next);
}

/** Sends a message after those that were sent before. */
export function send(place: Place, one: Outgoing, isNewTopic: boolean) {
  change(place, (all) => [...all, one]);
  enqueue(place, one, isNewTopic);
}

/** Sends a refused message again, under the same key. */
export function sendAgain(place: Place, one: Outgoing, isNewTopic: boolean) {
  const again = { ...one, error: undefined };
  change(place, (all) => all.map((known) => (known.id === one.id ? again : known)));
  enqueue(place, again, isNewTopic);
}

/** Removes messages that the canvas has, or that are given up. */
export function settle(place: Place, isSettled: (one: Outgoing) => boolean) {
  const all = boxes.get(keyOf(place)) ?? NONE;
  if (all.some(isSettled)) change(place, (all) => all.filter((one) => !isSettled(one)));
}

export function useOutbox(place: Place): Outgoing[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => boxes.get(keyOf(place)) ?? NONE,
  );
}

/** Returns the place in the tab where the draft for a topic is kept. */
export function draftKey(place: Place, topic: string): string {
  return `lifeformd.draft/${keyOf(place)}/${topic}`;
}
