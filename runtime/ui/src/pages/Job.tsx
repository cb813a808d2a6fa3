// One job: its state, its observable events, what it waits for and its output.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { api, data } from "../api/client";
import { useJob } from "../api/queries";
import { useFormats, useText } from "../i18n";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import css from "./Nutrients.module.css";
import { Steps } from "./Steps";

export function JobPage() {
  const { job: id } = useParams({ from: "/jobs/$job" });
  const text = useText();
  const { moment } = useFormats();
  const query = useJob(id);
  const queries = useQueryClient();
  const act = useMutation({
    mutationFn: (what: "cancel" | "retry") => data(api.POST(`/v1/jobs/{id}/${what}`, { params: { path: { id } } })),
    onSettled: () => queries.invalidateQueries(),
  });
  const lf = id.startsWith("lf_") ? id.split(".")[0] : undefined;
  return (
    <Found query={query}>
      {(job) => {
        const isOver = ["completed", "failed", "cancelled"].includes(job.status);
        return (
          <>
            <Heading
              title={
                <>
                  {job.fascicle}{" "}
                  <State tone={job.status === "failed" ? "bad" : job.status === "completed" ? "good" : "plain"}>
                    {text.jobs.states[job.status]}
                  </State>
                </>
              }
            >
              {lf ? (
                <Link to="/l/$lf/why" params={{ lf }} search={{ from: `job:${id}` }}>
                  {text.pages.why}
                </Link>
              ) : null}
              {isOver ? null : (
                <button type="button" data-kind="bad" disabled={act.isPending} onClick={() => act.mutate("cancel")}>
                  {text.jobs.cancel}
                </button>
              )}
              {job.status === "failed" ? (
                <button type="button" disabled={act.isPending} onClick={() => act.mutate("retry")}>
                  {text.jobs.retry}
                </button>
              ) : null}
              <CopyMenu id={id} json={job} path={`/v1/jobs/${id}`} />
            </Heading>
            {act.error ? <Failure error={act.error} /> : null}
            <div className={css.page}>
              <p>
                {id} · <time dateTime={job.created_at}>{moment(job.created_at)}</time> –{" "}
                <time dateTime={job.updated_at}>{moment(job.updated_at)}</time>
              </p>
              {job.error ? (
                <Panel title={text.jobs.error}>
                  <p>{job.error}</p>
                </Panel>
              ) : null}
              {job.waits.length ? (
                <Panel title={text.jobs.waits}>
                  <Link to="/inbox">{text.pages.inbox}</Link>
                  <Json value={job.waits.map(({ context_token: _, ...wait }) => wait)} label={text.jobs.waits} />
                </Panel>
              ) : null}
              <Steps id={id} lf={lf} />
              <Panel title={text.jobs.events}>
                {job.events.length ? (
                  <ol>
                    {job.events.map((event) => (
                      <li key={event.id}>
                        <strong>{event.stage}</strong> {event.message}
                      </li>
                    ))}
                  </ol>
                ) : (
                  <Empty>{text.states.empty}</Empty>
                )}
              </Panel>
              <Panel title={text.jobs.output}>
                {job.output === null || job.output === undefined ? (
                  <Empty>{text.states.empty}</Empty>
                ) : (
                  <Json value={job.output} label={text.jobs.output} />
                )}
              </Panel>
            </div>
          </>
        );
      }}
    </Found>
  );
}
