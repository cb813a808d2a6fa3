// Goals with their plans, and schedules.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { api, data, type Goal } from "../api/client";
import { useGoals, useSchedules } from "../api/queries";
import { useFormats, useText } from "../i18n";
import { visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import { newId } from "../session/id";
import css from "./Goals.module.css";

function Add({ lf }: { lf: string }) {
  const text = useText();
  const queries = useQueryClient();
  const [title, setTitle] = useState("");
  const key = useRef(newId("ui_"));
  const add = useMutation({
    mutationFn: () =>
      data(
        api.POST("/v1/lifeforms/{id}/goals", {
          params: { path: { id: lf }, header: { "Idempotency-Key": key.current } },
          body: { title } as never,
        }),
      ),
    onSuccess: () => {
      key.current = newId("ui_");
      setTitle("");
      queries.invalidateQueries();
    },
  });
  return (
    <form
      className={css.add}
      onSubmit={(event) => {
        event.preventDefault();
        if (title.trim() && !add.isPending) add.mutate();
      }}
    >
      <label>
        {text.goals.title}
        <input value={title} onChange={(event) => setTitle(event.target.value)} />
      </label>
      <button type="submit" data-kind="main" disabled={add.isPending}>
        {text.goals.add}
      </button>
      {add.error ? <Failure error={add.error} /> : null}
    </form>
  );
}

function GoalCard({ lf, goal }: { lf: string; goal: Goal }) {
  const text = useText();
  const { moment } = useFormats();
  const queries = useQueryClient();
  const remove = useMutation({
    mutationFn: () =>
      data(api.DELETE("/v1/lifeforms/{id}/goals/{goal}", { params: { path: { id: lf, goal: goal.id } } })),
    onSettled: () => queries.invalidateQueries(),
  });
  return (
    <Panel
      title={goal.title}
      acts={
        <>
          <State tone={goal.status === "blocked" ? "warn" : goal.status === "done" ? "good" : "plain"}>
            {text.goals.status[goal.status]}
          </State>
          <CopyMenu id={goal.id} json={goal} path={`/v1/lifeforms/${lf}/goals/${goal.id}`} />
        </>
      }
    >
      <p className={css.dim}>
        {goal.id} · {text.goals.by} {goal.by}
        {goal.deadline ? ` · ${text.goals.due} ${moment(goal.deadline)}` : null}
        {goal.next ? ` · ${text.goals.next} ${moment(goal.next)}` : null}
        {goal.job ? (
          <>
            {" · "}
            <Link to="/jobs/$job" params={{ job: goal.job }}>
              {text.jobs.id}
            </Link>
          </>
        ) : null}
      </p>
      {goal.description ? <p>{visible(goal.description)}</p> : null}
      {goal.plan?.length ? (
        <>
          <h3>{text.goals.plan}</h3>
          <ol>
            {goal.plan.map((step, at) => (
              <li key={step.id || at}>
                {visible(step.what ?? "")}{" "}
                <State tone={step.status === "failed" ? "bad" : step.status === "done" ? "good" : "plain"}>
                  {text.goals.step[step.status ?? "todo"]}
                </State>
                {step.result ? <p className={css.dim}>{visible(step.result)}</p> : null}
              </li>
            ))}
          </ol>
        </>
      ) : null}
      {goal.notes?.length ? (
        <details>
          <summary>
            {text.goals.notes} ({goal.notes.length})
          </summary>
          <ul>
            {goal.notes.map((note, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: notes are only added at the end
              <li key={at}>
                {note.by}: {visible(note.text)}
              </li>
            ))}
          </ul>
        </details>
      ) : null}
      {goal.subgoals.map((sub) => (
        <GoalCard key={sub.id} lf={lf} goal={sub} />
      ))}
      <button
        type="button"
        disabled={remove.isPending}
        onClick={() => confirm(text.goals.sureRemove(goal.title)) && remove.mutate()}
      >
        {text.goals.remove}
      </button>
      {remove.error ? <Failure error={remove.error} /> : null}
    </Panel>
  );
}

export function Goals() {
  const { lf } = useParams({ from: "/l/$lf/goals" });
  const text = useText();
  const { moment } = useFormats();
  const goals = useGoals(lf);
  const schedules = useSchedules(lf);
  return (
    <>
      <Heading title={text.pages.goals}>
        <CopyMenu json={goals.data} path={`/v1/lifeforms/${lf}/goals`} />
      </Heading>
      <div className={css.page}>
        <Add lf={lf} />
        <Found query={goals}>
          {({ goals }) =>
            goals.length ? (
              goals.map((goal) => <GoalCard key={goal.id} lf={lf} goal={goal} />)
            ) : (
              <Empty>{text.goals.none}</Empty>
            )
          }
        </Found>
        <Panel title={text.goals.schedules}>
          <Found query={schedules}>
            {({ schedules }) =>
              schedules.length ? (
                <ul>
                  {schedules.map((one) => (
                    <li key={one.id}>
                      {visible(one.what)} · {text.goals.next} <time dateTime={one.next}>{moment(one.next)}</time>{" "}
                      {one.cron ? <code>{one.cron}</code> : null} {one.remind ? text.goals.remind : null} ·{" "}
                      {text.goals.by} {one.by}
                    </li>
                  ))}
                </ul>
              ) : (
                <Empty>{text.goals.noSchedules}</Empty>
              )
            }
          </Found>
        </Panel>
      </div>
    </>
  );
}
