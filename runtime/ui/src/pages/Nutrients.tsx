// The account of a lifeform: what is left, what it cost and by what, and the statement, newest first.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { api, data, type Entry } from "../api/client";
import { useLifeform, useMe, useSpending, useStatement } from "../api/queries";
import { useFormats, useText } from "../i18n";
import { CopyMenu } from "../parts/Copy";
import { Heading, Panel } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import { newId } from "../session/id";
import css from "./Nutrients.module.css";
import { Gauge } from "./Overview";

function TopUp({ lf }: { lf: string }) {
  const text = useText();
  const { number } = useFormats();
  const queries = useQueryClient();
  const [amount, setAmount] = useState("");
  const [memo, setMemo] = useState("");
  // One key a dialog: a double click books once.
  const key = useRef(newId("ui_"));
  const book = useMutation({
    mutationFn: () =>
      data(
        api.POST("/v1/lifeforms/{id}/resources/transactions", {
          params: { path: { id: lf }, header: { "Idempotency-Key": key.current } },
          body: { amount: Number(amount), currency: "tokens", memo },
        }),
      ),
    onSuccess: () => {
      key.current = newId("ui_");
      setAmount("");
      queries.invalidateQueries();
    },
  });
  return (
    <form
      className={css.form}
      onSubmit={(event) => {
        event.preventDefault();
        const tokens = Number(amount);
        const isSure = tokens > 0 || confirm(text.nutrients.sureDebit(number(-tokens)));
        if (Number.isInteger(tokens) && tokens !== 0 && !book.isPending && isSure) book.mutate();
      }}
    >
      <label>
        {text.nutrients.amount}
        <input type="number" step={1} required value={amount} onChange={(event) => setAmount(event.target.value)} />
      </label>
      <label>
        {text.nutrients.memo}
        <input value={memo} onChange={(event) => setMemo(event.target.value)} />
      </label>
      <button type="submit" data-kind="main" disabled={book.isPending}>
        {text.nutrients.book}
      </button>
      <small>{text.nutrients.sign}</small>
      <span role="status">{book.isSuccess ? text.nutrients.booked : ""}</span>
      {book.error ? <Failure error={book.error} /> : null}
    </form>
  );
}

function Spent({ lf }: { lf: string }) {
  const text = useText();
  const { number, money } = useFormats();
  const navigate = useNavigate({ from: "/l/$lf/nutrients" });
  const by = useSearch({ from: "/l/$lf/nutrients" }).by ?? "model";
  const spending = useSpending(lf);
  return (
    <Panel
      title={text.nutrients.spending}
      acts={
        <select
          aria-label={text.nutrients.spending}
          value={by}
          onChange={(event) => navigate({ search: { by: event.target.value }, replace: true })}
        >
          {Object.entries(text.nutrients.kinds).map(([kind, name]) => (
            <option key={kind} value={kind}>
              {name}
            </option>
          ))}
        </select>
      }
    >
      <Found query={spending}>
        {(spending) => {
          const rows = Object.entries(spending.by[by] ?? {}).sort(
            ([, one], [, other]) => other.charged.tokens - one.charged.tokens,
          );
          const most = Math.max(1, ...rows.map(([, tally]) => tally.charged.tokens));
          if (!rows.length) return <Empty>{text.states.empty}</Empty>;
          return (
            <table>
              <thead>
                <tr>
                  <th scope="col">{text.nutrients.name}</th>
                  <th scope="col">{text.nutrients.charged}</th>
                  <th scope="col">
                    <span className="visually-hidden">{text.nutrients.charged}</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {rows.map(([name, tally]) => (
                  <tr key={name}>
                    <td>{name}</td>
                    <td>
                      {number(tally.charged.tokens)} · {money(tally.charged.micro_usd)} ·{" "}
                      {text.nutrients.calls(number(tally.calls))}
                    </td>
                    <td className={css.bar}>
                      <meter min={0} max={most} value={tally.charged.tokens} aria-hidden="true" />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          );
        }}
      </Found>
    </Panel>
  );
}

interface Booking {
  op?: Record<string, { tokens?: number; amount?: { tokens: number }; used?: { tokens: number } | null }>;
  memo?: string;
  balance?: { tokens: number };
}

/** Returns the job for which an entry was booked. */
function jobOf(entry: Entry): string | undefined {
  const named = [...entry.cause].reverse().find((cause) => cause.startsWith("job:"));
  return named?.slice("job:".length).split("/")[0];
}

export function Nutrients() {
  const { lf } = useParams({ from: "/l/$lf/nutrients" });
  const text = useText();
  const { number, moment } = useFormats();
  const me = useMe();
  const life = useLifeform(lf);
  const [before, setBefore] = useState<number[]>([]);
  const statement = useStatement(lf, before.at(-1));
  return (
    <>
      <Heading title={text.pages.nutrients}>
        <CopyMenu json={statement.data} path={`/v1/lifeforms/${lf}/resources`} />
      </Heading>
      <div className={css.page}>
        <Panel title={text.nutrients.balance}>
          <Found query={life}>{(life) => <Gauge life={life} />}</Found>
          {me.data?.roles.includes("operator") ? <TopUp lf={lf} /> : null}
        </Panel>
        <Spent lf={lf} />
        <Panel title={text.nutrients.statement}>
          <Found query={statement}>
            {({ transactions, next }) => (
              <>
                <table>
                  <thead>
                    <tr>
                      <th scope="col">{text.nutrients.at}</th>
                      <th scope="col">{text.nutrients.balance}</th>
                      <th scope="col">{text.nutrients.what}</th>
                      <th scope="col">{text.nutrients.job}</th>
                      <th scope="col">{text.nutrients.by}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {transactions.map((entry) => {
                      const booking = entry.data as Booking;
                      const [op, booked] = Object.entries(booking.op ?? {})[0] ?? [entry.kind, {}];
                      const tokens = booked?.tokens ?? booked?.amount?.tokens ?? booked?.used?.tokens;
                      const job = jobOf(entry);
                      return (
                        <tr key={entry.seq}>
                          <td>
                            <time dateTime={entry.at} title={entry.at}>
                              {moment(entry.at)}
                            </time>
                          </td>
                          <td>{booking.balance ? number(booking.balance.tokens) : null}</td>
                          <td>
                            {op} {tokens ? number(tokens) : null} {booking.memo}
                          </td>
                          <td>
                            {job ? (
                              <Link to="/jobs/$job" params={{ job }}>
                                {job}
                              </Link>
                            ) : null}
                          </td>
                          <td>{entry.by}</td>
                        </tr>
                      );
                    })}
                  </tbody>
                </table>
                {next ? (
                  <button type="button" onClick={() => setBefore([...before, next])}>
                    {text.states.more}
                  </button>
                ) : null}
              </>
            )}
          </Found>
        </Panel>
      </div>
    </>
  );
}
