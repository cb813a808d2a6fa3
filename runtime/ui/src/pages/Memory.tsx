// What a mind remembers, as far as the token may see it: the statements with teller, date and claims. What one told, one takes back here.
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, data } from "../api/client";
import { kip, useMe } from "../api/queries";
import type { components } from "../api/schema";
import { useFormats, useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure, Found, Loading } from "../parts/States";
import css from "./Memory.module.css";

type Statement = components["schemas"]["RememberedStatement"];

const PAGE = 100;

export function Memory() {
  const { q } = useSearch({ from: "/l/$lf/memory" });
  return <Statements key={q} />;
}

function Statements() {
  const { lf } = useParams({ from: "/l/$lf/memory" });
  const { q, who } = useSearch({ from: "/l/$lf/memory" });
  const navigate = useNavigate({ from: "/l/$lf/memory" });
  const text = useText();
  const caller = useMe();
  const me = caller.data?.principal;
  const [words, setWords] = useState(q ?? "");
  const by = who === "all" ? undefined : me;
  const found = useInfiniteQuery({
    queryKey: ["memory", lf, q, by],
    queryFn: ({ pageParam }) =>
      data(
        api.GET("/v1/lifeforms/{id}/memory", {
          params: { path: { id: lf }, query: { about: q, by, limit: PAGE, cursor: pageParam } },
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    enabled: Boolean(me),
    retry: false,
  });
  const statements = found.data?.pages.flatMap((page) => page.statements);
  return (
    <>
      <Heading title={text.pages.memory}>
        <form
          className={css.search}
          onSubmit={(event) => {
            event.preventDefault();
            navigate({ search: { q: words.trim() || undefined, who } });
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
        <select
          aria-label={text.pages.memory}
          value={who ?? "mine"}
          onChange={(event) => navigate({ search: { q, who: event.target.value === "all" ? "all" : undefined } })}
        >
          <option value="mine">{text.memory.mine}</option>
          <option value="all">{text.memory.all}</option>
        </select>
        <CopyMenu json={statements} path={`/v1/lifeforms/${lf}/memory`} />
      </Heading>
      <Panel title={q ? `${text.memory.search}: ${q}` : who === "all" ? text.memory.all : text.memory.about}>
        {caller.error ? <Failure error={caller.error} retry={() => caller.refetch()} /> : null}
        {found.error ? <Failure error={found.error} retry={() => found.refetch()} /> : null}
        {!statements && !found.error && !caller.error ? <Loading /> : null}
        {statements?.length === 0 ? <Empty>{text.memory.none}</Empty> : null}
        {statements?.length ? <Table lf={lf} statements={statements} /> : null}
        {found.hasNextPage ? (
          <button type="button" disabled={found.isFetchingNextPage} onClick={() => found.fetchNextPage()}>
            {text.states.more}
          </button>
        ) : null}
      </Panel>
      <Conflicts lf={lf} />
    </>
  );
}

/** Returns claims without the other direction of those that are shown: who is a friend has a friend. */
function once(claims: Statement["claims"]): Statement["claims"] {
  return claims.filter(
    (claim, at) =>
      !claims
        .slice(0, at)
        .some(
          (other) =>
            other.predicate === claim.predicate && other.subject === claim.object && other.object === claim.subject,
        ),
  );
}

function Table({ lf, statements }: { lf: string; statements: Statement[] }) {
  const text = useText();
  const { moment } = useFormats();
  const me = useMe().data;
  return (
    <div className={css.wide}>
      <table>
        <thead>
          <tr>
            <th scope="col">{text.memory.statement}</th>
            <th scope="col">{text.memory.teller}</th>
            <th scope="col">{text.memory.when}</th>
            <th scope="col">{text.memory.more}</th>
          </tr>
        </thead>
        <tbody>
          {statements.map((one) => {
            const claims = once(one.claims);
            return (
              <tr key={one.id}>
                <td className={css.statement}>
                  {visible(one.statement)}
                  {claims.length ? (
                    <ul className={css.claims} aria-label={text.memory.claims}>
                      {claims.map((claim) => (
                        <li key={`${claim.subject} ${claim.predicate} ${claim.object}`}>
                          {visible(`${claim.subject ?? "?"} ${claim.predicate} ${claim.object ?? "?"}`)}{" "}
                          {claim.status && claim.status !== "active" ? (
                            <State tone="plain">{claim.status}</State>
                          ) : (claim.confidence ?? 1) < 0.5 ? (
                            <State tone="warn">{text.memory.unsure}</State>
                          ) : null}
                        </li>
                      ))}
                    </ul>
                  ) : null}
                </td>
                <td>{one.by}</td>
                <td>
                  {one.stated_at ? moment(one.stated_at) : null}
                  {one.on ? <div>{text.memory.on(one.on)}</div> : null}
                  {one.valid_from || one.valid_until ? (
                    <div>
                      {one.valid_from ?? ""}–{one.valid_until ?? ""}
                    </div>
                  ) : null}
                </td>
                <td>
                  <Link to="/l/$lf/graph" params={{ lf }} search={{ of: one.id }}>
                    {text.pages.graph}
                  </Link>{" "}
                  {one.source?.startsWith("canvas:") ? (
                    <Link to="/l/$lf/why" params={{ lf }} search={{ from: one.source }}>
                      {text.pages.why}
                    </Link>
                  ) : null}{" "}
                  {me && (one.by === me.principal || me.roles.includes("operator")) ? (
                    <Forget lf={lf} id={one.id} statement={one.statement} />
                  ) : null}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** Takes a statement back: first the daemon says what goes with it. */
function Forget({ lf, id, statement }: { lf: string; id: string; statement: string }) {
  const text = useText();
  const client = useQueryClient();
  const ask = (dry_run: boolean) =>
    data(
      api.POST("/v1/lifeforms/{id}/memory/forget", {
        params: { path: { id: lf } },
        body: { facts: [id], dry_run },
      }),
    );
  const forget = useMutation({
    mutationFn: async () => {
      const { forgotten } = await ask(true);
      const all = forgotten.map((one) => `“${one.statement}”`).join("\n");
      if (!confirm(`${text.memory.sureForget}\n${all}`)) return null;
      return ask(false);
    },
    onSuccess: (done) => (done ? client.invalidateQueries({ queryKey: ["memory", lf] }) : undefined),
  });
  return (
    <>
      <button
        type="button"
        data-kind="bad"
        aria-label={`${text.memory.forget}: ${statement}`}
        disabled={forget.isPending}
        onClick={() => forget.mutate()}
      >
        {text.memory.forget}
      </button>
      {forget.error ? <Failure error={forget.error} /> : null}
    </>
  );
}

/** What was told differently, as far as the token sees it. */
function Conflicts({ lf }: { lf: string }) {
  const text = useText();
  const found = useQuery({
    queryKey: ["memory", lf, "conflicts"],
    queryFn: async () => {
      const answer = await kip(lf, "DESCRIBE CONFLICTS", {}, { readonly: true });
      return Array.isArray(answer.result) ? answer.result : [];
    },
    retry: false,
  });
  return (
    <Panel title={text.memory.conflicts}>
      <Found query={found}>
        {(conflicts) =>
          conflicts.length ? (
            <Json value={conflicts} label={text.memory.conflicts} />
          ) : (
            <Empty>{text.memory.noConflicts}</Empty>
          )
        }
      </Found>
    </Panel>
  );
}
