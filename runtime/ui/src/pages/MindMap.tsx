// A mind map, which several people edit at once: an outline with keys, a drawing, and beside them the chosen node with its text,
// comments and proposals.
import { useSearch } from "@tanstack/react-router";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import type { Canvas } from "../api/client";
import { useMe } from "../api/queries";
import type { Comment, MapNode, State as MapState, Proposal } from "../canvas/state";
import { useCanvas } from "../canvas/useCanvas";
import { useText } from "../i18n";
import { moved, type Op, outlined } from "../map/edits";
import { DRAWN_MAX, MapDrawing } from "../map/MapDrawing";
import { useEdits } from "../map/useEdits";
import { type Present, usePresence } from "../map/usePresence";
import { Markdown, visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure } from "../parts/States";
import css from "./MindMap.module.css";

const newId = (of: string) => `${of}_${crypto.randomUUID().replaceAll("-", "").slice(0, 20)}`;

type Edit = (op: Op | undefined, base?: number, written?: () => void) => void;

export function MindMap({ lf, canvas }: { lf: string; canvas: Canvas }) {
  const text = useText();
  const me = useMe().data;
  const { node: linked } = useSearch({ from: "/l/$lf/c/$canvas" });
  const { folded, link } = useCanvas(lf, canvas.id);
  const [chosen, choose] = useState<string | undefined>(linked);
  const [proposes, setProposes] = useState(false);
  const { edit: send, undo, canUndo, error } = useEdits(lf, canvas.id, folded.state);
  const present = usePresence(lf, canvas.id, chosen);
  const mayEdit = me?.roles.some((role) => role === "operator" || role === "participant") ?? false;
  const write: Edit = (op, base, written) => send([op], base, written);
  // What is proposed is done when another accepts it.
  const edit: Edit = (op, base, written) =>
    proposes && op
      ? send([{ kind: "proposal.make", id: newId("prop"), ops: [op] }], undefined, written)
      : write(op, base, written);
  const node = chosen ? folded.state.nodes[chosen] : undefined;
  const count = Object.keys(folded.state.nodes).length;
  return (
    <>
      <Heading title={canvas.title || canvas.id}>
        <Here present={present} me={me?.principal} state={folded.state} />
        <State tone={link === "live" ? "good" : "warn"}>{text.link[link]}</State>
        {mayEdit ? (
          <>
            <label className={css.check}>
              <input type="checkbox" checked={proposes} onChange={(event) => setProposes(event.target.checked)} />
              {text.map.propose}
            </label>
            <button type="button" disabled={!canUndo} onClick={undo}>
              {text.map.undo}
            </button>
          </>
        ) : null}
        <CopyMenu id={canvas.id} json={folded.state.nodes} path={`/v1/lifeforms/${lf}/canvases/${canvas.id}/state`} />
      </Heading>
      {error ? <Failure error={error} /> : null}
      {count && count <= DRAWN_MAX ? (
        <Panel title={text.map.title}>
          <MapDrawing state={folded.state} chosen={chosen} choose={choose} />
        </Panel>
      ) : null}
      <div className={css.grid}>
        <Panel title={text.map.outline}>
          {count ? null : <Empty>{text.map.none}</Empty>}
          <Outline
            state={folded.state}
            present={present.filter((one) => one.who !== me?.principal)}
            chosen={chosen}
            choose={choose}
            edit={mayEdit ? edit : undefined}
          />
          {mayEdit ? (
            <>
              <NewNode
                add={(title, written) =>
                  edit({ kind: "node.add", id: newId("node"), title, parent: node?.id }, undefined, written)
                }
                below={node?.title}
              />
              <p className={css.keys}>{text.map.keys}</p>
            </>
          ) : null}
        </Panel>
        {node ? (
          <Chosen
            key={node.id}
            node={node}
            state={folded.state}
            rev={folded.rev}
            edit={mayEdit ? edit : undefined}
            write={write}
          />
        ) : null}
        <Proposals state={folded.state} me={me?.principal} write={mayEdit ? write : undefined} />
      </div>
    </>
  );
}

