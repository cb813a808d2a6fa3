// What waits for a decision of a person: each call with its exact arguments and the origin of each.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { type Approval, api, data } from "../api/client";
import { useApprovals } from "../api/queries";
import { useFormats, useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import css from "./Inbox.module.css";

const SETTLES_MS = 1_000;

/** Returns the origins of an argument and of its parts, whose places are JSON Pointers. */
function originsOf(origins: Record<string, unknown>, name: string): string {
  const place = `/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
  const own = Object.entries(origins).filter(([at]) => at === place || at.startsWith(`${place}/`));
  const said = own.map(([at, origin]) =>
    `${at.slice(place.length)} ${JSON.stringify(origin).replaceAll('"', "")}`.trim(),
  );
  return [...new Set(said)].join("; ") || "–";
}

/** Returns the arguments of a call by name; those that are no object have no names. */
function argumentsOf(value: unknown): [string, unknown][] {
  const isNamed = typeof value === "object" && value !== null && !Array.isArray(value);
  return isNamed ? Object.entries(value) : [["", value]];
}

interface Locking {
  /** `true` just after a decision: the next panel has moved under the pointer. */
  isLocked: boolean;
  lock: () => void;
}

function Waiting({ approval, isLocked, lock }: { approval: Approval } & Locking) {
  const text = useText();
  const { moment } = useFormats();
  const queries = useQueryClient();
  const [comment, setComment] = useState("");
  const decide = useMutation({
    mutationFn: (decision: "approve" | "refuse" | "done") =>
      data(
        api.POST("/v1/approvals/{id}", {
          params: { path: { id: approval.id } },
          body: { decision, comment: comment || null },
        }),
      ),
    onMutate: lock,
    onSettled: () => queries.invalidateQueries(),
  });
  const isBusy = decide.isPending || isLocked;
  const calls = approval.calls ?? [];
  const isUnsure = calls.some((call) => call.unsure);
  const hasForm = calls.some((call) => call.form);
  return (
    <Panel
      title={approval.fascicle ?? text.inbox.plan}
      acts={<CopyMenu id={approval.id} json={approval} path={`/v1/approvals/${approval.id}`} />}
    >
      <p className={css.dim}>
        {approval.participant ?? approval.owner} {text.inbox.asks} · {text.inbox.since}{" "}
        <time dateTime={approval.since}>{moment(approval.since)}</time>
        {approval.expires_at ? ` · ${text.inbox.expires} ${moment(approval.expires_at)}` : null} ·{" "}
        <Link to="/jobs/$job" params={{ job: approval.job }}>
          {text.jobs.id}
        </Link>
      </p>
      {approval.message ? <p>{visible(approval.message)}</p> : null}
      {approval.events?.length ? <Json value={approval.events} label={text.inbox.content} /> : null}
      {calls.map((call, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the calls of an approval never change their order
        <div key={at} className={css.call}>
          <h3>{visible(call.tool)}</h3>
          {call.why ? <p>{visible(call.why)}</p> : null}
          {call.unsure ? <p role="note">{text.inbox.unsure}</p> : null}
          {call.form ? <p role="note">{text.inbox.form}</p> : null}
          <table>
            <thead>
              <tr>
                <th scope="col">{text.inbox.argument}</th>
                <th scope="col">{text.inbox.value}</th>
                <th scope="col">{text.inbox.origin}</th>
              </tr>
            </thead>
            <tbody>
              {argumentsOf(call.arguments).map(([name, value]) => (
                <tr key={name}>
                  <td>{visible(name)}</td>
                  <td className={css.value}>{visible(typeof value === "string" ? value : JSON.stringify(value))}</td>
                  <td>{visible(originsOf(call.origins as Record<string, unknown>, name))}</td>
                </tr>
              ))}
              {Object.entries(call.takes ?? {}).map(([name, step]) => (
                <tr key={name}>
                  <td>{visible(name)}</td>
                  <td colSpan={2}>{visible(text.inbox.found(String(step)))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ))}
      <div className={css.decide}>
        <label>
          {text.inbox.comment}
          <input value={comment} onChange={(event) => setComment(event.target.value)} />
        </label>
        <button type="button" data-kind="main" disabled={isBusy || hasForm} onClick={() => decide.mutate("approve")}>
          {text.inbox.approve}
        </button>
        <button type="button" data-kind="bad" disabled={isBusy} onClick={() => decide.mutate("refuse")}>
          {text.inbox.refuse}
        </button>
        {isUnsure ? (
          <button type="button" disabled={isBusy} onClick={() => decide.mutate("done")}>
            {text.inbox.done}
          </button>
        ) : null}
      </div>
      {decide.error ? <Failure error={decide.error} /> : null}
    </Panel>
  );
}

export function Inbox() {
  const text = useText();
  const approvals = useApprovals();
  const [isLocked, setLocked] = useState(false);
  const lock = () => {
    setLocked(true);
    setTimeout(() => setLocked(false), SETTLES_MS);
  };
  return (
    <>
      <Heading title={text.pages.inbox}>
        <CopyMenu json={approvals.data} path="/v1/approvals" />
      </Heading>
      <Found query={approvals}>
        {({ approvals }) =>
          approvals.length ? (
            <div className={css.page}>
              {approvals.map((approval) => (
                <Waiting key={approval.id} approval={approval} isLocked={isLocked} lock={lock} />
              ))}
            </div>
          ) : (
            <>
              <Empty>{text.inbox.none}</Empty>
              <p>{text.inbox.why}</p>
            </>
          )
        }
      </Found>
    </>
  );
}
