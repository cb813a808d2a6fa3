// The shortest path between two concepts, over the links that are shown.
import type { Bond } from "./mind";

export function pathBetween(bonds: Iterable<Bond>, from: string, to: string): string[] {
  const near = new Map<string, string[]>();
  const add = (one: string, other: string) => {
    const known = near.get(one);
    if (known) known.push(other);
    else near.set(one, [other]);
  };
  for (const bond of bonds) {
    add(bond.from, bond.to);
    add(bond.to, bond.from);
  }
  const before = new Map<string, string | undefined>([[from, undefined]]);
  let edge = [from];
  while (edge.length && !before.has(to)) {
    const next: string[] = [];
    for (const id of edge) {
      for (const other of near.get(id) ?? []) {
        if (before.has(other)) continue;
        before.set(other, id);
        next.push(other);
      }
    }
    edge = next;
  }
  if (!before.has(to)) return [];
  const path: string[] = [];
  for (let at: string | undefined = to; at; at = before.get(at)) path.unshift(at);
  return path;
}