function Here({ present, me, state }: { present: Present[]; me: string | undefined; state: MapState }) {
  const text = useText();
  const others = present.filter((one) => one.who !== me);
  if (!others.length) return null;
  const named = ({ who }: Present) => Object.values(state.users).find((user) => user.id === who)?.name ?? who;
  return <span>{text.map.here(others.map(named).join(", "))}</span>;
}

function Outline({
  state,
  present,
  chosen,
  choose,
  edit,
}: {
  state: MapState;
  present: Present[];
  chosen: string | undefined;
  choose: (id: string) => void;
  edit: Edit | undefined;
}) {
  const text = useText();
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const [renamed, rename] = useState<string>();
  const rows = useMemo(() => outlined(state.nodes, folded), [state.nodes, folded]);
  const tree = useRef<HTMLDivElement>(null);
  const at = Math.max(
    0,
    rows.findIndex(({ node }) => node.id === chosen),
  );
  const toggle = (id: string) => {
    const next = new Set(folded);
    if (!next.delete(id)) next.add(id);
    setFolded(next);
  };
  const go = (to: number) => {
    const row = rows[Math.min(Math.max(to, 0), rows.length - 1)];
    if (!row) return;
    choose(row.node.id);
    tree.current?.querySelector<HTMLElement>(`[data-node="${CSS.escape(row.node.id)}"]`)?.focus();
  };
  const press = (event: KeyboardEvent, row: (typeof rows)[number]) => {
    const { node, isParent } = row;
    const isMove = event.altKey && edit;
    const ways = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "out", ArrowRight: "in" } as const;
    const way = ways[event.key as keyof typeof ways];
    if (isMove && way) edit(moved(state.nodes, node.id, way));
    else if (event.altKey || event.ctrlKey || event.metaKey) return;
    else if (event.key === "ArrowDown") go(at + 1);
    else if (event.key === "ArrowUp") go(at - 1);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(rows.length - 1);
    else if (event.key === "ArrowRight" && isParent && folded.has(node.id)) toggle(node.id);
    else if (event.key === "ArrowRight" && isParent) go(at + 1);
    else if (event.key === "ArrowLeft" && isParent && !folded.has(node.id)) toggle(node.id);
    else if (event.key === "ArrowLeft" && node.parent) go(rows.findIndex((one) => one.node.id === node.parent));
    else if (event.key === "F2" && edit) rename(node.id);
    else if (event.key === "Delete" && edit) {
      remove(edit, node, isParent, text.map.sureRemove);
      // The keyboard goes on at a neighbour.
      go(at > 0 ? at - 1 : at + 1);
    } else return;
    event.preventDefault();
  };
  return (
    <div role="tree" aria-label={text.map.outline} ref={tree}>
      {rows.map((row, place) => {
        const { node, depth, isParent } = row;
        const others = present.filter((one) => one.state.node === node.id);
        return (
          <div
            key={node.id}
            role="treeitem"
            className={css.row}
            style={{ paddingInlineStart: `${(depth - 1) * 1.2}rem` }}
            data-node={node.id}
            aria-level={depth}
            aria-selected={node.id === chosen}
            aria-expanded={isParent ? !folded.has(node.id) : undefined}
            tabIndex={place === at ? 0 : -1}
            onKeyDown={(event) => event.target === event.currentTarget && press(event, row)}
            onClick={() => choose(node.id)}
            onDoubleClick={() => edit && rename(node.id)}
          >
            <span
              className={css.fold}
              aria-hidden="true"
              onClick={(event) => {
                event.stopPropagation();
                if (isParent) toggle(node.id);
              }}
            >
              {isParent ? (folded.has(node.id) ? "▸" : "▾") : "·"}
            </span>
            {renamed === node.id && edit ? (
              <Rename
                title={node.title}
                done={(title) => {
                  rename(undefined);
                  if (title && title !== node.title) edit({ kind: "node.edit", id: node.id, title });
                  tree.current?.querySelector<HTMLElement>(`[data-node="${CSS.escape(node.id)}"]`)?.focus();
                }}
              />
            ) : (
              <span>{visible(node.title)}</span>
            )}
            {others.length ? <small className={css.other}>{others.map((one) => one.who).join(", ")}</small> : null}
          </div>
        );
      })}
    </div>
  );
}

