// The edits of a mind map, and their inverses: who undoes takes back what it did itself, if nobody changed it since.
import { inOrder, type MapNode, type State } from "../canvas/state";

export type Op =
  | { kind: "node.add"; id: string; title: string; body?: string; parent?: string; before?: string; after?: string }
  | { kind: "node.edit"; id: string; title?: string; body?: string }
  | { kind: "node.move"; id: string; parent?: string; before?: string; after?: string }
  | { kind: "node.remove"; id: string; with_children?: boolean }
  | { kind: "link.add"; id: string; from: string; to: string; label?: string }
  | { kind: "link.remove"; id: string }
  | { kind: "comment.add"; id: string; node: string; content: string; reply_to?: string }
  | { kind: "comment.resolve"; id: string; resolved: boolean }
  | { kind: "comment.remove"; id: string }
  | { kind: "proposal.make"; id: string; reason?: string; ops: Op[] }
  | { kind: "proposal.accept"; id: string }
  | { kind: "proposal.reject"; id: string; reason?: string };

type Nodes = State["nodes"];

/** Returns the children of a node, or the nodes at the top, in their order. */
export function childrenOf(nodes: Nodes, parent: string | undefined): MapNode[] {
  return inOrder(nodes).filter((node) => (node.parent ?? undefined) === parent);
}

/** Returns all nodes in the order in which an outline shows them, with their depth. */
export function outlined(
  nodes: Nodes,
  folded: ReadonlySet<string>,
): { node: MapNode; depth: number; isParent: boolean }[] {
  const of = new Map<string, MapNode[]>();
  for (const node of inOrder(nodes)) {
    // A node whose parent is on its way stands at the top meanwhile.
    const parent = node.parent && nodes[node.parent] ? node.parent : "";
    of.set(parent, [...(of.get(parent) ?? []), node]);
  }
  const rows: { node: MapNode; depth: number; isParent: boolean }[] = [];
  const walk = (parent: string, depth: number) => {
    for (const node of of.get(parent) ?? []) {
      rows.push({ node, depth, isParent: of.has(node.id) });
      if (!folded.has(node.id)) walk(node.id, depth + 1);
    }
  };
  walk("", 1);
  return rows;
}

/** Returns the place of a node among its siblings: after which it stands, or before which. */
function placeOf(nodes: Nodes, node: MapNode): { parent?: string; after?: string; before?: string } {
  const siblings = childrenOf(nodes, node.parent ?? undefined);
  const at = siblings.findIndex((one) => one.id === node.id);
  const [before, after] = [siblings[at - 1]?.id, siblings[at + 1]?.id];
  return { parent: node.parent ?? undefined, ...(before ? { after: before } : after ? { before: after } : {}) };
}

function withDescendants(nodes: Nodes, id: string): MapNode[] {
  const node = nodes[id];
  return node ? [node, ...childrenOf(nodes, id).flatMap((child) => withDescendants(nodes, child.id))] : [];
}

/** Returns the edits that take an edit back, as things stand before it; none if it cannot be taken back. */
export function inverseOf(state: State, op: Op): Op[] {
  const { nodes } = state;
  switch (op.kind) {
    case "node.add":
      return [{ kind: "node.remove", id: op.id }];
    case "node.edit": {
      const node = nodes[op.id];
      return node ? [{ kind: "node.edit", id: op.id, title: node.title, body: node.body ?? "" }] : [];
    }
    case "node.move": {
      const node = nodes[op.id];
      return node ? [{ kind: "node.move", id: op.id, ...placeOf(nodes, node) }] : [];
    }
    case "node.remove": {
      const [node, ...below] = withDescendants(nodes, op.id);
      if (!node) return [];
      const again = ({ id, title, body }: MapNode) => ({ kind: "node.add" as const, id, title, body: body ?? "" });
      return [
        { ...again(node), ...placeOf(nodes, node) },
        ...below.map((one) => ({ ...again(one), parent: one.parent })),
      ];
    }
    case "link.add":
      return [{ kind: "link.remove", id: op.id }];
    case "comment.add":
      return [{ kind: "comment.remove", id: op.id }];
    case "comment.resolve":
      return [{ kind: "comment.resolve", id: op.id, resolved: !op.resolved }];
    default:
      return [];
  }
}

/** Returns the edit that moves a node one place up or down, in or out; `undefined` at the end. */
export function moved(nodes: Nodes, id: string, way: "up" | "down" | "in" | "out"): Op | undefined {
  const node = nodes[id];
  if (!node) return;
  const parent = node.parent ?? undefined;
  const siblings = childrenOf(nodes, parent);
  const at = siblings.findIndex((one) => one.id === id);
  const [before, after] = [siblings[at - 1], siblings[at + 1]];
  switch (way) {
    case "up":
      return before && { kind: "node.move", id, parent, before: before.id };
    case "down":
      return after && { kind: "node.move", id, parent, after: after.id };
    case "in":
      return before && { kind: "node.move", id, parent: before.id };
    case "out":
      return parent ? { kind: "node.move", id, parent: nodes[parent]?.parent, after: parent } : undefined;
  }
}
