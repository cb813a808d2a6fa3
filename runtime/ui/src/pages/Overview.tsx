// What a lifeform does now, what it has left, and what waits for a person.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { api, data, type Lifeform, type ListedJob } from "../api/client";
import {
  useActiveJobs,
  useApprovals,
  useGoals,
  useJobs,
  useLifeform,
  useMe,
  useSpending,
  useStatement,
} from "../api/queries";
import { toneOf } from "../app/Shell";
import { useFormats, useText } from "../i18n";
import { CopyMenu } from "../parts/Copy";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import css from "./Overview.module.css";

const LATEST_MAX = 8;

function isOf(lf: string) {
  return (job: ListedJob) => job.job_id.startsWith(`${lf}.`);
}

function Acts({ life }: { life: Lifeform }) {
  const text = useText();
  const me = useMe();
  const queries = useQueryClient();
  const act = useMutation({
    mutationFn: (action: "start" | "stop" | "reboot") =>
      data(api.POST("/v1/lifeforms/{id}/{action}", { params: { path: { id: life.id, action } }, body: {} as never })),
    onSettled: () => queries.invalidateQueries(),
  });
  if (!me.data?.roles.includes("operator")) return null;
  return (
    <>
      {life.status === "running" || life.status === "dormant" ? (
        <>
          <button
            type="button"
            data-kind="bad"
            disabled={act.isPending}
            onClick={() => confirm(text.life.sureStop(life.name)) && act.mutate("stop")}
          >
            {text.life.stop}
          </button>
          <button type="button" disabled={act.isPending} onClick={() => act.mutate("reboot")}>
            {text.life.reboot}
          </button>
        </>
      ) : life.status !== "terminated" ? (
        <button type="button" data-kind="main" disabled={act.isPending} onClick={() => act.mutate("start")}>
          {text.life.start}
        </button>
      ) : null}
      {act.error ? <Failure error={act.error} /> : null}
    </>
  );
}

export function Gauge({ life }: { life: Lifeform }) {
  const text = useText();
  const { number } = useFormats();
  const { available, held, balance } = life.nutrients;
  const most = Math.max(balance.tokens + life.nutrients.spent.tokens, 1);
  return (
    <div>
      <meter
        className={css.meter}
        min={0}
        max={most}
        value={Math.max(available.tokens, 0)}
        aria-label={text.nutrients.available}
      >
        {available.tokens}
      </meter>
      <p>
        <strong>{number(available.tokens)}</strong> {text.nutrients.available} · {number(held.tokens)}{" "}
        {text.nutrients.held} · {number(life.nutrients.spent.tokens)} {text.nutrients.spent}
      </p>
    </div>
  );
}

export function JobLine({ job }: { job: ListedJob }) {
  const text = useText();
  const { time } = useFormats();
  const tone =
    job.status === "failed"
      ? "bad"
      : job.status === "completed"
        ? "good"
        : job.status.startsWith("waiting")
          ? "warn"
          : "plain";
  return (
    <li className={css.job}>
      <Link to="/jobs/$job" params={{ job: job.job_id }}>
        {job.fascicle}
      </Link>
      <span>{job.current_stage}</span>
      <State tone={tone}>{text.jobs.states[job.status]}</State>
      <time dateTime={job.updated_at}>{time(job.updated_at)}</time>
    </li>
  );
}