function remove(edit: Edit, node: MapNode, isParent: boolean, sure: (title: string) => string) {
  if (!isParent || confirm(sure(node.title))) {
    edit({ kind: "node.remove", id: node.id, with_children: isParent || undefined });
  }
}

function Rename({ title, done }: { title: string; done: (title: string | undefined) => void }) {
  const text = useText();
  const [value, setValue] = useState(title);
  const field = useRef<HTMLInputElement>(null);
  // The field loses the focus, too, when it is left by a key.
  const isOver = useRef(false);
  const end = (title: string | undefined) => {
    if (isOver.current) return;
    isOver.current = true;
    done(title);
  };
  useEffect(() => field.current?.select(), []);
  return (
    <input
      ref={field}
      aria-label={text.map.name}
      value={value}
      onChange={(event) => setValue(event.target.value)}
      onBlur={() => end(value.trim())}
      onKeyDown={(event) => {
        // Enter while a word is composed ends the word.
        if (event.nativeEvent.isComposing) return;
        if (event.key === "Enter") end(value.trim());
        if (event.key === "Escape") end(undefined);
      }}
    />
  );
}

function NewNode({ add, below }: { add: (title: string, written: () => void) => void; below: string | undefined }) {
  const text = useText();
  const [title, setTitle] = useState("");
  return (
    <form
      className={css.add}
      onSubmit={(event) => {
        event.preventDefault();
        if (!title.trim()) return;
        add(title.trim(), () => setTitle(""));
      }}
    >
      <input
        aria-label={below ? text.map.addBelow(below) : text.map.add}
        placeholder={below ? text.map.addBelow(below) : text.map.add}
        value={title}
        onChange={(event) => setTitle(event.target.value)}
        onKeyDown={(event) => event.key === "Enter" && event.nativeEvent.isComposing && event.preventDefault()}
      />
      <button type="submit">{text.map.add}</button>
    </form>
  );
}

function Chosen({
  node,
  state,
  rev,
  edit,
  write,
}: {
  node: MapNode;
  state: MapState;
  rev: number;
  edit: Edit | undefined;
  write: Edit;
}) {
  const text = useText();
  // A draft goes back to the revision at which it began: what another wrote meanwhile is not written over.
  const [body, setBody] = useState<{ text: string; from: number }>();
  const [comment, setComment] = useState("");
  const [target, setTarget] = useState("");
  const me = useMe().data?.principal;
  const comments = Object.values(state.comments).filter((one) => one.node === node.id);
  const links = Object.values(state.links).filter((one) => one.from === node.id || one.to === node.id);
  const others = Object.values(state.nodes).filter((one) => one.id !== node.id);
  return (
    <Panel title={node.title}>
      {edit ? (
        <>
          <textarea
            className={css.body}
            aria-label={text.map.body}
            rows={5}
            value={body?.text ?? node.body ?? ""}
            onChange={(event) => setBody({ text: event.target.value, from: body?.from ?? rev })}
          />
          <div className={css.acts}>
            <button
              type="button"
              disabled={body === undefined || body.text === (node.body ?? "")}
              onClick={() =>
                body && edit({ kind: "node.edit", id: node.id, body: body.text }, body.from, () => setBody(undefined))
              }
            >
              {text.chat.save}
            </button>
            <button type="button" disabled={body === undefined} onClick={() => setBody(undefined)}>
              {text.chat.cancel}
            </button>
            {(["up", "down", "in", "out"] as const).map((way) => (
              <button
                key={way}
                type="button"
                disabled={!moved(state.nodes, node.id, way)}
                onClick={() => edit(moved(state.nodes, node.id, way))}
              >
                {text.map.move[way]}
              </button>
            ))}
            <button
              type="button"
              data-kind="bad"
              onClick={() =>
                remove(
                  edit,
                  node,
                  others.some((one) => one.parent === node.id),
                  text.map.sureRemove,
                )
              }
            >
              {text.goals.remove}
            </button>
          </div>
        </>
      ) : node.body ? (
        <Markdown text={node.body} />
      ) : null}
      <h3>{text.map.links}</h3>
      <ul>
        {links.map(({ id, from, to, label }) => (
          <li key={id}>
            {visible(
              `${state.nodes[from]?.title ?? from} ${label ? `–${label}→` : "→"} ${state.nodes[to]?.title ?? to}`,
            )}{" "}
            {edit ? (
              <button type="button" onClick={() => edit({ kind: "link.remove", id })}>
                {text.goals.remove}
              </button>
            ) : null}
          </li>
        ))}
      </ul>
      {edit && others.length ? (
        <div className={css.add}>
          <select aria-label={text.map.linkTo} value={target} onChange={(event) => setTarget(event.target.value)}>
            <option value="">{text.map.linkTo}</option>
            {others.map((one) => (
              <option key={one.id} value={one.id}>
                {one.title}
              </option>
            ))}
          </select>
          <button
            type="button"
            disabled={!target}
            onClick={() => {
              edit({ kind: "link.add", id: newId("link"), from: node.id, to: target });
              setTarget("");
            }}
          >
            {text.map.link}
          </button>
        </div>
      ) : null}
      <h3>{text.map.comments}</h3>
      <ul className={css.comments}>
        {comments.map((one) => (
          <OneComment key={one.id} comment={one} me={me} write={edit ? write : undefined} />
        ))}
      </ul>
      {edit ? (
        <form
          className={css.add}
          onSubmit={(event) => {
            event.preventDefault();
            if (!comment.trim()) return;
            write({ kind: "comment.add", id: newId("comment"), node: node.id, content: comment.trim() });
            setComment("");
          }}
        >
          <input aria-label={text.map.comment} value={comment} onChange={(event) => setComment(event.target.value)} />
          <button type="submit">{text.map.comment}</button>
        </form>
      ) : null}
    </Panel>
  );
}

