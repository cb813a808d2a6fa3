// The causes and the effects of an entry, from the root to what came of it.
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { type Step, useTrace } from "../api/queries";
import { useFormats, useText } from "../i18n";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel } from "../parts/Panel";
import { Empty, Found } from "../parts/States";
import css from "./Why.module.css";

/** Returns what a step is about, in a few words. */
function gist(step: Step): string {
  const data = (step.data ?? {}) as Record<string, unknown>;
  const patch = Array.isArray(data.patch)
    ? (data.patch as { path?: string; value?: { content?: string } | string }[])
    : [];
  const contents = patch.map(({ path, value }) => {
    if (typeof value === "string") return path?.endsWith("/content") ? value : undefined;
    return value?.content;
  });
  const content = contents.find(Boolean);
  const parts = [data.fact, data.step, data.stage, data.status, data.model, data.message, content, data.memo].filter(
    (part) => typeof part === "string",
  );
  return parts.join(" · ").slice(0, 240);
}

function Entry({ lf, step, isHere }: { lf: string; step: Step; isHere?: boolean }) {
  const { moment } = useFormats();
  return (
    <li className={css.entry} data-here={isHere}>
      <div className={css.head}>
        <Link to="/l/$lf/why" params={{ lf }} search={{ from: step.ref }}>
          {step.ref}
        </Link>
        <span>{step.kind}</span>
        <span>{step.by}</span>
        <time dateTime={step.at}>{moment(step.at)}</time>
      </div>
      <p>{gist(step)}</p>
      <details>
        <summary>JSON</summary>
        <Json value={step} label={step.ref} />
      </details>
    </li>
  );
}

export function Why() {
  const { from } = useSearch({ from: "/l/$lf/why" });
  return <Causes key={from} />;
}

function Causes() {
  const { lf } = useParams({ from: "/l/$lf/why" });
  const { from } = useSearch({ from: "/l/$lf/why" });
  const navigate = useNavigate({ from: "/l/$lf/why" });
  const text = useText();
  const [reference, setReference] = useState(from ?? "");
  const trace = useTrace(lf, from);
  return (
    <>
      <Heading title={text.pages.why}>
        <form
          className={css.ask}
          onSubmit={(event) => {
            event.preventDefault();
            navigate({ search: { from: reference.trim() || undefined } });
          }}
        >
          <input
            aria-label={text.why.reference}
            placeholder={text.why.reference}
            value={reference}
            onChange={(event) => setReference(event.target.value)}
          />
          <button type="submit">{text.why.ask}</button>
        </form>
        <CopyMenu
          id={from}
          json={trace.data}
          path={from ? `/v1/lifeforms/${lf}/trace?from=${encodeURIComponent(from)}` : undefined}
        />
      </Heading>
      {from ? (
        <Found query={trace}>
          {(walk) => (
            <div className={css.page}>
              <Panel title={text.why.roots}>
                {walk.roots.length ? (
                  <ul>
                    {walk.roots.map((one) => (
                      <li key={one}>{one}</li>
                    ))}
                  </ul>
                ) : (
                  <Empty>{text.states.empty}</Empty>
                )}
              </Panel>
              <Panel title={text.why.back}>
                <ol className={css.list}>
                  {[...walk.back].map((step) => (
                    <Entry key={step.ref} lf={lf} step={step} />
                  ))}
                </ol>
              </Panel>
              <Panel title={text.why.from}>
                <ol className={css.list}>
                  <Entry lf={lf} step={walk.from} isHere />
                </ol>
              </Panel>
              <Panel title={text.why.forward}>
                <ol className={css.list}>
                  {walk.forward.map((step) => (
                    <Entry key={step.ref} lf={lf} step={step} />
                  ))}
                </ol>
                {walk.more ? <p>{text.why.more}</p> : null}
              </Panel>
            </div>
          )}
        </Found>
      ) : (
        <Empty>{text.why.none}</Empty>
      )}
    </>
  );
}
