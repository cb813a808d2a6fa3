// The model calls of a lifeform, newest first, and one of them: what fills its prompt, what came back, what it cost.
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { type Call, paired, useCalls } from "../calls/calls";
import { filledBy, partsOf } from "../calls/parts";
import { useFormats, useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure, Loading } from "../parts/States";
import css from "./Calls.module.css";

/** The step of a job in a reference such as `job:j/answer`. */
const stepOf = (cause: string | undefined) =>
  cause?.startsWith("job:") ? cause.slice(4).split("/").slice(1).join("/") : undefined;
const jobOf = (cause: string | undefined) => (cause?.startsWith("job:") ? cause.slice(4).split("/")[0] : undefined);

export function Calls() {
  const { lf } = useParams({ from: "/l/$lf/calls" });
  const { call: chosen, step } = useSearch({ from: "/l/$lf/calls" });
  const navigate = useNavigate({ from: "/l/$lf/calls" });
  const text = useText();
  const { moment, number, money } = useFormats();
  const found = useCalls(lf);
  const all = useMemo(() => paired(found.data?.pages.flatMap((page) => page.calls) ?? []), [found.data]);
  const steps = [...new Set(all.map((call) => stepOf(call.cause)).filter((step) => step !== undefined))].sort();
  const calls = step ? all.filter((call) => stepOf(call.cause) === step) : all;
  const one = all.find((call) => call.id === chosen);
  return (
    <>
      <Heading title={text.pages.calls}>
        <select
          aria-label={text.jobs.step}
          value={step ?? ""}
          onChange={(event) => navigate({ search: { step: event.target.value || undefined }, replace: true })}
        >
          <option value="">{text.jobs.all}</option>
          {steps.map((step) => (
            <option key={step}>{step}</option>
          ))}
        </select>
        <CopyMenu id={one?.id} json={one ?? calls} path={`/v1/lifeforms/${lf}/calls?order=desc`} />
      </Heading>
      {one ? <OneCall lf={lf} call={one} /> : null}
      <Panel title={text.calls.newest}>
        {found.error ? <Failure error={found.error} retry={() => found.refetch()} /> : null}
        {found.isPending && !found.error ? <Loading /> : null}
        {found.data && !calls.length ? <Empty>{text.calls.none}</Empty> : null}
        {calls.length ? (
          <div className={css.wide}>
            <table>
              <thead>
                <tr>
                  <th scope="col">{text.live.at}</th>
                  <th scope="col">{text.jobs.step}</th>
                  <th scope="col">{text.nutrients.kinds.model}</th>
                  <th scope="col">{text.calls.prompt}</th>
                  <th scope="col">{text.calls.answer}</th>
                  <th scope="col">{text.nutrients.charged}</th>
                </tr>
              </thead>
              <tbody>
                {calls.map((call) => (
                  <tr key={call.id} aria-current={call.id === chosen ? "true" : undefined}>
                    <td>
                      <Link to="/l/$lf/calls" params={{ lf }} search={{ call: call.id, step }}>
                        {moment(call.at)}
                      </Link>
                    </td>
                    <td>{stepOf(call.cause) ?? call.cause}</td>
                    <td>{call.model}</td>
                    <td>{call.end?.usage ? number(call.end.usage.prompt_tokens) : ""}</td>
                    <td>
                      <Outcome call={call} />
                    </td>
                    <td>
                      {call.end?.charged
                        ? `${number(call.end.charged.tokens)} · ${money(call.end.charged.micro_usd)}`
                        : ""}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        ) : null}
        {found.hasNextPage ? (
          <button type="button" disabled={found.isFetchingNextPage} onClick={() => found.fetchNextPage()}>
            {text.states.more}
          </button>
        ) : null}
      </Panel>
    </>
  );
}

function Outcome({ call }: { call: Call }) {
  const text = useText();
  const { number } = useFormats();
  if (!call.end) return <State tone="warn">{text.calls.open}</State>;
  if (call.end.error) return <State tone="bad">{text.live.states.failed}</State>;
  return <State tone="good">{number(call.end.usage?.completion_tokens ?? 0)}</State>;
}

function OneCall({ lf, call }: { lf: string; call: Call }) {
  const text = useText();
  const { number, money, moment } = useFormats();
  const parts = useMemo(() => partsOf(call.messages), [call]);
  const filled = filledBy(parts);
  const total = filled.reduce((sum, [, tokens]) => sum + tokens, 0);
  const job = jobOf(call.cause);
  const took = call.end ? Date.parse(call.end.at) - Date.parse(call.at) : undefined;
  return (
    <Panel title={`${stepOf(call.cause) ?? call.id}, ${moment(call.at)}`}>
      <p className={css.facts}>
        <span>
          {call.provider} · {call.model}
        </span>
        {took === undefined ? null : <span>{number(took)} ms</span>}
        {call.end?.charged ? (
          <span>
            {text.nutrients.charged}: {number(call.end.charged.tokens)} · {money(call.end.charged.micro_usd)}
          </span>
        ) : null}
        {call.tools ? <span>{text.calls.tools(number(call.tools))}</span> : null}
        {job ? (
          <Link to="/jobs/$job" params={{ job }}>
            {text.nutrients.job} {job}
          </Link>
        ) : null}
        {call.cause ? (
          <Link to="/l/$lf/why" params={{ lf }} search={{ from: call.cause }}>
            {text.pages.why}
          </Link>
        ) : null}
      </p>
      <h3>{text.calls.filled(number(total))}</h3>
      <table className={css.parts}>
        <tbody>
          {filled.map(([name, tokens]) => (
            <tr key={name}>
              <th scope="row">{text.calls.parts[name]}</th>
              <td>{number(tokens)}</td>
              <td className={css.bar}>
                <meter min={0} max={total} value={tokens} aria-label={text.calls.parts[name]} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <h3>{text.calls.prompt}</h3>
      {parts.map((part, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a recorded prompt keep their places
        <details key={at} open={part.name === "said" || part.name === "notes"}>
          <summary>
            {text.calls.parts[part.name]} · {number(part.tokens)}
          </summary>
          <Json value={part.text} label={text.calls.parts[part.name]} />
        </details>
      ))}
      <h3>{text.calls.answer}</h3>
      {call.end?.error ? <p role="alert">{visible(call.end.error)}</p> : null}
      {call.end?.text ? <Json value={call.end.text} label={text.calls.answer} /> : null}
      {call.end?.toolCalls.length ? <Json value={call.end.toolCalls} label={text.calls.toolCalls} /> : null}
      {call.end ? null : <Empty>{text.calls.open}</Empty>}
    </Panel>
  );
}
