// The steps of a job: its fascicle as a drawing, and each step with its state, its tries and its place in time.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, data } from "../api/client";
import { useFascicle, useJobSteps } from "../api/queries";
import { type FascicleActivity, type NodeActivity, nodeOf, type StepState } from "../events/fold";
import { useFormats, useText } from "../i18n";
import { Json } from "../parts/Json";
import { Panel, State } from "../parts/Panel";
import { Failure, Found } from "../parts/States";
import { FascicleGraph, toneOfStep } from "./FascicleGraph";
import css from "./Steps.module.css";

interface Step {
  step: string;
  state: StepState;
  attempts: number;
  started_at?: string | null;
  updated_at: string;
  error?: string | null;
  ref: string;
}

/** Returns the steps of one job in the form in which the drawing shows those of all. */
function activityOf(id: string, steps: Step[]): FascicleActivity {
  const nodes = new Map<string, NodeActivity>();
  for (const { step, state, attempts, updated_at, error, ref } of steps) {
    const name = nodeOf(step);
    if (step !== name && nodes.has(name)) continue;
    const jobs = new Set(state === "started" || state === "paused" ? [id] : []);
    nodes.set(name, { state, jobs, count: attempts, at: updated_at, error: error ?? undefined, ref });
  }
  return { nodes, jobs: new Set(), count: 1, at: "" };
}

function Output({ id, step }: { id: string; step: string }) {
  const text = useText();
  const found = useQuery({
    queryKey: ["job", id, "output", step],
    queryFn: () => data(api.GET("/v1/jobs/{id}/steps", { params: { path: { id }, query: { step } } })),
    retry: false,
  });
  if (found.error) return <Failure error={found.error} />;
  return <Json value={found.data?.steps[0]?.output ?? null} label={text.jobs.output} />;
}

export function Steps({ id, lf }: { id: string; lf: string | undefined }) {
  const text = useText();
  const { number } = useFormats();
  const query = useJobSteps(id);
  const definition = useFascicle(query.data?.fascicle);
  const [chosen, choose] = useState<string>();
  const steps = (query.data?.steps ?? []) as Step[];
  const activity = useMemo(() => activityOf(id, steps), [id, steps]);
  const first = Math.min(...steps.map((step) => Date.parse(step.started_at ?? step.updated_at)));
  const last = Math.max(...steps.map((step) => Date.parse(step.updated_at)), first + 1);
  const share = (at: string) => ((Date.parse(at) - first) / (last - first)) * 100;
  return (
    <Panel title={text.jobs.steps}>
      <Found query={query}>
        {() => (
          <>
            {definition.data ? (
              <FascicleGraph fascicle={definition.data} activity={activity} chosen={chosen} choose={choose} />
            ) : null}
            <table>
              <thead>
                <tr>
                  <th scope="col">{text.jobs.step}</th>
                  <th scope="col">{text.jobs.status}</th>
                  <th scope="col">{text.jobs.took}</th>
                </tr>
              </thead>
              <tbody>
                {steps.map(({ step, state, attempts, started_at, updated_at, error, ref }) => {
                  const took = started_at ? Date.parse(updated_at) - Date.parse(started_at) : 0;
                  return (
                    <tr key={step}>
                      <td className={css.step}>
                        <button
                          type="button"
                          aria-expanded={step === chosen}
                          onClick={() => choose(step === chosen ? undefined : step)}
                        >
                          {step}
                        </button>
                        {step === chosen ? <Output id={id} step={step} /> : null}
                      </td>
                      <td>
                        <State tone={toneOfStep[state]}>{text.live.states[state]}</State>
                        {attempts > 1 ? ` ×${attempts}` : null}
                        {error ? <p>{error}</p> : null}{" "}
                        {lf ? (
                          <Link to="/l/$lf/why" params={{ lf }} search={{ from: ref }}>
                            {text.pages.why}
                          </Link>
                        ) : null}
                      </td>
                      <td className={css.time}>
                        {started_at ? (
                          <span className={css.track} aria-hidden="true">
                            <span
                              className={css.bar}
                              data-tone={toneOfStep[state]}
                              style={{ left: `${share(started_at)}%`, right: `${100 - share(updated_at)}%` }}
                            />
                          </span>
                        ) : null}
                        {number(took)} ms
                      </td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </>
        )}
      </Found>
    </Panel>
  );
}
