// A mind map as a drawing. The outline beside it says the same, and is edited.
import { Graph, layout } from "@dagrejs/dagre";
import { useMemo } from "react";
import type { State } from "../canvas/state";
import { useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import css from "./MapDrawing.module.css";

const WIDTH = 170;
const HEIGHT = 34;
const CHARS = 22;
/** The number of nodes above which only the outline is shown. */
export const DRAWN_MAX = 500;

export function MapDrawing({
  state,
  chosen,
  choose,
}: {
  state: State;
  chosen: string | undefined;
  choose: (id: string) => void;
}) {
  const text = useText();
  const { nodes, links } = state;
  const drawing = useMemo(() => {
    const graph = new Graph();
    graph.setGraph({ rankdir: "LR", nodesep: 10, ranksep: 40, marginx: 8, marginy: 8 });
    graph.setDefaultEdgeLabel(() => ({}));
    const all = Object.values(nodes);
    for (const { id } of all) graph.setNode(id, { width: WIDTH, height: HEIGHT });
    for (const { id, parent } of all) if (parent && nodes[parent]) graph.setEdge(parent, id);
    layout(graph);
    const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
    const at = (id: string) => graph.node(id) as { x: number; y: number };
    return {
      width,
      height,
      nodes: all.map((node) => ({ id: node.id, title: node.title, ...at(node.id) })),
      edges: graph.edges().map(({ v, w }) => ({ id: `${v} ${w}`, from: at(v), to: at(w) })),
      links: Object.values(links)
        .filter(({ from, to }) => nodes[from] && nodes[to])
        .map(({ id, from, to, label }) => ({ id, label, from: at(from), to: at(to) })),
    };
  }, [nodes, links]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a frame that scrolls is scrolled by keyboard, too
    <section className={css.frame} tabIndex={0} aria-label={text.map.drawing}>
      <svg
        width={drawing.width}
        height={drawing.height}
        viewBox={`0 0 ${drawing.width} ${drawing.height}`}
        aria-hidden="true"
      >
        {drawing.edges.map(({ id, from, to }) => (
          <path
            key={id}
            className={css.edge}
            d={`M${from.x + WIDTH / 2} ${from.y} C${from.x + WIDTH / 2 + 20} ${from.y} ${to.x - WIDTH / 2 - 20} ${to.y} ${to.x - WIDTH / 2} ${to.y}`}
          />
        ))}
        {drawing.links.map(({ id, from, to, label }) => (
          <g key={id} className={css.link}>
            <line x1={from.x} y1={from.y} x2={to.x} y2={to.y} />
            <text x={(from.x + to.x) / 2} y={(from.y + to.y) / 2}>
              {label}
            </text>
          </g>
        ))}
        {drawing.nodes.map(({ id, title, x, y }) => (
          // biome-ignore lint/a11y/noStaticElementInteractions: the outline beside it is the way by keyboard
          <g
            key={id}
            className={css.node}
            data-chosen={id === chosen}
            transform={`translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`}
            onClick={() => choose(id)}
          >
            <rect width={WIDTH} height={HEIGHT} rx={8} />
            <text x={10} y={21}>
              {visible(title.length > CHARS ? `${title.slice(0, CHARS - 1)}…` : title)}
            </text>
          </g>
        ))}
      </svg>
    </section>
  );
}
