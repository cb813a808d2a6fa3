// What a mind remembers, as far as the token may see it: the statements, with teller, date and state.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { Problem } from "../api/client";
import { kip, useMe } from "../api/queries";
import { useFormats, useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import css from "./Memory.module.css";

const LATEST = `FIND(?f) WHERE { ?f {type: "Fact"} } ORDER BY ?f.metadata._updated_at DESC LIMIT 200`;
const OF = `FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.author == $who) } ORDER BY ?f.metadata._updated_at DESC LIMIT 200`;
const SEARCH = `SEARCH CONCEPT $words WITH TYPE "Fact" LIMIT 50`;

interface Fact {
  id: string;
  attributes: { statement?: string; stated_at?: string };
  metadata: { author?: string; status?: string; source?: string };
}

export function Memory() {
  const { q } = useSearch({ from: "/l/$lf/memory" });
  return <Statements key={q} />;
}

function Statements() {
  const { lf } = useParams({ from: "/l/$lf/memory" });
  const { q, who } = useSearch({ from: "/l/$lf/memory" });
  const navigate = useNavigate({ from: "/l/$lf/memory" });
  const text = useText();
  const { moment } = useFormats();
  const caller = useMe();
  const me = caller.data?.principal;
  const [words, setWords] = useState(q ?? "");
  const command = q ? SEARCH : who === "all" ? LATEST : OF;
  const parameters = q ? { words: q } : who === "all" ? {} : { who: me };
  const found = useQuery({
    queryKey: ["facts", lf, q, who, me],
    queryFn: () => kip(lf, command, parameters, { readonly: true }),
    enabled: Boolean(me),
    retry: false,
  });
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
        <CopyMenu json={found.data} />
      </Heading>
      <Panel title={q ? `${text.memory.search}: ${q}` : who === "all" ? text.memory.all : text.memory.about}>
        {caller.error ? <Failure error={caller.error} retry={() => caller.refetch()} /> : null}
        <Found query={found}>
          {({ result, error }) => {
            if (error)
              return <Failure error={new Problem(422, error.code ?? "kip", error.message ?? "", error.hint)} />;
            const all = (Array.isArray(result) ? result : []) as Fact[];
            const facts = who === "all" ? all : all.filter((fact) => fact.metadata.author === me);
            if (!facts.length) return <Empty>{text.memory.none}</Empty>;
            return (
              <table>
                <thead>
                  <tr>
                    <th scope="col">{text.memory.statement}</th>
                    <th scope="col">{text.memory.teller}</th>
                    <th scope="col">{text.memory.when}</th>
                    <th scope="col">{text.memory.status}</th>
                  </tr>
                </thead>
                <tbody>
                  {facts.map((fact) => {
                    const status = fact.metadata.status ?? "active";
                    return (
                      <tr key={fact.id}>
                        <td className={css.statement}>{visible(fact.attributes.statement ?? "")}</td>
                        <td>{fact.metadata.author}</td>
                        <td>{fact.attributes.stated_at ? moment(fact.attributes.stated_at) : null}</td>
                        <td>
                          <State tone={status === "active" ? "good" : "plain"}>
                            {status === "active" ? text.memory.holds : status}
                          </State>{" "}
                          {fact.metadata.source?.startsWith("canvas:") ? (
                            <Link to="/l/$lf/why" params={{ lf }} search={{ from: fact.metadata.source }}>
                              {text.pages.why}
                            </Link>
                          ) : null}
                        </td>
                      </tr>
                    );
                  })}
                </tbody>
              </table>
            );
          }}
        </Found>
      </Panel>
    </>
  );
}
