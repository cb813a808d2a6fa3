// The shared knowledge: records, skills and resources, as far as the token may see them.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { api, data } from "../api/client";
import { useMe } from "../api/queries";
import { useFormats, useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import css from "./Knowledge.module.css";
import { TABS, type Tab } from "./tabs";

/** The number of skills on a page. */
const SKILLS = 50;

export function Knowledge() {
  const { tab = "records" } = useSearch({ from: "/knowledge" });
  const navigate = useNavigate({ from: "/knowledge" });
  const text = useText();
  const paths = { records: "/api/knowledge", skills: "/v1/skills", resources: "/api/resource" };
  return (
    <>
      <Heading title={text.pages.knowledge}>
        <select
          aria-label={text.pages.knowledge}
          value={tab}
          onChange={(event) => navigate({ search: { tab: event.target.value as Tab } })}
        >
          {TABS.map((tab) => (
            <option key={tab} value={tab}>
              {text.knowledge[tab]}
            </option>
          ))}
        </select>
        <CopyMenu path={paths[tab]} />
      </Heading>
      {tab === "records" ? <Records /> : tab === "skills" ? <Skills /> : <Resources />}
    </>
  );
}

/** A cursor with the way back. */
function useCursor() {
  const [cursors, set] = useState<string[]>([]);
  return {
    cursor: cursors.at(-1),
    forward: (next: string) => set([...cursors, next]),
    back: cursors.length ? () => set(cursors.slice(0, -1)) : undefined,
  };
}

function Turn({ pages, next }: { pages: ReturnType<typeof useCursor>; next: string | null | undefined }) {
  const text = useText();
  return (
    <div className={css.turn}>
      {pages.back ? (
        <button type="button" onClick={pages.back}>
          ← {text.states.back}
        </button>
      ) : null}
      {next ? (
        <button type="button" onClick={() => pages.forward(next)}>
          {text.states.further}
        </button>
      ) : null}
    </div>
  );
}

function Item({ title, facts, children }: { title: string; facts: ReactNode; children: ReactNode }) {
  return (
    <li className={css.item}>
      <details>
        <summary>
          <strong>{visible(title)}</strong> <span className={css.facts}>{facts}</span>
        </summary>
        {children}
      </details>
    </li>
  );
}

function Records() {
  const text = useText();
  const { q } = useSearch({ from: "/knowledge" });
  const navigate = useNavigate({ from: "/knowledge" });
  const { moment, number } = useFormats();
  const me = useMe().data;
  const client = useQueryClient();
  const [words, setWords] = useState(q ?? "");
  const pages = useCursor();
  const listed = useQuery({
    queryKey: ["records", pages.cursor],
    queryFn: () => data(api.GET("/api/knowledge", { params: { query: { limit: 50, cursor: pages.cursor } } })),
    enabled: !q,
    retry: false,
  });
  const hits = useQuery({
    queryKey: ["records", "search", q],
    queryFn: () => data(api.GET("/api/knowledge/search", { params: { query: { q } } })),
    enabled: Boolean(q),
    retry: false,
  });
  const remove = useMutation({
    mutationFn: (id: string) => data(api.DELETE("/api/knowledge/{id}", { params: { path: { id } } })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["records"] }),
  });
  const mayRemove = (owner: string) => me?.principal === owner || Boolean(me?.roles.includes("operator"));
  const acts = (id: string, owner: string, task: string) =>
    mayRemove(owner) ? (
      <button
        type="button"
        data-kind="bad"
        disabled={remove.isPending}
        onClick={() => confirm(text.knowledge.sure(task)) && remove.mutate(id)}
      >
        {text.goals.remove}
      </button>
    ) : null;
  return (
    <Panel title={text.knowledge.records}>
      <form
        className={css.search}
        onSubmit={(event) => {
          event.preventDefault();
          navigate({ search: (before) => ({ ...before, q: words.trim() || undefined }) });
        }}
      >
        <input
          type="search"
          aria-label={text.memory.search}
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        <button type="submit">{text.memory.search}</button>
      </form>
      {remove.error ? <Failure error={remove.error} /> : null}
      {q ? (
        <Found query={hits}>
          {({ results }) =>
            results.length ? (
              <ul className={css.list}>
                {results.map((hit) => (
                  <Item key={hit.id} title={hit.task} facts={`${hit.types.join(", ")} · ${hit.owner}`}>
                    <Json value={hit.content} label={text.inbox.content} />
                    {acts(hit.id, hit.owner, hit.task)}
                  </Item>
                ))}
              </ul>
            ) : (
              <Empty>{text.knowledge.none}</Empty>
            )
          }
        </Found>
      ) : (
        <Found query={listed}>
          {({ results, next_cursor }) => (
            <>
              {results.length ? (
                <ul className={css.list}>
                  {results.map((record) => (
                    <Item
                      key={record.id}
                      title={record.task}
                      facts={
                        <>
                          {record.types.join(", ")} · {record.owner} · {moment(record.updated_at)}{" "}
                          <State tone={record.status === "active" ? "good" : "plain"}>{record.status}</State>
                        </>
                      }
                    >
                      <Json value={record.content} label={text.inbox.content} />
                      <p>
                        {text.about.scopes}: {record.scopes.join(", ")} · {text.neurons.version}{" "}
                        {number(record.version)}
                      </p>
                      {acts(record.id, record.owner, record.task)}
                    </Item>
                  ))}
                </ul>
              ) : (
                <Empty>{text.knowledge.none}</Empty>
              )}
              <Turn pages={pages} next={next_cursor} />
            </>
          )}
        </Found>
      )}
    </Panel>
  );
}

