// The memory of a lifeform as a graph: looked up, expanded with counts first, collapsed, pinned, at an earlier moment, and whole.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { Problem } from "../api/client";
import { useMe } from "../api/queries";
import { Drawing } from "../graph/Drawing";
import {
  type Bond,
  beginning,
  type Concept,
  type Count,
  conceptOf,
  countsOf,
  EXPANDED,
  neighbours,
  nodeOf,
  Refused,
  type Shown,
  searched,
  whole,
} from "../graph/mind";
import { pathBetween } from "../graph/path";
import { useFormats, useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import css from "./Graph.module.css";

/** The number of concepts of a whole mind that are drawn. */
const WHOLE_MAX = 100_000;
/** The number of concepts up to which the list names them. */
const LISTED_MAX = 200;
const NONE: ReadonlySet<string> = new Set();

const problemOf = (error: unknown) =>
  error instanceof Refused ? new Problem(422, "kip", error.message, error.hint) : error;

export function Graph() {
  const { lf } = useParams({ from: "/l/$lf/graph" });
  const { seq } = useSearch({ from: "/l/$lf/graph" });
  // Another mind, and another moment, is another graph.
  return <Mind key={`${lf} ${seq ?? ""}`} />;
}

function Mind() {
  const { lf } = useParams({ from: "/l/$lf/graph" });
  const { of, seq } = useSearch({ from: "/l/$lf/graph" });
  const navigate = useNavigate({ from: "/l/$lf/graph" });
  const text = useText();
  const { number } = useFormats();
  const me = useMe().data?.principal;
  const [nodes, setNodes] = useState<ReadonlyMap<string, Shown>>(new Map());
  const [bonds, setBonds] = useState<ReadonlyMap<string, Bond>>(new Map());
  const [pinned, setPinned] = useState<ReadonlySet<string>>(NONE);
  const [path, setPath] = useState<ReadonlySet<string>>(NONE);
  const [failure, setFailure] = useState<unknown>();
  const [note, setNote] = useState("");
  const loading = useRef<AbortController>(null);
  const choose = useCallback(
    (id: string) => navigate({ search: (before) => ({ ...before, of: id }), replace: true }),
    [navigate],
  );
  const add = useCallback((more: Shown[], links: Bond[]) => {
    if (more.length) setNodes((known) => new Map([...known, ...more.map((node) => [node.id, node] as const)]));
    if (links.length) setBonds((known) => new Map([...known, ...links.map((link) => [link.id, link] as const)]));
  }, []);
  useEffect(() => () => loading.current?.abort(), []);

  // Without a concept in the address, the look begins at the person of the token.
  const start = useQuery({
    queryKey: ["graph", lf, "start", me],
    queryFn: () => beginning(lf, me ?? ""),
    enabled: Boolean(me) && !of,
    retry: false,
  });
  const at = of ?? start.data;
  const found = useQuery({
    queryKey: ["graph", lf, "concept", at, seq],
    queryFn: async () => ({ concept: await conceptOf(lf, at!, seq), counts: await countsOf(lf, at!, seq) }),
    enabled: Boolean(at),
    retry: false,
  });
  const concept = found.data?.concept;
  useEffect(() => {
    if (concept) add([nodeOf(concept)], []);
  }, [concept, add]);

  const expand = async (count: Count) => {
    setFailure(undefined);
    try {
      const more = await neighbours(lf, at!, count, seq);
      add(more.nodes, more.bonds);
    } catch (error) {
      setFailure(error);
    }
  };
  const collapse = (id: string) => {
    // What hangs on it alone goes; what is pinned stays.
    const degree = new Map<string, number>();
    for (const { from, to } of bonds.values()) {
      degree.set(from, (degree.get(from) ?? 0) + 1);
      degree.set(to, (degree.get(to) ?? 0) + 1);
    }
    const gone = new Set<string>();
    for (const { from, to } of bonds.values()) {
      const other = from === id ? to : to === id ? from : undefined;
      if (other && degree.get(other) === 1 && !pinned.has(other)) gone.add(other);
    }
    setNodes(new Map([...nodes].filter(([id]) => !gone.has(id))));
    setBonds(new Map([...bonds].filter(([, { from, to }]) => !gone.has(from) && !gone.has(to))));
  };
  const pin = (id: string) => {
    const next = new Set(pinned);
    if (!next.delete(id)) next.add(id);
    setPinned(next);
    setPath(NONE);
  };
  const load = async () => {
    loading.current?.abort();
    const running = new AbortController();
    loading.current = running;
    setFailure(undefined);
    // A page at a time would draw a large mind again and again.
    const all = { nodes: new Map<string, Shown>(), bonds: new Map<string, Bond>() };
    const collect = (more: Shown[], links: Bond[]) => {
      for (const node of more) all.nodes.set(node.id, node);
      for (const link of links) all.bonds.set(link.id, link);
      setNote(text.graph.loaded(number(all.nodes.size), number(all.bonds.size)));
    };
    try {
      const isWhole = await whole(lf, WHOLE_MAX, seq, collect, running.signal);
      if (running.signal.aborted) return;
      setNodes(all.nodes);
      setBonds(all.bonds);
      setNote(isWhole ? "" : text.graph.tooLarge(number(WHOLE_MAX)));
    } catch (error) {
      if (!running.signal.aborted) setFailure(error);
    }
  };
  const onPath = () => {
    const ends = [...pinned];
    const way = ends.slice(1).flatMap((to, at) => pathBetween(bonds.values(), ends[at]!, to));
    setPath(new Set(way));
    setNote(
      way.length ? text.graph.pathOf(way.map((id) => nodes.get(id)?.label ?? id).join(" → ")) : text.graph.noPath,
    );
  };
  return (
    <>
      <Heading title={text.pages.graph}>
        <Search lf={lf} choose={choose} />
        <Moment seq={seq} go={(seq) => navigate({ search: (before) => ({ ...before, seq }) })} />
        <button type="button" onClick={load}>
          {text.graph.whole}
        </button>
        <button type="button" disabled={pinned.size < 2} onClick={onPath}>
          {text.graph.path}
        </button>
        <CopyMenu id={at} json={concept} />
      </Heading>
      {note ? <p role="status">{note}</p> : null}
      {failure ? <Failure error={problemOf(failure)} /> : null}
      {start.error ? <Failure error={problemOf(start.error)} retry={() => start.refetch()} /> : null}
      <Drawing nodes={nodes} bonds={bonds} chosen={at} pinned={pinned} marked={path} choose={choose} />
      <div className={css.below}>
        {at ? (
          <Panel title={concept ? nodeOf(concept).label : text.pages.graph}>
            <Found query={{ ...found, error: found.error ? (problemOf(found.error) as Error) : null } as typeof found}>
              {({ concept, counts }) =>
                concept ? (
                  <About
                    lf={lf}
                    concept={concept}
                    counts={counts}
                    isPinned={pinned.has(concept.id)}
                    expand={expand}
                    collapse={() => collapse(concept.id)}
                    pin={() => pin(concept.id)}
                  />
                ) : (
                  <Empty>{text.graph.gone}</Empty>
                )
              }
            </Found>
          </Panel>
        ) : null}
        <Outline nodes={nodes} bonds={bonds} pinned={pinned} chosen={at} choose={choose} />
      </div>
    </>
  );
}

function Search({ lf, choose }: { lf: string; choose: (id: string) => void }) {
  const text = useText();
  const [words, setWords] = useState("");
  const [asked, ask] = useState("");
  const hits = useQuery({
    queryKey: ["graph", lf, "search", asked],
    queryFn: () => searched(lf, asked),
    enabled: asked !== "",
    retry: false,
  });
  return (
    <form
      className={css.search}
      onSubmit={(event) => {
        event.preventDefault();
        ask(words.trim());
      }}
    >
      <input
        type="search"
        aria-label={text.memory.search}
        value={words}
        onChange={(event) => {
          setWords(event.target.value);
          if (!event.target.value) ask("");
        }}
      />
      <button type="submit">{text.memory.search}</button>
      {asked ? (
        <div className={css.hits}>
          {hits.error ? <Failure error={problemOf(hits.error)} /> : null}
          {hits.data?.length === 0 ? <Empty>{text.memory.none}</Empty> : null}
          <ul aria-label={text.memory.search}>
            {hits.data?.map((concept) => (
              <li key={concept.id}>
                <button
                  type="button"
                  onClick={() => {
                    choose(concept.id);
                    ask("");
                  }}
                >
                  {visible(nodeOf(concept).label)} <small>{concept.type}</small>
                </button>
              </li>
            ))}
          </ul>
        </div>
      ) : null}
    </form>
  );
}

/** The moment of which the graph is shown: a number of the mind's journal; empty for now. */
function Moment({ seq, go }: { seq: number | undefined; go: (seq: number | undefined) => void }) {
  const text = useText();
  const [value, setValue] = useState(seq ? String(seq) : "");
  return (
    <form
      className={css.search}
      onSubmit={(event) => {
        event.preventDefault();
        go(Number.parseInt(value, 10) || undefined);
      }}
    >
      <input
        className={css.seq}
        inputMode="numeric"
        aria-label={text.graph.asOf}
        placeholder={text.graph.now}
        value={value}
        onChange={(event) => setValue(event.target.value.replace(/\D/g, ""))}
      />
      <button type="submit">{text.graph.asOf}</button>
    </form>
  );
}

function About({
  lf,
  concept,
  counts,
  isPinned,
  expand,
  collapse,
  pin,
}: {
  lf: string;
  concept: Concept;
  counts: Count[];
  isPinned: boolean;
  expand: (count: Count) => void;
  collapse: () => void;
  pin: () => void;
}) {
  const text = useText();
  const { number } = useFormats();
  const source = concept.metadata.source;
  return (
    <>
      <div className={css.acts}>
        <span>{concept.type}</span>
        <button type="button" aria-pressed={isPinned} onClick={pin}>
          {text.graph.pin}
        </button>
        <button type="button" onClick={collapse}>
          {text.graph.collapse}
        </button>
        {typeof source === "string" && source.startsWith("canvas:") ? (
          <Link to="/l/$lf/why" params={{ lf }} search={{ from: source }}>
            {text.pages.why}
          </Link>
        ) : null}
      </div>
      <h3>{text.graph.links}</h3>
      {counts.length ? (
        <ul className={css.counts}>
          {counts.map((count) => (
            <li key={`${count.way} ${count.predicate}`}>
              <button type="button" onClick={() => expand(count)}>
                {count.way === "out" ? `${count.predicate} →` : `← ${count.predicate}`}{" "}
                {count.count > EXPANDED
                  ? text.graph.firstOf(number(EXPANDED), number(count.count))
                  : number(count.count)}
              </button>
            </li>
          ))}
        </ul>
      ) : (
        <Empty>{text.graph.alone}</Empty>
      )}
      <Json
        value={{ name: concept.name, ...concept.attributes, metadata: concept.metadata }}
        label={text.graph.concept}
      />
    </>
  );
}

function Outline({
  nodes,
  bonds,
  pinned,
  chosen,
  choose,
}: {
  nodes: ReadonlyMap<string, Shown>;
  bonds: ReadonlyMap<string, Bond>;
  pinned: ReadonlySet<string>;
  chosen: string | undefined;
  choose: (id: string) => void;
}) {
  const text = useText();
  const { number } = useFormats();
  const listed = useMemo(() => [...nodes.values()].slice(0, LISTED_MAX), [nodes]);
  const links = useMemo(() => {
    const of = new Map<string, Bond[]>();
    if (nodes.size > LISTED_MAX) return of;
    for (const bond of bonds.values()) of.set(bond.from, [...(of.get(bond.from) ?? []), bond]);
    return of;
  }, [nodes, bonds]);
  return (
    <Panel title={text.live.outline}>
      <ul className={css.outline}>
        {listed.map((node) => (
          <li key={node.id}>
            <button type="button" aria-current={node.id === chosen} onClick={() => choose(node.id)}>
              {pinned.has(node.id) ? "◆ " : ""}
              {visible(node.label)}
            </button>{" "}
            <small>{node.type}</small>
            {links.get(node.id)?.map((bond) => (
              <div key={bond.id} className={css.link}>
                {bond.predicate} → {visible(nodes.get(bond.to)?.label ?? bond.to)}
              </div>
            ))}
          </li>
        ))}
      </ul>
      {nodes.size > LISTED_MAX ? <p>{text.graph.notListed(number(nodes.size - LISTED_MAX))}</p> : null}
    </Panel>
  );
}
