// The graph of a mind as KIP tells it: what the token may not see is not there. Concepts are fetched as they are expanded.
import { kip } from "../api/queries";

export interface Concept {
  id: string;
  type: string;
  name: string;
  attributes: Record<string, unknown>;
  metadata: Record<string, unknown>;
}

export interface Shown {
  id: string;
  type: string;
  label: string;
}

export interface Bond {
  id: string;
  from: string;
  to: string;
  predicate: string;
}

export type Way = "out" | "in";

/** The number of links of one predicate at one end of a concept. */
export interface Count {
  way: Way;
  predicate: string;
  count: number;
}

/** A refusal of the engine. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly hint?: string,
  ) {
    super(message);
  }
}

/** The number of neighbours that one expansion fetches. */
export const EXPANDED = 60;
const PAGE = 5_000;
/** The number of links that are drawn. */
const BONDS_MAX = 400_000;
const LABEL_CHARS = 48;

const NODE = "?o.id, ?o.type, ?o.name, ?o.attributes.name, ?o.attributes.statement, ?o.metadata.status";
/** Predicates whose object is a link: a drawing of concepts has no end for them. */
const OF_LINKS = new Set(["stated", "states"]);

/** Returns whether a concept is shown now: what was forgotten or replaced is not, unless an earlier moment is asked for. */
const holds = (status: unknown, seq: number | undefined) => Boolean(seq) || status == null || status === "active";

async function rows(life: string, command: string, parameters: Record<string, unknown>): Promise<unknown[]> {
  return (await page(life, command, parameters)).rows;
}

async function page(life: string, command: string, parameters: Record<string, unknown>) {
  const answer = await kip(life, command, parameters, { readonly: true });
  if (answer.error) throw new Refused(answer.error.message ?? "", answer.error.hint);
  return { rows: (answer.result ?? []) as unknown[], next: answer.next_cursor ?? undefined };
}

/** The moment of which the graph is asked: a number of the mind's journal, or now. */
const asOf = (seq: number | undefined) => (seq ? `AS OF SEQ ${seq} ` : "");

function shown([id, type, name, called, statement]: unknown[]): Shown {
  const label = [statement, called, name].find((text): text is string => typeof text === "string" && text !== "");
  const text = label ?? String(id);
  return {
    id: String(id),
    type: String(type),
    label: text.length > LABEL_CHARS ? `${text.slice(0, LABEL_CHARS - 1)}…` : text,
  };
}

export function nodeOf(concept: Concept): Shown {
  const { name, statement } = concept.attributes as { name?: string; statement?: string };
  return shown([concept.id, concept.type, concept.name, name, statement]);
}

export async function conceptOf(life: string, id: string, seq?: number): Promise<Concept | undefined> {
  const found = await rows(life, `FIND(?o) WHERE { ?o {id: $id} } ${asOf(seq)}LIMIT 1`, { id });
  return found[0] as Concept | undefined;
}

export async function searched(life: string, words: string): Promise<Concept[]> {
  const found = (await rows(life, "SEARCH CONCEPT $words LIMIT 24", { words })) as Concept[];
  return found.filter(({ metadata }) => holds(metadata.status, undefined)).slice(0, 12);
}

/** The person of the token, or the lifeform itself: where a look at a mind begins. */
export async function beginning(life: string, who: string): Promise<string | undefined> {
  const found = await rows(
    life,
    'FIND(?o.id) WHERE { ?o {type: "Person"} FILTER(?o.name == $who || ?o.name == "$self") } LIMIT 2',
    { who },
  );
  return (found.at(-1) ?? found[0]) as string | undefined;
}

export async function countsOf(life: string, id: string, seq?: number): Promise<Count[]> {
  const [out, into] = await Promise.all([
    rows(life, `FIND(?p, COUNT(?l)) WHERE { ?l ({id: $id}, ?p, ?o) } ${asOf(seq)}`, { id }),
    rows(life, `FIND(?p, COUNT(?l)) WHERE { ?l (?o, ?p, {id: $id}) } ${asOf(seq)}`, { id }),
  ]);
  const of = (way: Way) => (row: unknown) => {
    const [predicate, count] = row as [string, number];
    return { way, predicate, count };
  };
  const all = [...out.map(of("out")), ...into.map(of("in"))];
  return all.filter(({ predicate }) => !OF_LINKS.has(predicate));
}

export async function neighbours(
  life: string,
  id: string,
  { way, predicate }: Pick<Count, "way" | "predicate">,
  seq?: number,
): Promise<{ nodes: Shown[]; bonds: Bond[] }> {
  const link = way === "out" ? "?l ({id: $id}, $predicate, ?o)" : "?l (?o, $predicate, {id: $id})";
  const command = `FIND(?l.id, ${NODE}) WHERE { ${link} } ${asOf(seq)}LIMIT ${EXPANDED}`;
  const found = (await rows(life, command, { id, predicate })) as unknown[][];
  // The other end may be a link, which has no type here.
  const real = found.filter(([, other, type, , , , status]) => other && type && holds(status, seq));
  return {
    nodes: real.map(([, ...node]) => shown(node)),
    bonds: real.map(([link, other]) => ({
      id: String(link),
      from: way === "out" ? id : String(other),
      to: way === "out" ? String(other) : id,
      predicate,
    })),
  };
}

/** Fetches all concepts and links up to a number of concepts, page by page. Returns `false` if there are more. */
export async function whole(
  life: string,
  max: number,
  seq: number | undefined,
  see: (nodes: Shown[], bonds: Bond[]) => void,
  signal: AbortSignal,
): Promise<boolean> {
  const pages = async (
    command: (cursor: string) => string,
    each: (rows: unknown[][]) => boolean,
    parameters: Record<string, unknown> = {},
  ) => {
    let next: string | undefined;
    do {
      const cursor = next ? " CURSOR $cursor" : "";
      const found = await page(life, `${command(cursor)}`, next ? { ...parameters, cursor: next } : parameters);
      if (signal.aborted || !each(found.rows as unknown[][])) return false;
      next = found.next;
    } while (next);
    return true;
  };
  const known = new Set<string>();
  const types = (await rows(life, "DESCRIBE CONCEPT TYPES", {})) as string[];
  let isWhole = true;
  for (const type of types.filter((type) => !type.startsWith("$"))) {
    const all = await pages(
      (cursor) => `FIND(${NODE}) WHERE { ?o {type: $type} } ${asOf(seq)}LIMIT ${PAGE}${cursor}`,
      (found) => {
        const there = found.filter((row) => holds(row[5], seq));
        const room = there.slice(0, Math.max(0, max - known.size)).map(shown);
        for (const node of room) known.add(node.id);
        see(room, []);
        return room.length === there.length;
      },
      { type },
    );
    isWhole &&= all;
    if (signal.aborted) return false;
  }
  let count = 0;
  const links = "?l.id, ?l.subject, ?l.object, ?l.predicate";
  const allBonds = await pages(
    (cursor) => `FIND(${links}) WHERE { ?l (?s, ?p, ?o) } ${asOf(seq)}LIMIT ${PAGE}${cursor}`,
    (found) => {
      const bonds = found
        .map(([id, from, to, predicate]) => ({
          id: String(id),
          from: String(from),
          to: String(to),
          predicate: String(predicate),
        }))
        .filter(({ from, to }) => known.has(from) && known.has(to));
      see([], bonds);
      count += bonds.length;
      return count < BONDS_MAX;
    },
  );
  return isWhole && allBonds;
}
