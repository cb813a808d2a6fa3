// The fascicles, and one of them: its drawing, its nodes, its definition as an editor with faults at their places, and a dry run.
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { api, data, Problem } from "../api/client";
import type { components } from "../api/schema";
import { useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure, Found, Loading } from "../parts/States";
import { type Drawn, FascicleGraph, NODES_MAX } from "./FascicleGraph";
import css from "./Fascicles.module.css";

type Defined = components["schemas"]["DefinedFascicle"];
type Fault = components["schemas"]["Fault"];

const PAGE = 100;
const CHECK_AFTER_MS = 400;

export function Fascicles() {
  const text = useText();
  const found = useInfiniteQuery({
    queryKey: ["fascicles"],
    queryFn: ({ pageParam }) =>
      data(api.GET("/v1/fascicles", { params: { query: { limit: PAGE, after: pageParam } } })),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const fascicles = found.data?.pages.flatMap((page) => page.fascicles) ?? [];
  return (
    <>
      <Heading title={text.pages.fascicles}>
        <CopyMenu json={fascicles} path="/v1/fascicles" />
      </Heading>
      <Panel title={text.pages.fascicles}>
        {found.error ? <Failure error={found.error} retry={() => found.refetch()} /> : null}
        {found.isPending && !found.error ? <Loading /> : null}
        {fascicles.length ? (
          <table>
            <thead>
              <tr>
                <th scope="col">{text.jobs.fascicle}</th>
                <th scope="col">{text.neurons.purpose}</th>
                <th scope="col">{text.fascicles.nodes}</th>
                <th scope="col">{text.neurons.version}</th>
              </tr>
            </thead>
            <tbody>
              {fascicles.map((fascicle) => (
                <tr key={fascicle.id}>
                  <td>
                    <Link to="/fascicles/$fascicle" params={{ fascicle: fascicle.id ?? "" }}>
                      {fascicle.id}
                    </Link>
                  </td>
                  <td>{visible(fascicle.description ?? "")}</td>
                  <td>{fascicle.nodes.length}</td>
                  <td>{fascicle.shipped ? text.fascicles.shipped : fascicle.version}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : null}
        {found.hasNextPage ? (
          <button type="button" onClick={() => found.fetchNextPage()}>
            {text.states.further}
          </button>
        ) : null}
      </Panel>
    </>
  );
}

export function Fascicle() {
  const { fascicle } = useParams({ from: "/fascicles/$fascicle" });
  return <OneFascicle key={fascicle} id={fascicle} />;
}

function OneFascicle({ id }: { id: string }) {
  const found = useQuery({
    queryKey: ["fascicle-definition", id],
    queryFn: () => data(api.GET("/v1/fascicles/{id}", { params: { path: { id } } })),
    retry: false,
  });
  return (
    <>
      <Heading title={id}>
        <CopyMenu id={id} json={found.data} path={`/v1/fascicles/${id}`} />
      </Heading>
      <Found query={found}>{(fascicle) => <Editor stored={fascicle} />}</Found>
    </>
  );
}

/** The definition as it is written, without what the daemon adds. */
function written({ version: _, shipped: __, ...spec }: Defined): string {
  return JSON.stringify(spec, null, 2);
}

function parsed(source: string): { spec?: Drawn & Record<string, unknown>; error?: string } {
  try {
    const spec = JSON.parse(source);
    if (!spec || typeof spec !== "object" || !Array.isArray(spec.nodes)) return { error: "nodes" };
    return { spec };
  } catch (error) {
    return { error: error instanceof Error ? error.message : "" };
  }
}

function Editor({ stored }: { stored: Defined }) {
  const text = useText();
  const client = useQueryClient();
  const navigate = useNavigate();
  const [draft, setDraft] = useState<{ from: number; source: string }>();
  const [node, choose] = useState<string>();
  const source = draft?.source ?? written(stored);
  const { spec, error } = useMemo(() => parsed(source), [source]);
  const [checked, setChecked] = useState(source);
  useEffect(() => {
    const timer = setTimeout(() => setChecked(source), CHECK_AFTER_MS);
    return () => clearTimeout(timer);
  }, [source]);
  const check = useQuery({
    queryKey: ["fascicle-check", checked],
    queryFn: () => data(api.POST("/v1/fascicles/check", { body: parsed(checked).spec as never })),
    enabled: draft !== undefined && parsed(checked).spec !== undefined,
    retry: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const save = useMutation({
    mutationFn: ({ from, source }: { from: number; source: string }) => {
      const body = parsed(source).spec as never;
      const wanted = String(parsed(source).spec?.id ?? "");
      // A shipped definition is not changed; under another id it becomes one's own.
      return wanted === stored.id
        ? data(
            api.PUT("/v1/fascicles/{id}", {
              params: { path: { id: stored.id ?? "" } },
              body,
              headers: { "if-match": `"${from}"` },
            }),
          )
        : data(api.POST("/v1/fascicles", { body }));
    },
    onSuccess: async (saved, sent) => {
      await client.invalidateQueries({ queryKey: ["fascicle-definition", saved.id] });
      // What was typed meanwhile stays, and goes on from the new version.
      setDraft((draft) => (draft?.source === sent.source ? undefined : draft && { ...draft, from: saved.version }));
      await client.invalidateQueries({ queryKey: ["fascicles"] });
      if (saved.id !== stored.id) await navigate({ to: "/fascicles/$fascicle", params: { fascicle: saved.id ?? "" } });
    },
  });
  const faults: Fault[] = check.data?.faults ?? [];
  const nodeAt = (path: string) => {
    const at = /^nodes\[(\d+)\]/.exec(path)?.[1];
    return at === undefined ? undefined : spec?.nodes[Number(at)]?.id;
  };
  const chosen = spec?.nodes.find((one) => one.id === node);
  const isConflict = save.error instanceof Problem && save.error.status === 409;
  return (
    <>
      <p>{visible(stored.description ?? "")}</p>
      <Panel title={text.fascicles.drawing}>
        {spec && spec.nodes.length <= NODES_MAX ? (
          <FascicleGraph fascicle={spec} activity={undefined} chosen={node} choose={choose} />
        ) : (
          <Empty>{error ?? text.live.tooLarge(String(spec?.nodes.length))}</Empty>
        )}
        <details>
          <summary>{text.live.outline}</summary>
          <ol>
            {spec?.nodes.map((one, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: two nodes may have one id while it is written
              <li key={at}>
                <button type="button" aria-pressed={one.id === node} onClick={() => choose(one.id)}>
                  {one.id}
                </button>{" "}
                {faults.some((fault) => nodeAt(fault.path) === one.id) ? (
                  <State tone="bad">{text.fascicles.faulty}</State>
                ) : null}
              </li>
            ))}
          </ol>
        </details>
        {chosen ? <Json value={chosen} label={chosen.id} /> : null}
      </Panel>
      <div className={css.grid}>
        <Panel title={text.neurons.definition}>
          {stored.shipped ? <p>{text.fascicles.readOnly}</p> : null}
          <textarea
            className={css.source}
            aria-label={text.neurons.definition}
            spellCheck={false}
            rows={24}
            value={source}
            onChange={(event) => setDraft({ from: draft?.from ?? stored.version, source: event.target.value })}
          />
          {error ? <p role="alert">{error}</p> : null}
          {draft ? (
            <div role="status">
              {check.error ? <Failure error={check.error} /> : null}
              {faults.length === 0 && check.data ? <State tone="good">{text.fascicles.well}</State> : null}
              <ul className={css.faults}>
                {faults.map((fault) => {
                  const at = nodeAt(fault.path);
                  return (
                    <li key={`${fault.path} ${fault.reason}`}>
                      {at ? (
                        <button type="button" onClick={() => choose(at)}>
                          {at}
                        </button>
                      ) : null}{" "}
                      <code>{fault.path}</code> {fault.reason}. {fault.cure}.
                    </li>
                  );
                })}
              </ul>
            </div>
          ) : null}
          {save.error ? <Failure error={save.error} /> : null}
          {isConflict ? <p>{text.neurons.changed}</p> : null}
          <div className={css.acts}>
            <button
              type="button"
              data-kind="main"
              disabled={!draft || !spec || faults.length > 0 || save.isPending}
              onClick={() => draft && save.mutate(draft)}
            >
              {text.chat.save}
            </button>
            <button type="button" disabled={!draft} onClick={() => setDraft(undefined)}>
              {text.chat.cancel}
            </button>
          </div>
        </Panel>
        <DryRun id={stored.id ?? ""} spec={draft ? spec : undefined} isWell={faults.length === 0 && !error} />
      </div>
    </>
  );
}

function DryRun({ id, spec, isWell }: { id: string; spec: unknown; isWell: boolean }) {
  const text = useText();
  const [input, setInput] = useState("Hello");
  const [script, setScript] = useState("{}");
  const run = useMutation({
    mutationFn: () =>
      data(
        api.POST("/v1/fascicles/{id}/dry-run", {
          params: { path: { id } },
          body: { input, script: JSON.parse(script), ...(spec ? { spec } : {}) } as never,
        }),
      ),
  });
  const isScript = useMemo(() => {
    try {
      return typeof JSON.parse(script) === "object";
    } catch {
      return false;
    }
  }, [script]);
  return (
    <Panel title={text.kip.dryRun}>
      <p>{text.fascicles.free}</p>
      <form
        className={css.form}
        onSubmit={(event) => {
          event.preventDefault();
          if (isScript && !run.isPending) run.mutate();
        }}
      >
        <label>
          {text.neurons.input}
          <textarea rows={2} value={input} onChange={(event) => setInput(event.target.value)} />
        </label>
        <label>
          {text.fascicles.script}
          <textarea
            rows={4}
            spellCheck={false}
            value={script}
            aria-invalid={!isScript}
            onChange={(event) => setScript(event.target.value)}
          />
        </label>
        <button type="submit" disabled={!isScript || !isWell || run.isPending}>
          {text.kip.dryRun}
        </button>
      </form>
      {run.error ? <Failure error={run.error} /> : null}
      {run.data ? (
        <>
          <p role="status">
            <State tone={run.data.status === "completed" ? "good" : "bad"}>{text.jobs.states[run.data.status]}</State>{" "}
            {run.data.error}
          </p>
          <ol>
            {run.data.steps.map((step, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: the steps are in the order of their execution
              <li key={at}>
                {step.step} {text.live.states[step.what] ?? step.what}
              </li>
            ))}
          </ol>
          <Json value={run.data.output} label={text.jobs.output} />
        </>
      ) : null}
    </Panel>
  );
}
