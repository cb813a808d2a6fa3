// Each page in both colour schemes and three languages: nothing that WCAG 2.2 AA forbids, and nothing wider than a small screen.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { expect, test, type World } from "./world";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

const pages = (world: World): Record<string, string> => ({
  home: "/ui/",
  overview: `/ui/l/${world.life}`,
  chat: `/ui/l/${world.life}/c/canvas_chat_main`,
  live: `/ui/l/${world.life}/live`,
  goals: `/ui/l/${world.life}/goals`,
  memory: `/ui/l/${world.life}/memory?who=all`,
  nutrients: `/ui/l/${world.life}/nutrients`,
  why: `/ui/l/${world.life}/why?from=${encodeURIComponent(`canvas:${world.life}/canvas_chat_main@2`)}`,
  kip: `/ui/l/${world.life}/kip`,
  graph: `/ui/l/${world.life}/graph`,
  calls: `/ui/l/${world.life}/calls`,
  map: `/ui/l/${world.life}/c/canvas_map_seen`,
  neurons: "/ui/neurons",
  neuron: "/ui/neurons/seen_neuron",
  fascicles: "/ui/fascicles",
  fascicle: "/ui/fascicles/answer_with_memory",
  knowledge: "/ui/knowledge",
  tokens: "/ui/tokens",
  inbox: "/ui/inbox",
  jobs: "/ui/jobs",
  about: "/ui/about",
});

/** Makes what the pages show; what is there already stays. */
async function prepare(world: World) {
  const once = (path: string, body: unknown) => world.ask("POST", path, body).catch(() => null);
  await once(`/v1/lifeforms/${world.life}/canvases`, { id: "canvas_map_seen", type: "zmind", title: "Seen" });
  await once(`/v1/lifeforms/${world.life}/canvases/canvas_map_seen/ops`, {
    ops: [
      { kind: "node.add", id: "one", title: "A thought" },
      { kind: "node.add", id: "two", title: "Another", parent: "one" },
    ],
  });
  await once("/v1/neurons", { id: "seen_neuron", kind: "base", memory: "Be brief." });
}

interface Violation {
  id: string;
  nodes: { html: string; failureSummary?: string }[];
}

for (const language of ["en", "zh", "ja"]) {
  test(`no page hinders anybody (${language})`, async ({ signedIn: page, world }) => {
    test.setTimeout(180_000);
    await world
      .ask("POST", `/v1/lifeforms/${world.life}/canvases/canvas_chat_main/topics`, {
        id: `seen-${language}`,
        title: "Seen",
      })
      .catch(() => null);
    await world.ask("POST", `/v1/lifeforms/${world.life}/canvases/canvas_chat_main/topics/seen-${language}/messages`, {
      content: "Hello, `code` and **bold**.",
    });
    await prepare(world);
    await page.evaluate((language) => localStorage.setItem("lifeformd.language", language), language);
    for (const [name, path] of Object.entries(pages(world))) {
      await page.goto(world.base + path);
      await page.waitForLoadState("networkidle");
      for (const scheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme: scheme });
        // Run by the browser itself: the policy of the page allows no other script.
        const found = (await page.evaluate(`${axe}; axe.run(document, { runOnly: ${JSON.stringify(TAGS)} })`)) as {
          violations: Violation[];
          passes: unknown[];
        };
        expect(found.passes.length, name).toBeGreaterThan(10);
        const said = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" | ")}`);
        expect(said, `${name}, ${scheme}, ${language}`).toEqual([]);
      }
      expect(await page.evaluate(() => document.documentElement.lang), name).toBe(language);
    }
  });
}

test("pages fit on a small screen", async ({ signedIn: page, world }) => {
  test.setTimeout(120_000);
  await prepare(world);
  await page.setViewportSize({ width: 390, height: 844 });
  for (const [name, path] of Object.entries(pages(world))) {
    await page.goto(world.base + path);
    await page.waitForLoadState("networkidle");
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    expect(over, `${name} is wider than the screen`).toBeLessThanOrEqual(0);
  }
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("link", { name: "Jobs" }).click();
  await expect(page.getByRole("heading", { name: "Jobs", level: 1 })).toBeVisible();
});
