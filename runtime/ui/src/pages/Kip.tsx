// The query language of the mind. A command of a link is put into the editor and not run; writes are off until they are allowed.
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, data, type Entry } from "../api/client";
import { kip, useMe } from "../api/queries";
import { useFormats, useText } from "../i18n";
import { Editor } from "../kip/Editor";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel } from "../parts/Panel";
import { Empty, Failure } from "../parts/States";
import { onToken } from "../session/token";
import css from "./Kip.module.css";

type Way = "run" | "dry" | "explain";

/** The number of rows of an answer that a table shows. */
const ROWS_MAX = 500;
const HISTORY_MAX = 20;
const KEPT = "lifeformd.kip";
const NONE = { types: [], predicates: [] };

/** The commands that were run in this tab, the latest first. They may hold what a mind knows, so they leave the tab with it. */
function kept(): string[] {
  try {
    const commands = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(commands) ? commands.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}

function keep(command: string): string[] {
  const commands = [command, ...kept().filter((one) => one !== command)].slice(0, HISTORY_MAX);
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(commands));
  } catch {
    // A tab without room keeps none.
  }
  return commands;
}

// The next person in this tab sees none of them.
onToken(() => sessionStorage.removeItem(KEPT));

export function Kip() {
  const { lf } = useParams({ from: "/l/$lf/kip" });
  const { q } = useSearch({ from: "/l/$lf/kip" });
  const text = useText();
  const { number } = useFormats();
  const me = useMe().data?.principal;
  const [command, setCommand] = useState(q ?? "");
  const [writes, allowWrites] = useState(false);
  const [earlier, setEarlier] = useState(kept);
  const schema = useQuery({
    queryKey: ["kip-schema", lf],
    queryFn: async () => {
      const names = async (what: string) => ((await kip(lf, `DESCRIBE ${what} TYPES`)).result ?? []) as string[];
      const [types, predicates] = await Promise.all([names("CONCEPT"), names("PROPOSITION")]);
      return { types, predicates };
    },
    retry: false,
  });
  const run = useMutation({
    mutationFn: async ({ command, way }: { command: string; way: Way }) => {
      if (way === "explain") return { answer: await kip(lf, `EXPLAIN ${command}`, {}, { readonly: true }) };
      setEarlier(keep(command));
      const mayWrite = way === "run" && writes;
      const before = mayWrite ? await head(lf) : undefined;
      const answer = await kip(lf, command, {}, way === "dry" ? { dry_run: true } : { readonly: !mayWrite });
      const seq = before !== undefined && !answer.error ? await writtenAs(lf, command, before, me) : undefined;
      return { answer, seq };
    },
  });
  const undo = useMutation({
    mutationFn: (seq: number) =>
      data(api.POST("/v1/nexus/{id}/undo", { params: { path: { id: lf } }, body: { seq } as never })),
  });
  const ask = (way: Way) => {
    if (!command.trim() || run.isPending) return;
    undo.reset();
    run.mutate({ command, way });
  };
  const answer = run.data?.answer;
  const rows = Array.isArray(answer?.result) ? answer.result : undefined;
  const error = answer?.error as { message?: string; hint?: string; line?: number; column?: number } | null | undefined;
  // The place is of the command that was run, and of no other way to ask.
  const isSame = run.variables?.command === command && run.variables.way !== "explain";
  const fault = error?.line && error.column && isSame ? { line: error.line, column: error.column } : undefined;
  const written = run.data?.seq;
  return (
    <>
      <Heading title={text.pages.kip}>
        <Link to="/l/$lf/graph" params={{ lf }} search={{}}>
          {text.pages.graph}
        </Link>
        <CopyMenu json={answer} />
      </Heading>
      <div className={css.form}>
        <Editor
          label={text.kip.command}
          value={command}
          change={setCommand}
          run={() => ask("run")}
          schema={schema.data ?? NONE}
          fault={fault}
        />
        <div className={css.acts}>
          <button type="button" data-kind="main" disabled={run.isPending} onClick={() => ask("run")}>
            {text.kip.run}
          </button>
          <button type="button" disabled={run.isPending || !command.trim()} onClick={() => ask("dry")}>
            {text.kip.dryRun}
          </button>
          <button type="button" disabled={run.isPending || !command.trim()} onClick={() => ask("explain")}>
            {text.kip.explain}
          </button>
          <label className={css.check}>
            <input type="checkbox" checked={writes} onChange={(event) => allowWrites(event.target.checked)} />{" "}
            {text.kip.write}
          </label>
          {earlier.length ? (
            <select
              className={css.earlier}
              aria-label={text.kip.earlier}
              value=""
              onChange={(event) => setCommand(event.target.value)}
            >
              <option value="">{text.kip.earlier}</option>
              {earlier.map((one) => (
                <option key={one} value={one}>
                  {one.slice(0, 80)}
                </option>
              ))}
            </select>
          ) : null}
        </div>
      </div>
      <Panel title={rows ? text.kip.rows(rows.length) : text.jobs.output}>
        {run.error ? <Failure error={run.error} /> : null}
        {error ? (
          <div role="alert">
            <p>
              {text.kip.refused}: {error.message}
              {error.line ? ` (${text.kip.place(error.line, error.column ?? 1)})` : ""}
            </p>
            {error.hint ? <p>{error.hint}</p> : null}
          </div>
        ) : null}
        {written ? (
          <p>
            <button type="button" disabled={undo.isPending || undo.isSuccess} onClick={() => undo.mutate(written)}>
              {text.kip.undo(number(written))}
            </button>{" "}
            {undo.isSuccess ? <span role="status">{text.kip.undone}</span> : null}
          </p>
        ) : null}
        {undo.error ? <Failure error={undo.error} /> : null}
        {answer && !error ? <Answer value={answer.result ?? null} rows={rows} /> : null}
        {!answer && !run.error ? <Empty>{text.kip.none}</Empty> : null}
      </Panel>
    </>
  );
}

/** The newest entries of a mind's journal; none for who may not read it. */
async function newest(lf: string) {
  const query = { order: "desc", limit: 20 } as const;
  const page = data(api.GET("/v1/nexus/{id}/journal", { params: { path: { id: lf }, query } }));
  return page.then(({ entries }) => entries).catch(() => []);
}

async function head(lf: string): Promise<number> {
  return (await newest(lf))[0]?.seq ?? 0;
}

/** The number of the entry that a command of this person wrote after another entry; `undefined` if it wrote none. */
async function writtenAs(lf: string, command: string, after: number, me: string | undefined) {
  const isIt = (entry: Entry) =>
    entry.seq > after && String(entry.by) === me && (entry.data as { command?: unknown }).command === command;
  return (await newest(lf)).find(isIt)?.seq;
}

const shownAs = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

/** Rows of plain values as a table, and everything else as JSON. */
function Answer({ value, rows }: { value: unknown; rows: unknown[] | undefined }) {
  const text = useText();
  const isTable = rows?.length && rows.every((row) => Array.isArray(row) || typeof row !== "object" || row === null);
  if (!isTable) return <Json value={value} label={text.jobs.output} />;
  return (
    <div className={css.wide}>
      <table>
        <tbody>
          {rows.slice(0, ROWS_MAX).map((row, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the rows of an answer keep their places
            <tr key={at}>
              {(Array.isArray(row) ? row : [row]).map((cell, column) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: as the rows
                <td key={column}>{shownAs(cell)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > ROWS_MAX ? <p>{text.kip.more(rows.length - ROWS_MAX)}</p> : null}
    </div>
  );
}