function Skills() {
  const text = useText();
  const pages = useCursor();
  const offset = Number(pages.cursor ?? 0);
  const found = useQuery({
    queryKey: ["skills", offset],
    queryFn: () => data(api.GET("/v1/skills", { params: { query: { limit: SKILLS, offset } } })),
    retry: false,
  });
  return (
    <Panel title={text.knowledge.skills}>
      <Found query={found}>
        {(page) => {
          const skills = page.data as unknown as { id: string; title?: string; name?: string; owner?: string }[];
          const next = offset + skills.length < page.total ? String(offset + skills.length) : undefined;
          return (
            <>
              {skills.length ? (
                <ul className={css.list}>
                  {skills.map((skill) => (
                    <Item key={skill.id} title={skill.title ?? skill.name ?? skill.id} facts={skill.owner ?? ""}>
                      <Json value={skill} label={skill.id} />
                    </Item>
                  ))}
                </ul>
              ) : (
                <Empty>{text.knowledge.none}</Empty>
              )}
              <Turn pages={pages} next={next} />
            </>
          );
        }}
      </Found>
    </Panel>
  );
}

function Resources() {
  const text = useText();
  const { moment } = useFormats();
  const pages = useCursor();
  const found = useQuery({
    queryKey: ["resources", pages.cursor],
    queryFn: () => data(api.GET("/api/resource", { params: { query: { after: pages.cursor } } })),
    retry: false,
  });
  return (
    <Panel title={text.knowledge.resources}>
      <Found query={found}>
        {({ results, next_after }) => (
          <>
            {results.length ? (
              <ul className={css.list}>
                {results.map((resource) => (
                  <Item
                    key={resource.id}
                    title={resource.title}
                    facts={
                      <>
                        {resource.content_type} · {resource.owner} · {moment(resource.updated_at)}{" "}
                        {resource.has_secure_body ? <State tone="warn">{text.knowledge.sealed}</State> : null}
                      </>
                    }
                  >
                    <p>
                      <code>{resource.id}</code>
                    </p>
                    {resource.body ? <Json value={resource.body} label={text.inbox.content} /> : null}
                    {resource.has_secure_body ? <Reveal id={resource.id} /> : null}
                  </Item>
                ))}
              </ul>
            ) : (
              <Empty>{text.knowledge.none}</Empty>
            )}
            <Turn pages={pages} next={next_after} />
          </>
        )}
      </Found>
    </Panel>
  );
}

/** The sealed part of a resource: it is shown to those who may read it, for a reason, which the daemon records. */
function Reveal({ id }: { id: string }) {
  const text = useText();
  const [reason, setReason] = useState("");
  const reveal = useMutation({
    mutationFn: () =>
      data(api.GET("/api/resource/{id}", { params: { path: { id }, query: { reveal: 1, why: reason.trim() } } })),
  });
  const shown = reveal.data as { secure_body?: string } | undefined;
  return (
    <form
      className={css.search}
      onSubmit={(event) => {
        event.preventDefault();
        if (reason.trim() && !reveal.isPending) reveal.mutate();
      }}
    >
      <input
        aria-label={text.knowledge.reason}
        placeholder={text.knowledge.reason}
        value={reason}
        onChange={(event) => setReason(event.target.value)}
      />
      <button type="submit" disabled={!reason.trim() || reveal.isPending}>
        {text.knowledge.reveal}
      </button>
      {reveal.error ? <Failure error={reveal.error} /> : null}
      {shown ? <Json value={shown.secure_body ?? ""} label={text.knowledge.sealed} /> : null}
    </form>
  );
}
