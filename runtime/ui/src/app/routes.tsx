// The addresses of the pages. A path says what is shown, and its search parameters how.
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { useText } from "../i18n";
import { isTab, type Tab } from "../pages/tabs";
import { Empty, Failure } from "../parts/States";
import { Shell } from "./Shell";

function NotFound() {
  const text = useText();
  return <Empty>{text.states.gone}</Empty>;
}

const root = createRootRoute({
  component: Shell,
  notFoundComponent: NotFound,
  errorComponent: ({ error, reset }) => <Failure error={error} retry={reset} />,
});
const text = (value: unknown) => (typeof value === "string" && value ? value : undefined);

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  component: lazyRouteComponent(() => import("../pages/Home"), "Home"),
});
const inbox = createRoute({
  getParentRoute: () => root,
  path: "/inbox",
  component: lazyRouteComponent(() => import("../pages/Inbox"), "Inbox"),
});
const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: (search): { status?: string } => ({ status: text(search.status) }),
  component: lazyRouteComponent(() => import("../pages/Jobs"), "Jobs"),
});
const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$job",
  component: lazyRouteComponent(() => import("../pages/Job"), "JobPage"),
});
const neurons = createRoute({
  getParentRoute: () => root,
  path: "/neurons",
  component: lazyRouteComponent(() => import("../pages/Neurons"), "Neurons"),
});
const neuron = createRoute({
  getParentRoute: () => root,
  path: "/neurons/$neuron",
  component: lazyRouteComponent(() => import("../pages/Neurons"), "Neuron"),
});
const fascicles = createRoute({
  getParentRoute: () => root,
  path: "/fascicles",
  component: lazyRouteComponent(() => import("../pages/Fascicles"), "Fascicles"),
});
const fascicle = createRoute({
  getParentRoute: () => root,
  path: "/fascicles/$fascicle",
  component: lazyRouteComponent(() => import("../pages/Fascicles"), "Fascicle"),
});
const knowledge = createRoute({
  getParentRoute: () => root,
  path: "/knowledge",
  validateSearch: (search): { tab?: Tab; q?: string } => ({
    tab: isTab(search.tab) ? search.tab : undefined,
    q: text(search.q),
  }),
  component: lazyRouteComponent(() => import("../pages/Knowledge"), "Knowledge"),
});
const tokens = createRoute({
  getParentRoute: () => root,
  path: "/tokens",
  component: lazyRouteComponent(() => import("../pages/Tokens"), "Tokens"),
});
const about = createRoute({
  getParentRoute: () => root,
  path: "/about",
  component: lazyRouteComponent(() => import("../pages/About"), "About"),
});
const overview = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf",
  component: lazyRouteComponent(() => import("../pages/Overview"), "Overview"),
});
const canvas = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf/c/$canvas",
  validateSearch: (search): { topic?: string; msg?: string; node?: string } => ({
    topic: text(search.topic),
    msg: text(search.msg),
    node: text(search.node),
  }),
  component: lazyRouteComponent(() => import("../pages/CanvasPage"), "CanvasPage"),
});
const goals = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf/goals",
  component: lazyRouteComponent(() => import("../pages/Goals"), "Goals"),
});
const memory = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf/memory",
  validateSearch: (search): { q?: string; who?: "all" } => ({
    q: text(search.q),
    who: search.who === "all" ? "all" : undefined,
  }),
  component: lazyRouteComponent(() => import("../pages/Memory"), "Memory"),
});
const graph = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf/graph",
  validateSearch: (search): { of?: string; seq?: number } => ({
    of: text(search.of),
    seq: Number(search.seq) > 0 ? Math.floor(Number(search.seq)) : undefined,
  }),
  component: lazyRouteComponent(() => import("../pages/Graph"), "Graph"),
});
const calls = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf/calls",
  validateSearch: (search): { call?: string; step?: string } => ({ call: text(search.call), step: text(search.step) }),
  component: lazyRouteComponent(() => import("../pages/Calls"), "Calls"),
});
const nutrients = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf/nutrients",
  validateSearch: (search): { by?: string } => ({ by: text(search.by) }),
  component: lazyRouteComponent(() => import("../pages/Nutrients"), "Nutrients"),
});
const live = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf/live",
  validateSearch: (search): { fascicle?: string; step?: string; kind?: string } => ({
    fascicle: text(search.fascicle),
    step: text(search.step),
    kind: text(search.kind),
  }),
  component: lazyRouteComponent(() => import("../pages/Live"), "Live"),
});
const why = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf/why",
  validateSearch: (search): { from?: string } => ({ from: text(search.from) }),
  component: lazyRouteComponent(() => import("../pages/Why"), "Why"),
});
const kip = createRoute({
  getParentRoute: () => root,
  path: "/l/$lf/kip",
  validateSearch: (search): { q?: string } => ({ q: text(search.q) }),
  component: lazyRouteComponent(() => import("../pages/Kip"), "Kip"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    home,
    inbox,
    jobs,
    job,
    neurons,
    neuron,
    fascicles,
    fascicle,
    knowledge,
    tokens,
    about,
    overview,
    live,
    canvas,
    goals,
    memory,
    graph,
    calls,
    nutrients,
    why,
    kip,
  ]),
  basepath: "/ui",
  defaultErrorComponent: ({ error, reset }) => <Failure error={error} retry={reset} />,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
