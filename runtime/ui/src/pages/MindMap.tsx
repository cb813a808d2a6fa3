import type { Canvas } from "../api/client";
import { inOrder, type MapNode } from "../canvas/state";
import { useCanvas } from "../canvas/useCanvas";
import { useText } from "../i18n";
import { Markdown, visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty } from "../parts/States";

const DEPTH_MAX = 60;

function Branch({ of, children, depth }: { of: string; children: Map<string, MapNode[]>; depth: number }) {
  const nodes = children.get(of) ?? [];
  if (!nodes.length || depth > DEPTH_MAX) return null;
  return (
    <ul>
      {nodes.map((node) => (
        <li key={node.id}>
          {visible(node.title)}
          {node.body ? <Markdown text={node.body} /> : null}
          <Branch of={node.id} depth={depth + 1}>
            {children}
          </Branch>
        </li>
      ))}
    </ul>
  );
}

export function MindMap({ lf, canvas }: { lf: string; canvas: Canvas }) {
  const text = useText();
  const { folded, link } = useCanvas(lf, canvas.id);
  const children = new Map<string, MapNode[]>();
  for (const node of inOrder(folded.state.nodes)) {
    const parent = node.parent ?? "";
    children.set(parent, [...(children.get(parent) ?? []), node]);
  }
  return (
    <>
      <Heading title={canvas.title || canvas.id}>
        <State tone={link === "live" ? "good" : "warn"}>{text.link[link]}</State>
        <CopyMenu id={canvas.id} json={folded.state.nodes} path={`/v1/lifeforms/${lf}/canvases/${canvas.id}/state`} />
      </Heading>
      <Panel title={text.map.outline}>
        {children.size ? (
          <Branch of="" depth={0}>
            {children}
          </Branch>
        ) : (
          <Empty>{text.map.none}</Empty>
        )}
        <p>{text.map.readOnly}</p>
      </Panel>
    </>
  );
}
