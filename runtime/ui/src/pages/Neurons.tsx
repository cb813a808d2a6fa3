// The stored neurons, and one of them: its definition, its memory with the versions, and a trial.
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { api, data } from "../api/client";
import { useFormats, useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel } from "../parts/Panel";
import { Empty, Failure, Found, Loading } from "../parts/States";
import css from "./Neurons.module.css";

const PAGE = 100;

export function Neurons() {
  const text = useText();
  const found = useInfiniteQuery({
    queryKey: ["neurons"],
    queryFn: ({ pageParam }) => data(api.GET("/v1/neurons", { params: { query: { limit: PAGE, after: pageParam } } })),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const neurons = found.data?.pages.flatMap((page) => page.neurons) ?? [];
  return (
    <>
      <Heading title={text.pages.neurons}>
        <CopyMenu json={neurons} path="/v1/neurons" />
      </Heading>
      <Panel title={text.pages.neurons}>
        {found.error ? <Failure error={found.error} retry={() => found.refetch()} /> : null}
        {found.isPending && !found.error ? <Loading /> : null}
        {found.data && !neurons.length ? <Empty>{text.neurons.none}</Empty> : null}
        {neurons.length ? (
          <table>
            <thead>
              <tr>
                <th scope="col">{text.pages.neurons}</th>
                <th scope="col">{text.neurons.kind}</th>
                <th scope="col">{text.neurons.tier}</th>
                <th scope="col">{text.neurons.purpose}</th>
                <th scope="col">{text.neurons.version}</th>
              </tr>
            </thead>
            <tbody>
              {neurons.map((neuron) => (
                <tr key={neuron.id}>
                  <td>
                    <Link to="/neurons/$neuron" params={{ neuron: neuron.id ?? "" }}>
                      {neuron.id}
                    </Link>
                  </td>
                  <td>{neuron.kind}</td>
                  <td>{neuron.tier}</td>
                  <td>{visible(neuron.description ?? "")}</td>
                  <td>{neuron.version}</td>
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

export function Neuron() {
  const { neuron } = useParams({ from: "/neurons/$neuron" });
  return <OneNeuron key={neuron} id={neuron} />;
}

function OneNeuron({ id }: { id: string }) {
  const text = useText();
  const found = useQuery({
    queryKey: ["neuron", id],
    queryFn: () => data(api.GET("/v1/neurons/{id}", { params: { path: { id } } })),
    retry: false,
  });
  return (
    <>
      <Heading title={id}>
        <CopyMenu id={id} json={found.data} path={`/v1/neurons/${id}`} />
      </Heading>
      <Found query={found}>
        {(neuron) => (
          <div className={css.grid}>
            <Panel title={text.neurons.definition}>
              <p>{visible(neuron.description ?? "")}</p>
              <Json value={{ ...neuron, memory: undefined, description: undefined }} label={text.neurons.definition} />
            </Panel>
            <Memory id={id} memory={neuron.memory ?? ""} version={neuron.version} />
            <Versions id={id} now={neuron.version} />
            <Trial id={id} />
          </div>
        )}
      </Found>
    </>
  );
}

function Memory({ id, memory, version }: { id: string; memory: string; version: number }) {
  const text = useText();
  const client = useQueryClient();
  // What is being written stays when somebody else saves; saving is then refused, because it began from an older version.
  const [draft, setDraft] = useState<{ from: number; text: string }>();
  const save = useMutation({
    mutationFn: ({ from, text }: { from: number; text: string }) =>
      data(
        api.PUT("/v1/neurons/{id}/memory", {
          params: { path: { id } },
          body: { memory: text },
          headers: { "if-match": `"${from}"` },
        }),
      ),
    onSuccess: async (saved, sent) => {
      await Promise.all([
        client.invalidateQueries({ queryKey: ["neuron", id] }),
        client.invalidateQueries({ queryKey: ["neuron-versions", id] }),
      ]);
      // What was typed meanwhile stays, and goes on from the new version.
      setDraft((draft) => (draft?.text === sent.text ? undefined : draft && { ...draft, from: saved.version }));
    },
  });
  return (
    <Panel title={text.neurons.memory}>
      <textarea
        className={css.memory}
        aria-label={text.neurons.memory}
        rows={10}
        value={draft?.text ?? memory}
        onChange={(event) => setDraft({ from: draft?.from ?? version, text: event.target.value })}
      />
      {save.error ? <Failure error={save.error} /> : null}
      {draft && draft.from !== version ? <p role="status">{text.neurons.changed}</p> : null}
      <div className={css.acts}>
        <button
          type="button"
          data-kind="main"
          disabled={!draft || save.isPending}
          onClick={() => draft && save.mutate(draft)}
        >
          {text.chat.save}
        </button>
        <button type="button" disabled={!draft} onClick={() => setDraft(undefined)}>
          {text.chat.cancel}
        </button>
      </div>
    </Panel>
  );
}

function Versions({ id, now }: { id: string; now: number }) {
  const text = useText();
  const { moment } = useFormats();
  const [from, setFrom] = useState<number>();
  const versions = useQuery({
    queryKey: ["neuron-versions", id],
    queryFn: () => data(api.GET("/v1/neurons/{id}/versions", { params: { path: { id }, query: { limit: 200 } } })),
    retry: false,
  });
  const diff = useQuery({
    queryKey: ["neuron-diff", id, from, now],
    queryFn: () =>
      data(api.GET("/v1/neurons/{id}/memory/diff", { params: { path: { id }, query: { from: from!, to: now } } })),
    enabled: from !== undefined,
    retry: false,
  });
  return (
    <Panel title={text.neurons.versions}>
      <Found query={versions}>
        {({ versions }) => (
          <ul className={css.versions}>
            {versions.toReversed().map((version) => (
              <li key={`${version.version} ${version.at}`}>
                <button type="button" aria-pressed={version.version === from} onClick={() => setFrom(version.version)}>
                  {text.neurons.version} {version.version}
                </button>{" "}
                {moment(version.at)} · {String(version.by)}
              </li>
            ))}
          </ul>
        )}
      </Found>
      {from === undefined ? null : (
        <Found query={diff}>
          {({ diff }) => (diff ? <Json value={diff} label={text.neurons.diff} /> : <Empty>{text.neurons.same}</Empty>)}
        </Found>
      )}
    </Panel>
  );
}

function Trial({ id }: { id: string }) {
  const text = useText();
  const [input, setInput] = useState("");
  const run = useMutation({
    mutationFn: (input: string) =>
      data(api.POST("/v1/neurons/{id}/invoke", { params: { path: { id } }, body: { input } as never })),
  });
  return (
    <Panel title={text.neurons.trial}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (input.trim() && !run.isPending) run.mutate(input);
        }}
      >
        <textarea
          className={css.memory}
          aria-label={text.neurons.input}
          rows={3}
          value={input}
          onChange={(event) => setInput(event.target.value)}
        />
        <p>{text.neurons.paid}</p>
        <button type="submit" data-kind="main" disabled={!input.trim() || run.isPending}>
          {text.kip.run}
        </button>
      </form>
      {run.error ? <Failure error={run.error} /> : null}
      {run.data ? <Json value={run.data} label={text.jobs.output} /> : null}
    </Panel>
  );
}