function OneComment({ comment, me, write }: { comment: Comment; me: string | undefined; write: Edit | undefined }) {
  const text = useText();
  return (
    <li data-resolved={comment.resolved}>
      <strong>{comment.by}</strong>: {visible(comment.content)}{" "}
      {comment.resolved ? <State tone="good">{text.map.resolved}</State> : null}{" "}
      {write ? (
        <button
          type="button"
          onClick={() => write({ kind: "comment.resolve", id: comment.id, resolved: !comment.resolved })}
        >
          {comment.resolved ? text.map.reopen : text.map.resolve}
        </button>
      ) : null}
      {write && comment.by === me ? (
        <button type="button" onClick={() => write({ kind: "comment.remove", id: comment.id })}>
          {text.goals.remove}
        </button>
      ) : null}
    </li>
  );
}

function Proposals({ state, me, write }: { state: MapState; me: string | undefined; write: Edit | undefined }) {
  const text = useText();
  const open = Object.values(state.proposals).filter((one) => one.status === "open");
  if (!open.length) return null;
  return (
    <Panel title={text.map.proposals}>
      <ul className={css.comments}>
        {open.map((one) => (
          <li key={one.id}>
            <strong>{one.by}</strong>
            {one.reason ? `: ${visible(one.reason)}` : ""}
            <ul>
              {one.ops.map((op, at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a proposal do not change
                <li key={at}>{visible(said(op, state, text.map.does))}</li>
              ))}
            </ul>
            {write ? (
              <div className={css.acts}>
                {one.by === me ? null : (
                  <button type="button" onClick={() => write({ kind: "proposal.accept", id: one.id })}>
                    {text.inbox.approve}
                  </button>
                )}
                <button type="button" onClick={() => write({ kind: "proposal.reject", id: one.id })}>
                  {one.by === me ? text.map.withdraw : text.inbox.refuse}
                </button>
              </div>
            ) : null}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** Returns what an op of a proposal does, in words. */
function said(op: Proposal["ops"][number], state: MapState, words: Record<string, string>): string {
  const title = op.id ? (state.nodes[op.id]?.title ?? op.title) : op.title;
  return `${words[op.kind] ?? op.kind}: ${[
    title,
    op.title !== title ? op.title : undefined,
    op.body ?? op.label ?? op.content,
  ]
    .filter(Boolean)
    .join(" · ")}`;
}
