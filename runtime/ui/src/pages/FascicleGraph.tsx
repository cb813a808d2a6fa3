// A fascicle as a drawing: its nodes in layers, with the state of each, and the events that cross its edges.
import { Graph, layout } from "@dagrejs/dagre";
import { useEffect, useMemo, useRef } from "react";
import type { FascicleActivity, StepState } from "../events/fold";
import { useText } from "../i18n";
import css from "./FascicleGraph.module.css";

/** The part of a definition that is drawn. */
export interface Drawn {
  id: string;
  output?: string;
  nodes: { id: string; after?: (string | { node: string })[] }[];
}

const WIDTH = 150;
const HEIGHT = 46;
/** The number of nodes above which only the outline is shown. */
export const NODES_MAX = 1_000;

export const toneOfStep: Record<StepState, "good" | "warn" | "bad" | "plain"> = {
  started: "warn",
  paused: "warn",
  done: "good",
  passed: "plain",
  skipped: "plain",
  failed: "bad",
  given_up: "bad",
  broken: "bad",
  interrupted: "bad",
};

const nameOf = (edge: string | { node: string }) => (typeof edge === "string" ? edge : edge.node);

function placed(fascicle: Drawn) {
  const graph = new Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 46, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  const known = new Set(fascicle.nodes.map((node) => node.id));
  for (const node of fascicle.nodes) graph.setNode(node.id, { width: WIDTH, height: HEIGHT });
  for (const node of fascicle.nodes) {
    for (const edge of node.after ?? []) if (known.has(nameOf(edge))) graph.setEdge(nameOf(edge), node.id);
  }
  layout(graph);
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  const nodes = fascicle.nodes.map((node) => ({ id: node.id, ...(graph.node(node.id) as { x: number; y: number }) }));
  const edges = graph.edges().map((edge) => ({
    from: edge.v,
    to: edge.w,
    points: (graph.edge(edge) as { points: { x: number; y: number }[] }).points,
  }));
  return { width, height, nodes, edges };
}

export function FascicleGraph({
  fascicle,
  activity,
  chosen,
  choose,
}: {
  fascicle: Drawn;
  activity: FascicleActivity | undefined;
  chosen: string | undefined;
  choose: (node: string) => void;
}) {
  const text = useText();
  const drawing = useMemo(() => placed(fascicle), [fascicle]);
  const frame = useRef<HTMLElement>(null);
  const stateOf = (node: string) => activity?.nodes.get(node);
  // A drawing that is wider than its frame follows the node at which something happened last.
  const last = [...(activity?.nodes ?? [])].reduce<[string, string]>(
    (latest, [id, node]) => (node.at >= latest[1] ? [id, node.at] : latest),
    ["", ""],
  )[0];
  useEffect(() => {
    const node = drawing.nodes.find((node) => node.id === last);
    const box = frame.current;
    if (node && box) box.scrollTo({ left: node.x - box.clientWidth / 2, top: node.y - box.clientHeight / 2 });
  }, [drawing, last]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a frame that scrolls is scrolled by keyboard, too
    <section className={css.frame} ref={frame} tabIndex={0} aria-label={text.live.graphOf(fascicle.id)}>
      <svg
        className={css.graph}
        width={drawing.width}
        height={drawing.height}
        viewBox={`0 0 ${drawing.width} ${drawing.height}`}
        aria-hidden="true"
      >
        {drawing.edges.map(({ from, to, points }) => {
          const isCrossed = Boolean(stateOf(from)?.count && stateOf(to)?.jobs.size);
          return (
            <polyline
              key={`${from} ${to}`}
              className={css.edge}
              data-crossed={isCrossed}
              points={points.map(({ x, y }) => `${x},${y}`).join(" ")}
            />
          );
        })}
        {drawing.nodes.map(({ id, x, y }) => {
          const known = stateOf(id);
          const tone = known ? toneOfStep[known.state] : "plain";
          return (
            // biome-ignore lint/a11y/noStaticElementInteractions: the outline beside it is the way by keyboard
            <g
              key={id}
              className={css.node}
              data-tone={tone}
              data-runs={Boolean(known?.jobs.size)}
              data-chosen={id === chosen}
              transform={`translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`}
              onClick={() => choose(id)}
            >
              <rect width={WIDTH} height={HEIGHT} rx={8} />
              <text x={10} y={19}>
                {id.length > 19 ? `${id.slice(0, 18)}…` : id}
              </text>
              <text x={10} y={36} className={css.state}>
                {known ? `${text.live.states[known.state]}${known.count > 1 ? ` ×${known.count}` : ""}` : "–"}
              </text>
            </g>
          );
        })}
      </svg>
    </section>
  );
}
