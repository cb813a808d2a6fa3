import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useJobs } from "../api/queries";
import { useFormats, useText } from "../i18n";
import { CopyMenu } from "../parts/Copy";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Found } from "../parts/States";

export function Jobs() {
  const text = useText();
  const { moment } = useFormats();
  const navigate = useNavigate({ from: "/jobs" });
  const { status } = useSearch({ from: "/jobs" });
  const jobs = useJobs(status);
  return (
    <>
      <Heading title={text.pages.jobs}>
        <select
          aria-label={text.jobs.status}
          value={status ?? ""}
          onChange={(event) => navigate({ search: { status: event.target.value || undefined }, replace: true })}
        >
          <option value="">{text.jobs.all}</option>
          {Object.entries(text.jobs.states).map(([id, name]) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
        <CopyMenu json={jobs.data} path={`/v1/jobs${status ? `?status=${status}` : ""}`} />
      </Heading>
      <Panel title={text.pages.jobs}>
        <Found query={jobs}>
          {({ jobs, isWhole }) =>
            jobs.length ? (
              <>
                <table>
                  <thead>
                    <tr>
                      <th scope="col">{text.jobs.status}</th>
                      <th scope="col">{text.jobs.fascicle}</th>
                      <th scope="col">{text.jobs.id}</th>
                      <th scope="col">{text.jobs.stage}</th>
                      <th scope="col">{text.jobs.updated}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {jobs.map((job) => (
                      <tr key={job.job_id}>
                        <td>
                          <State tone={job.status === "failed" ? "bad" : job.status === "completed" ? "good" : "plain"}>
                            {text.jobs.states[job.status]}
                          </State>
                        </td>
                        <td>{job.fascicle}</td>
                        <td>
                          <Link to="/jobs/$job" params={{ job: job.job_id }}>
                            {job.job_id}
                          </Link>
                        </td>
                        <td>{job.error ?? job.current_stage}</td>
                        <td>
                          <time dateTime={job.updated_at}>{moment(job.updated_at)}</time>
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
                {isWhole ? null : <p>{text.jobs.more}</p>}
              </>
            ) : (
              <Empty>{text.jobs.none}</Empty>
            )
          }
        </Found>
      </Panel>
    </>
  );
}
