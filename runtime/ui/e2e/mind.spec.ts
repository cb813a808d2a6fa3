// What a person sees of a mind, changes and takes back: its graph, its calls, definitions, maps and tokens.
import { expect, test } from "./world";

const composer = { name: "Write a message" };

test("a statement is looked up in the graph, expanded, and forgotten", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/c/canvas_chat_main?topic=graph`);
  await page.getByRole("textbox", composer).fill("My sister Henrike lives in Gdansk.");
  await page.getByRole("button", { name: "Send" }).click();
  await expect(page.getByRole("log").getByText("You said: My sister")).toBeVisible();
  await page.goto(`${world.base}/ui/l/${world.life}/graph`);
  const relative = page.getByRole("button", { name: /^relative_of → 1$/ });
  await expect(async () => {
    await page.reload();
    await expect(relative).toBeVisible({ timeout: 1_000 });
  }).toPass();
  await relative.click();
  const outline = page.getByRole("region", { name: "As a list" });
  await outline.getByRole("button", { name: "Henrike" }).click();
  await page.getByRole("button", { name: /^lives_in → 1$/ }).click();
  await expect(outline.getByText("lives_in → Gdansk")).toBeVisible();
  await expect(page.getByRole("img", { name: /^3 concepts and 2 links/ })).toBeVisible();
  // The ends of a path are pinned.
  await page.getByRole("button", { name: "Pin", exact: true }).click();
  await outline.getByRole("button", { name: "operator" }).click();
  await page.getByRole("button", { name: "Pin", exact: true }).click();
  await page.getByRole("button", { name: "Path between the pinned" }).click();
  await expect(page.getByText(/The shortest path .*Henrike → operator/)).toBeVisible();
  // At the beginning of the journal there was no sister.
  await page.getByRole("textbox", { name: "As of entry" }).fill("3");
  await page.getByRole("button", { name: "As of entry" }).click();
  await expect(page.getByText("There is no such concept", { exact: false })).toBeVisible();
  await page.getByRole("button", { name: "The whole mind" }).click();
  await expect(page.getByRole("img", { name: /^\d+ concepts/ })).toBeVisible();

  await page.goto(`${world.base}/ui/l/${world.life}/memory`);
  const row = page.getByRole("row").filter({ hasText: "My sister Henrike" });
  await expect(row.getByRole("list", { name: "What it takes from it" })).toContainText("Henrike lives_in Gdansk");
  await row.getByRole("button", { name: /^Forget/ }).click();
  await expect(row).toHaveCount(0);
});

test("a call shows what fills its prompt", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/c/canvas_chat_main?topic=calls`);
  await page.getByRole("textbox", composer).fill("What fills a prompt?");
  await page.getByRole("button", { name: "Send" }).click();
  await expect(page.getByRole("log").getByText("You said: What fills")).toBeVisible();
  await page.goto(`${world.base}/ui/l/${world.life}/calls`);
  await page.getByRole("region", { name: "Newest first" }).getByRole("link").first().click();
  await expect(page).toHaveURL(/call=call_/);
  await expect(page.getByRole("rowheader", { name: "instructions and situation" })).toBeVisible();
  await expect(page.getByRole("region", { name: "what was said" }).first()).toContainText("What fills a prompt?");
  await page.getByRole("link", { name: "Why?" }).last().click();
  await expect(page.getByText("Where it began")).toBeVisible();
});

test("a fascicle is copied, checked as it is written, tried, saved, and refused after a change of another", async ({
  signedIn: page,
  world,
}) => {
  await page.goto(`${world.base}/ui/fascicles/answer_with_memory`);
  const source = page.getByRole("textbox", { name: "Definition" });
  const spec = JSON.parse(await source.inputValue());
  spec.id = "of_the_page";
  const broken = {
    ...spec,
    nodes: [...spec.nodes, { id: "loose", run: { join: "object" }, after: [{ node: "none" }] }],
  };
  await source.fill(JSON.stringify(broken, null, 2));
  await expect(page.getByRole("button", { name: "loose" }).first()).toBeVisible();
  await expect(page.getByText("nodes[3].after[0]", { exact: false })).toBeVisible();
  await expect(page.getByRole("button", { name: "Save" })).toBeDisabled();
  await source.fill(JSON.stringify(spec, null, 2));
  await expect(page.getByText("well made")).toBeVisible();
  await page.getByLabel("Outputs by node, as JSON").fill('{"remembered": [], "answer": "In Husum."}');
  await page.getByRole("button", { name: "Dry run" }).click();
  await expect(page.getByText("completed", { exact: false }).first()).toBeVisible();
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page).toHaveURL(/fascicles\/of_the_page/);
  await expect(page.getByRole("heading", { name: "of_the_page", level: 1 })).toBeVisible();
});