export function Overview() {
  const { lf } = useParams({ from: "/l/$lf" });
  const text = useText();
  const { money, number, span } = useFormats();
  const life = useLifeform(lf);
  const jobs = useJobs();
  const active = useActiveJobs();
  const goals = useGoals(lf);
  const statement = useStatement(lf);
  const spending = useSpending(lf);
  const approvals = useApprovals();
  const own = (jobs.data?.jobs ?? []).filter(isOf(lf));
  const running = (active.data ?? []).filter(isOf(lf));
  const failed = own.filter((job) => job.status === "failed");
  const waiting = (approvals.data?.approvals ?? []).filter((one) => one.owner === `lifeform:${lf}`);
  const today = spending.data?.by.day?.[new Date().toISOString().slice(0, 10)];
  return (
    <Found query={life}>
      {(life) => (
        <>
          <Heading
            title={
              <>
                {life.name} <State tone={toneOf(life.status)}>{text.life.status[life.status]}</State>
              </>
            }
          >
            <span>
              {text.life.mode[life.mode]} · {text.life.hunger} {number(Math.round(life.hunger * 100) / 100)} ·{" "}
              {text.life.guard[life.guard.step]}
            </span>
            <Link to="/l/$lf/c/$canvas" params={{ lf, canvas: "canvas_chat_main" }}>
              {text.pages.chat}
            </Link>
            <Acts life={life} />
            <CopyMenu id={life.id} json={life} path={life.links.self} />
          </Heading>
          <div className={css.grid}>
            <Panel
              title={text.pages.nutrients}
              acts={
                <Link to="/l/$lf/nutrients" params={{ lf }}>
                  {text.nutrients.statement}
                </Link>
              }
            >
              <Gauge life={life} />
              <p>
                {statement.data?.empty_in_s
                  ? text.nutrients.emptyIn(span(statement.data.empty_in_s))
                  : text.nutrients.never}
                {statement.data ? ` · ${number(statement.data.burn_per_hour.tokens)} ${text.nutrients.perHour}` : null}
              </p>
              <p>
                {text.overview.spentToday}: {number(today?.charged.tokens ?? 0)} ·{" "}
                {money(today?.charged.micro_usd ?? 0)} · {text.nutrients.calls(number(today?.calls ?? 0))}
              </p>
            </Panel>
            <Panel title={text.overview.now}>
              {life.status === "stopped" ? <p>{text.life.paused}</p> : null}
              <Found query={active}>
                {() =>
                  running.length ? (
                    <ul className={css.list}>
                      {running.map((job) => (
                        <JobLine key={job.job_id} job={job} />
                      ))}
                    </ul>
                  ) : (
                    <Empty>{text.overview.idle}</Empty>
                  )
                }
              </Found>
            </Panel>
            <Panel title={text.overview.attention}>
              {approvals.error ? <Failure error={approvals.error} /> : null}
              {approvals.data && jobs.data && waiting.length + failed.length === 0 ? (
                <Empty>{text.overview.calm}</Empty>
              ) : null}
              <ul className={css.list}>
                {waiting.length ? (
                  <li>
                    <Link to="/inbox">{text.overview.approvals(waiting.length)}</Link>
                  </li>
                ) : null}
                {failed.length ? (
                  <li>
                    <Link to="/jobs" search={{ status: "failed" }}>
                      {text.overview.failed(failed.length)}
                    </Link>
                  </li>
                ) : null}
              </ul>
            </Panel>
            <Panel
              title={text.overview.goals}
              acts={
                <Link to="/l/$lf/goals" params={{ lf }}>
                  {text.pages.goals}
                </Link>
              }
            >
              <Found query={goals}>
                {({ goals }) => {
                  const open = goals.filter((goal) => goal.status !== "done" && goal.status !== "dropped");
                  return open.length ? (
                    <ul className={css.list}>
                      {open.map((goal) => (
                        <li key={goal.id}>
                          {goal.title}{" "}
                          <State tone={goal.status === "blocked" ? "warn" : "plain"}>
                            {text.goals.status[goal.status]}
                          </State>
                        </li>
                      ))}
                    </ul>
                  ) : (
                    <Empty>{text.overview.noGoals}</Empty>
                  );
                }}
              </Found>
            </Panel>
            <Panel title={text.overview.recent}>
              <Found query={jobs}>
                {() =>
                  own.length ? (
                    <ul className={css.list}>
                      {own.slice(0, LATEST_MAX).map((job) => (
                        <JobLine key={job.job_id} job={job} />
                      ))}
                    </ul>
                  ) : (
                    <Empty>{text.jobs.none}</Empty>
                  )
                }
              </Found>
            </Panel>
          </div>
        </>
      )}
    </Found>
  );
}
