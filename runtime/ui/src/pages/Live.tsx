// What happens in a lifeform, as it happens: its fascicles with the events that cross them, paused, gone through and replayed.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState } from "react";
import { api, data } from "../api/client";
import { useFascicle } from "../api/queries";
import { useFeed } from "../events/feed";
import { type Activity, fold, type Happened, nodeOf } from "../events/fold";
import { useFormats, useText } from "../i18n";
import { CopyMenu } from "../parts/Copy";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import { type Drawn, FascicleGraph, NODES_MAX, toneOfStep } from "./FascicleGraph";
import css from "./Live.module.css";

/** The number of events in the list, and of those that are fetched at once from before. */
const LISTED_MAX = 200;
const EARLIER = 1_000;
const TICK_MS = 200;
const KINDS = ["job", "canvas", "calls", "ledger", "nexus", "trace", "invocation"];

function useUsedFascicles(lf: string) {
  return useQuery({
    queryKey: ["live", lf],
    queryFn: () => data(api.GET("/v1/lifeforms/{id}/fascicles", { params: { path: { id: lf } } })),
  });
}

/** Returns the events of a lifeform that the tab has seen, with those from before that were asked for. */
function useEventsOf(lf: string) {
  const feed = useFeed();
  const [earlier, setEarlier] = useState<Happened[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [isWhole, setWhole] = useState(false);
  const events = useMemo(() => {
    const live = feed.events.filter((event) => event.lifeform === lf);
    const first = live[0]?.n ?? Number.POSITIVE_INFINITY;
    return [...earlier.filter((event) => event.n < first), ...live];
  }, [feed.events, earlier, lf]);
  const load = async () => {
    setError(null);
    try {
      const query = { limit: EARLIER, before: events[0]?.n };
      const page = await data(api.GET("/v1/lifeforms/{id}/events", { params: { path: { id: lf }, query } }));
      const found = (page.events as unknown as Happened[]).reverse();
      setEarlier((known) => [...found, ...known.filter((event) => event.n > (found.at(-1)?.n ?? 0))]);
      setWhole(page.next == null);
    } catch (error) {
      setError(error);
    }
  };
  return { events, link: feed.link, missed: feed.missed, load, error, isWhole };
}

/** Goes through the events at a speed: the time between two of them passes that much faster. */
function useReplay(events: readonly Happened[], at: number | null, set: (at: number | null) => void, speed: number) {
  useEffect(() => {
    if (at === null || speed === 0) return;
    const timer = setInterval(() => {
      const now = events[Math.max(at - 1, 0)];
      if (!now || at >= events.length) {
        set(events.length);
        return;
      }
      const until = Date.parse(now.at) + TICK_MS * speed;
      let next = at + 1;
      while (next < events.length && Date.parse(events[next]!.at) <= until) next += 1;
      set(next);
    }, TICK_MS);
    return () => clearInterval(timer);
  }, [events, at, set, speed]);
}

function Outline({
  activity,
  fascicles,
  chosen,
  choose,
}: {
  activity: Activity;
  fascicles: string[];
  chosen: string | undefined;
  choose: (fascicle: string) => void;
}) {
  const text = useText();
  const { number } = useFormats();
  return (
    <ul className={css.outline}>
      {fascicles.map((id) => {
        const known = activity.get(id);
        return (
          <li key={id}>
            <button type="button" aria-current={id === chosen} onClick={() => choose(id)}>
              {id}
            </button>{" "}
            {known?.jobs.size ? <State tone="warn">{text.live.running(known.jobs.size)}</State> : null}{" "}
            {known?.count ? <span className={css.dim}>×{number(known.count)}</span> : null}
          </li>
        );
      })}
    </ul>
  );
}

function Nodes({
  fascicle,
  activity,
  chosen,
  choose,
}: {
  fascicle: Drawn;
  activity: Activity;
  chosen: string | undefined;
  choose: (node: string) => void;
}) {
  const text = useText();
  const { clock } = useFormats();
  const { lf } = useParams({ from: "/l/$lf/live" });
  const known = activity.get(fascicle.id);
  return (
    <ul className={css.outline}>
      {fascicle.nodes.map(({ id }) => {
        const node = known?.nodes.get(id);
        return (
          <li key={id}>
            <button type="button" aria-current={id === chosen} onClick={() => choose(id)}>
              {id}
            </button>{" "}
            {node ? (
              <>
                <State tone={toneOfStep[node.state]}>{text.live.states[node.state]}</State>{" "}
                <span className={css.dim}>
                  ×{node.count} · {clock(node.at)}
                </span>{" "}
                <Link to="/l/$lf/why" params={{ lf }} search={{ from: node.ref }}>
                  {text.pages.why}
                </Link>
                {node.error ? <p>{node.error}</p> : null}
              </>
            ) : null}
          </li>
        );
      })}
    </ul>
  );
}

function Events({ events }: { events: readonly Happened[] }) {
  const text = useText();
  const { lf } = useParams({ from: "/l/$lf/live" });
  const { step, kind } = useSearch({ from: "/l/$lf/live" });
  const navigate = useNavigate({ from: "/l/$lf/live" });
  const { clock } = useFormats();
  const isShown = (event: Happened) =>
    (!kind || event.kind.startsWith(`${kind}.`)) && (!step || (event.step && nodeOf(event.step) === step));
  const shown: Happened[] = [];
  for (let at = events.length - 1; at >= 0 && shown.length < LISTED_MAX; at -= 1) {
    if (isShown(events[at]!)) shown.push(events[at]!);
  }
  return (
    <Panel
      title={text.live.events}
      acts={
        <select
          aria-label={text.live.kind}
          value={kind ?? ""}
          onChange={(event) =>
            navigate({ search: (now) => ({ ...now, kind: event.target.value || undefined }), replace: true })
          }
        >
          <option value="">{text.live.all}</option>
          {KINDS.map((one) => (
            <option key={one} value={one}>
              {text.live.kinds[one]}
            </option>
          ))}
        </select>
      }
    >
      {shown.length ? (
        <div className={css.stripe}>
          <table>
            <thead>
              <tr>
                <th scope="col">{text.live.at}</th>
                <th scope="col">{text.live.what}</th>
                <th scope="col">{text.live.where}</th>
                <th scope="col">{text.live.by}</th>
                <th scope="col">{text.pages.why}</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((event) => (
                <tr key={event.n}>
                  <td>
                    <time dateTime={event.at}>{clock(event.at)}</time>
                  </td>
                  <td>{event.kind}</td>
                  <td>{event.fascicle ? `${event.fascicle}${event.step ? ` / ${event.step}` : ""}` : null}</td>
                  <td>{event.by === `lifeform:${lf}` ? text.live.itself : event.by}</td>
                  <td>
                    <Link to="/l/$lf/why" params={{ lf }} search={{ from: event.ref }}>
                      {text.live.show}
                    </Link>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <Empty>{text.live.quiet}</Empty>
      )}
    </Panel>
  );
}

export function Live() {
  const { lf } = useParams({ from: "/l/$lf/live" });
  const { epoch } = useFeed();
  return <LiveOf key={`${lf} ${epoch}`} />;
}

function LiveOf() {
  const { lf } = useParams({ from: "/l/$lf/live" });
  const { fascicle: asked, step } = useSearch({ from: "/l/$lf/live" });
  const navigate = useNavigate({ from: "/l/$lf/live" });
  const text = useText();
  const { number } = useFormats();
  const { events, link, missed, load, error, isWhole } = useEventsOf(lf);
  /** The number of the event at which the page stands still; null while it is live, 0 before the first. */
  const [stands, setStands] = useState<number | null>(null);
  const [speed, setSpeed] = useState(0);
  const used = useUsedFascicles(lf);
  // Events are added before and dropped from the front, so a place is an event and not a count.
  const at = useMemo(
    () => (stands === null ? null : events.findLastIndex((event) => event.n <= stands) + 1),
    [events, stands],
  );
  const setAt = useCallback(
    (count: number | null) => setStands(count === null ? null : count === 0 ? 0 : (events[count - 1]?.n ?? 0)),
    [events],
  );
  useReplay(events, at, setAt, speed);
  const shown = useMemo(() => (at === null ? events : events.slice(0, at)), [events, at]);
  const activity = useMemo(() => fold(shown), [shown]);
  const busiest = useMemo(() => {
    for (let place = shown.length - 1; place >= 0; place -= 1)
      if (shown[place]!.fascicle) return shown[place]!.fascicle;
    return undefined;
  }, [shown]);
  const active = (used.data?.fascicles ?? []).filter((one) => one.status === "active").map((one) => one.id);
  const chosen = asked ?? busiest ?? active[0];
  const definition = useFascicle(chosen);
  const all = [...new Set([...active, ...activity.keys()])];
  const chooseFascicle = (fascicle: string) => navigate({ search: (now) => ({ ...now, fascicle, step: undefined }) });
  const chooseNode = (node: string) =>
    navigate({ search: (now) => ({ ...now, fascicle: chosen, step: node === step ? undefined : node }) });
  const pause = () => {
    setSpeed(0);
    setAt(at === null ? events.length : null);
  };
  return (
    <>
      <Heading title={text.pages.live}>
        <State tone={link === "live" ? "good" : "warn"}>{at === null ? text.link[link] : text.live.stands}</State>
        <button type="button" onClick={pause}>
          {at === null ? text.live.pause : text.live.resume}
        </button>
        <CopyMenu json={shown.slice(-LISTED_MAX)} path={`/v1/lifeforms/${lf}/events`} />
      </Heading>
      <div className={css.page}>
        {at === null ? null : (
          <Panel title={text.live.replay}>
            <div className={css.scrub}>
              <input
                type="range"
                aria-label={text.live.scrub}
                min={0}
                max={events.length}
                value={at}
                onChange={(event) => {
                  setSpeed(0);
                  setAt(Number(event.target.value));
                }}
              />
              <span>
                {number(at)} / {number(events.length)}
              </span>
              {[1, 10].map((one) => (
                <button
                  key={one}
                  type="button"
                  aria-pressed={speed === one}
                  onClick={() => {
                    if (at >= events.length) setAt(0);
                    setSpeed(speed === one ? 0 : one);
                  }}
                >
                  ×{one}
                </button>
              ))}
              <button type="button" disabled={isWhole} onClick={load}>
                {text.live.earlier}
              </button>
            </div>
            {error ? <Failure error={error} retry={load} /> : null}
          </Panel>
        )}
        {missed ? <p role="status">{text.live.missed(number(missed))}</p> : null}
        <div className={css.grid}>
          <Panel title={text.live.fascicles}>
            <Found query={used}>
              {() => <Outline activity={activity} fascicles={all} chosen={chosen} choose={chooseFascicle} />}
            </Found>
          </Panel>
          <Panel title={chosen ?? text.live.fascicles}>
            {chosen ? (
              <Found query={definition}>
                {(fascicle) => (
                  <>
                    {fascicle.nodes.length > NODES_MAX ? (
                      <p>{text.live.tooLarge(number(fascicle.nodes.length))}</p>
                    ) : (
                      <FascicleGraph
                        fascicle={fascicle}
                        activity={activity.get(fascicle.id)}
                        chosen={step}
                        choose={chooseNode}
                      />
                    )}
                    <details className={css.details}>
                      <summary>{text.live.outline}</summary>
                      <Nodes fascicle={fascicle} activity={activity} chosen={step} choose={chooseNode} />
                    </details>
                  </>
                )}
              </Found>
            ) : (
              <Empty>{text.live.quiet}</Empty>
            )}
          </Panel>
        </div>
        <Events events={shown} />
      </div>
    </>
  );
}