test.describe("two edit one memory", () => {
  test.use({ refusals: [409, 412] });

  test("a neuron is tried; who began from an older version is refused and keeps what was written", async ({
    signedIn: page,
    world,
  }) => {
    await world.ask("POST", "/v1/neurons", { id: "brief", kind: "base", memory: "Be brief." });
    await page.goto(`${world.base}/ui/neurons/brief`);
    const memory = page.getByRole("textbox", { name: "Memory" });
    await memory.fill("Be very brief.");
    await world.ask("PUT", "/v1/neurons/brief/memory", { memory: "Be kind." });
    await page.getByRole("button", { name: "Save" }).click();
    await expect(page.getByRole("alert")).toBeVisible();
    await expect(memory).toHaveValue("Be very brief.");
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.reload();
    await memory.fill("Be kind and brief.");
    await page.getByRole("button", { name: "Save" }).click();
    await expect(page.getByRole("button", { name: "Version 3" })).toBeVisible();
    await page.getByRole("button", { name: "Version 1" }).click();
    await expect(page.getByText("+Be kind and brief.", { exact: false })).toBeVisible();
    await page.getByRole("textbox", { name: "Input" }).fill("Hello you");
    await page.getByRole("button", { name: "Run" }).click();
    await expect(page.getByText("You said: Hello you", { exact: false })).toBeVisible();
  });
});

test("a map is edited by keys, taken back, proposed and commented", async ({ signedIn: page, world }) => {
  await world.ask("POST", `/v1/lifeforms/${world.life}/canvases`, {
    id: "canvas_map_edit",
    type: "zmind",
    title: "Plan",
  });
  await page.goto(`${world.base}/ui/l/${world.life}/c/canvas_map_edit`);
  const tree = page.getByRole("tree", { name: "Outline" });
  const item = (name: string) => tree.getByRole("treeitem", { name });
  for (const title of ["Hull", "Sails"]) {
    await page.getByRole("textbox", { name: "Add" }).fill(title);
    await page.getByRole("textbox", { name: "Add" }).press("Enter");
    await expect(item(title)).toBeVisible();
  }
  await item("Sails").focus();
  await page.keyboard.press("Alt+ArrowRight");
  await expect(item("Sails")).toHaveAttribute("aria-level", "2");
  await page.getByRole("button", { name: "Undo" }).click();
  await expect(item("Sails")).toHaveAttribute("aria-level", "1");
  await item("Sails").click();
  await item("Sails").focus();
  await page.keyboard.press("F2");
  await page.getByRole("textbox", { name: "Title" }).fill("Rig");
  await page.keyboard.press("Enter");
  await expect(item("Rig")).toBeVisible();
  await page.getByRole("textbox", { name: "Comment" }).fill("New shrouds?");
  await page.getByRole("button", { name: "Comment" }).click();
  await expect(page.getByText("New shrouds?")).toBeVisible();
  await page.getByRole("button", { name: "Resolve" }).click();
  await expect(page.getByText("resolved")).toBeVisible();
  // What another proposes is accepted.
  const { token } = (await world.ask("POST", "/v1/tokens", { principal: "user:ben", role: "participant" })) as {
    token: string;
  };
  const made = await fetch(`${world.base}/v1/lifeforms/${world.life}/canvases/canvas_map_edit/ops`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({
      ops: [{ kind: "proposal.make", id: "p1", ops: [{ kind: "node.add", id: "keel", title: "Keel" }] }],
    }),
  });
  expect(made.ok).toBe(true);
  await expect(page.getByRole("region", { name: "Proposals" })).toContainText("adds: Keel");
  await page.getByRole("button", { name: "Approve" }).click();
  await expect(item("Keel")).toBeVisible();
  await item("Rig").click();
  await item("Rig").focus();
  await page.keyboard.press("Delete");
  await expect(item("Rig")).toHaveCount(0);
});

test("a token is made, shown once, and revoked; knowledge is found and removed", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/tokens`);
  await page.getByLabel("Principal").fill("user:dora");
  await page.getByRole("button", { name: "New token" }).click();
  await expect(page.getByText("The token is shown only here", { exact: false })).toBeVisible();
  const row = page.getByRole("row").filter({ hasText: "user:dora" }).first();
  await row.getByRole("button", { name: "Revoke" }).click();
  await expect(page.getByRole("row").filter({ hasText: "user:dora" })).toHaveCount(0);
  await world.ask("POST", "/api/knowledge", {
    task: "Tie a boat to a ring",
    content: "A round turn and two half hitches.",
    types: ["strategy"],
  });
  await page.goto(`${world.base}/ui/knowledge?q=ring`);
  await page.getByText("Tie a boat to a ring").click();
  await expect(page.getByText("A round turn and two half hitches.")).toBeVisible();
  await page.getByRole("button", { name: "Remove" }).click();
  await expect(page.getByText("Tie a boat to a ring")).toHaveCount(0);
});
