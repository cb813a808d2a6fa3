// A graph as a drawing by WebGL. The list beside it says the same, and is the way by keyboard.
import Graphology from "graphology";
import forces from "graphology-layout-forceatlas2";
import { useEffect, useRef, useState } from "react";
import Sigma from "sigma";
import { useIsDark } from "../app/scheme";
import { useText } from "../i18n";
import css from "./Drawing.module.css";
import type { Bond, Shown } from "./mind";

/** The number of nodes up to which forces place them. More are placed by their types. */
const FORCES_MAX = 2_000;
const ROUNDS = 60;
/** The number of links above which names of links are not drawn. */
const NAMED_MAX = 300;

const TONES = ["--accent", "--good", "--warn", "--bad", "--dim"] as const;
const TYPES = ["Person", "Place", "Thing", "Theme", "Fact"];

function toneOf(type: string): string {
  const at = TYPES.indexOf(type);
  return TONES[at < 0 ? TONES.length - 1 : at]!;
}

/** Places the nodes: those that are new beside a neighbour, and then all by forces; many by their types, each on a spiral of its own. */
function place(graph: Graphology, pinned: ReadonlySet<string>) {
  if (graph.order > FORCES_MAX) {
    const types = [...new Set(graph.mapNodes((_, node) => node.type_ as string))].sort();
    const places = new Map(types.map((type) => [type, 0]));
    const size = Math.sqrt(graph.order);
    graph.updateEachNodeAttributes((_, node) => {
      const at = places.get(node.type_)!;
      places.set(node.type_, at + 1);
      const side = (types.indexOf(node.type_) / types.length) * 2 * Math.PI;
      // The angle of a sunflower spreads them evenly.
      const [angle, far] = [at * 2.399963, Math.sqrt(at)];
      return {
        ...node,
        x: Math.cos(side) * size * 2 + Math.cos(angle) * far,
        y: Math.sin(side) * size * 2 + Math.sin(angle) * far,
      };
    });
    return;
  }
  graph.updateEachNodeAttributes((id, node) => ({ ...node, fixed: pinned.has(id) }));
  forces.assign(graph, {
    iterations: ROUNDS,
    settings: { gravity: 1, scalingRatio: 10, slowDown: 2, barnesHutOptimize: graph.order > 300 },
  });
}

export function Drawing({
  nodes,
  bonds,
  chosen,
  pinned,
  marked,
  choose,
}: {
  nodes: ReadonlyMap<string, Shown>;
  bonds: ReadonlyMap<string, Bond>;
  chosen: string | undefined;
  pinned: ReadonlySet<string>;
  marked: ReadonlySet<string>;
  choose: (id: string) => void;
}) {
  const text = useText();
  const isDark = useIsDark();
  const frame = useRef<HTMLDivElement>(null);
  const [draws, setDraws] = useState(true);
  const kept = useRef(new Graphology({ multi: true }));
  const drawn = useRef<Sigma>(null);
  const act = useRef(choose);
  act.current = choose;

  useEffect(() => {
    const box = frame.current;
    if (!box) return;
    let sigma: Sigma;
    try {
      sigma = new Sigma(kept.current, box, {
        labelRenderedSizeThreshold: 4,
        renderEdgeLabels: true,
        zIndex: true,
        allowInvalidContainer: true,
      });
    } catch {
      // Without WebGL, the list is all there is.
      setDraws(false);
      return;
    }
    sigma.on("clickNode", ({ node }) => act.current(node));
    drawn.current = sigma;
    return () => {
      drawn.current = null;
      sigma.kill();
    };
  }, []);

  useEffect(() => {
    const graph = kept.current;
    for (const id of graph.nodes()) if (!nodes.has(id)) graph.dropNode(id);
    for (const id of graph.edges()) if (!bonds.has(id)) graph.dropEdge(id);
    const size = graph.order + graph.size;
    let turn = graph.order;
    for (const { id, type, label } of nodes.values()) {
      if (graph.hasNode(id)) continue;
      turn += 1;
      const angle = turn * 2.399963;
      graph.addNode(id, {
        x: Math.cos(angle) * Math.sqrt(turn),
        y: Math.sin(angle) * Math.sqrt(turn),
        label,
        type_: type,
      });
    }
    for (const { id, from, to, predicate } of bonds.values()) {
      if (!graph.hasEdge(id) && graph.hasNode(from) && graph.hasNode(to)) {
        graph.addEdgeWithKey(id, from, to, { label: bonds.size > NAMED_MAX ? "" : predicate, type: "arrow" });
      }
    }
    if (graph.order + graph.size !== size) place(graph, pinned);
    drawn.current?.refresh();
  }, [nodes, bonds, pinned]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a scheme has colours of its own
  useEffect(() => {
    const sigma = drawn.current;
    const box = frame.current;
    if (!sigma || !box) return;
    const style = getComputedStyle(box);
    // The canvas reads no variables, and `light-dark()` only as the colour of an element.
    const colour = (name: string) => {
      const probe = document.createElement("span");
      probe.style.color = `var(${name})`;
      box.append(probe);
      const value = getComputedStyle(probe).color;
      probe.remove();
      return value;
    };
    const tones = new Map(TONES.map((tone) => [tone as string, colour(tone)]));
    const [line, accent] = [colour("--dim"), colour("--accent")];
    sigma.setSetting("labelColor", { color: style.color });
    sigma.setSetting("edgeLabelColor", { color: colour("--dim") });
    sigma.setSetting("labelFont", style.fontFamily);
    sigma.setSetting("nodeReducer", (id, node) => ({
      ...node,
      color: tones.get(toneOf(node.type_ as string)),
      size: id === chosen ? 10 : pinned.has(id) || marked.has(id) ? 8 : 5,
      forceLabel: id === chosen || pinned.has(id) || marked.has(id),
      highlighted: false,
      zIndex: id === chosen ? 1 : 0,
    }));
    sigma.setSetting("edgeReducer", (id, edge) => {
      const [from, to] = kept.current.extremities(id);
      const isOn = marked.size ? marked.has(from!) && marked.has(to!) : from === chosen || to === chosen;
      return { ...edge, color: isOn ? accent : line, size: isOn ? 2 : 1 };
    });
  }, [chosen, pinned, marked, isDark]);

  if (!draws) return <p role="status">{text.graph.noDrawing}</p>;
  return <div ref={frame} className={css.frame} role="img" aria-label={text.graph.drawing(nodes.size, bonds.size)} />;
}
