// The queries of the pages. They are asked again when something happens; while no events come, every five seconds, and a hidden page
// not at all.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { currentLink } from "../events/feed";
import type { Drawn } from "../pages/FascicleGraph";
import { currentToken } from "../session/token";
import { api, data, type ListedJob } from "./client";

const EVERY_MS = 5_000;
const WITH_EVENTS_MS = 30_000;
const live = { refetchInterval: () => (currentLink() === "live" ? WITH_EVENTS_MS : EVERY_MS) };
const PAGES_MAX = 10;
const PAGE = 200;

export function useMe() {
  return useQuery({ queryKey: ["me"], queryFn: () => data(api.GET("/v1/me")), staleTime: 60_000 });
}

export function useHealth() {
  return useQuery({ queryKey: ["health"], queryFn: () => data(api.GET("/health")), ...live });
}

export function useLifeforms() {
  return useQuery({ queryKey: ["lifeforms"], queryFn: () => data(api.GET("/v1/lifeforms")), ...live });
}

export function useLifeform(id: string) {
  return useQuery({
    queryKey: ["lifeform", id],
    queryFn: () => data(api.GET("/v1/lifeforms/{id}", { params: { path: { id } } })),
    ...live,
  });
}

export function useStatement(id: string, before?: number) {
  return useQuery({
    queryKey: ["statement", id, before],
    queryFn: () =>
      data(
        api.GET("/v1/lifeforms/{id}/resources", {
          params: { path: { id }, query: { order: "desc", limit: 50, before } },
        }),
      ),
    ...live,
    placeholderData: keepPreviousData,
  });
}

export function useSpending(id: string) {
  return useQuery({
    queryKey: ["spending", id],
    queryFn: () => data(api.GET("/v1/lifeforms/{id}/resources/report", { params: { path: { id } } })),
    ...live,
  });
}

type Status = ListedJob["status"];

/** Returns the jobs of a status, the latest first. The daemon lists them by id, so all pages are read, up to a bound. */
async function jobsOf(status?: Status): Promise<{ jobs: ListedJob[]; isWhole: boolean }> {
  const jobs: ListedJob[] = [];
  let after: string | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const query = { limit: PAGE, status, after };
    const found = await data(api.GET("/v1/jobs", { params: { query } }));
    jobs.push(...found.jobs);
    if (!found.next) break;
    after = found.next;
    if (page === PAGES_MAX - 1) return { jobs: latestFirst(jobs), isWhole: false };
  }
  return { jobs: latestFirst(jobs), isWhole: true };
}

function latestFirst(jobs: ListedJob[]): ListedJob[] {
  return jobs.sort((one, other) => Date.parse(other.updated_at) - Date.parse(one.updated_at));
}

export function useJobs(status?: string) {
  return useQuery({ queryKey: ["jobs", status], queryFn: () => jobsOf(status as Status | undefined), ...live });
}

const ACTIVE: Status[] = ["pending", "running", "waiting_for_tools", "waiting_for_approval"];

/** The jobs that are not over. */
export function useActiveJobs() {
  const all = () => Promise.all(ACTIVE.map(jobsOf)).then((found) => latestFirst(found.flatMap(({ jobs }) => jobs)));
  return useQuery({ queryKey: ["jobs", "active"], queryFn: all, ...live });
}

export function useJob(id: string) {
  return useQuery({
    queryKey: ["job", id],
    queryFn: () => data(api.GET("/v1/jobs/{id}", { params: { path: { id } } })),
    ...live,
  });
}

export function useJobSteps(id: string) {
  return useQuery({
    queryKey: ["job", id, "steps"],
    queryFn: () => data(api.GET("/v1/jobs/{id}/steps", { params: { path: { id } } })),
    ...live,
  });
}

export function useFascicle(id: string | undefined) {
  return useQuery({
    queryKey: ["fascicle", id],
    queryFn: async () =>
      (await data(api.GET("/v1/fascicles/{id}", { params: { path: { id: id! } } }))) as unknown as Drawn,
    enabled: () => Boolean(id) && currentToken() !== null,
    retry: false,
  });
}

export function useApprovals() {
  return useQuery({ queryKey: ["approvals"], queryFn: () => data(api.GET("/v1/approvals")), ...live, retry: false });
}

export function useGoals(id: string) {
  return useQuery({
    queryKey: ["goals", id],
    queryFn: () => data(api.GET("/v1/lifeforms/{id}/goals", { params: { path: { id } } })),
    ...live,
  });
}

export function useSchedules(id: string) {
  return useQuery({
    queryKey: ["schedules", id],
    queryFn: () => data(api.GET("/v1/lifeforms/{id}/schedules", { params: { path: { id } } })),
    ...live,
  });
}

export function useCanvases(id: string) {
  return useQuery({
    queryKey: ["canvases", id],
    queryFn: () => data(api.GET("/v1/lifeforms/{id}/canvases", { params: { path: { id } } })),
    ...live,
  });
}

export interface Step {
  ref: string;
  seq: number;
  at: string;
  by: string;
  kind: string;
  data: unknown;
}

export interface Walk {
  from: Step;
  back: Step[];
  roots: string[];
  forward: Step[];
  more: boolean;
}

export function useTrace(id: string, from: string | undefined) {
  return useQuery({
    queryKey: ["trace", id, from],
    queryFn: async () =>
      (await data(
        api.GET("/v1/lifeforms/{id}/trace", { params: { path: { id }, query: { from } } }),
      )) as unknown as Walk,
    enabled: () => Boolean(from) && currentToken() !== null,
    retry: false,
  });
}

export function useEvidence(id: string, canvas: string, topic: string, message: string, isOpen: boolean) {
  return useQuery({
    queryKey: ["evidence", id, canvas, topic, message],
    queryFn: () =>
      data(
        api.GET("/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}/evidence", {
          params: { path: { id, canvas, topic, message } },
        }),
      ),
    enabled: () => isOpen && currentToken() !== null,
    retry: false,
  });
}

/** Runs a KIP command. A refusal by the engine stands in the answer, as `error`. */
export async function kip(
  id: string,
  command: string,
  parameters: Record<string, unknown> = {},
  options: { readonly?: boolean; dry_run?: boolean } = {},
) {
  const body = { command, parameters, ...options };
  const answer = await data(api.POST("/v1/lifeforms/{id}/kip", { params: { path: { id } }, body: body as never }));
  return answer as {
    result?: unknown;
    error?: { code?: string; message?: string; hint?: string } | null;
    next_cursor?: string | null;
  };
}
