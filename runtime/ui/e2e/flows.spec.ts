// What a person does with the page, against the real daemon.
import { expect, test } from "./world";

const composer = { name: "Write a message" };

test("a link signs in, and leaves no token in the address", async ({ page, world }) => {
  await page.goto(`${world.base}/#token=${world.token}`);
  await expect(page.getByText("Signed in as user:operator")).toBeVisible();
  expect(page.url()).toBe(`${world.base}/ui/`);
  // A deep link in another tab of the same origin opens signed in.
  const other = await page.context().newPage();
  await other.goto(`${world.base}/ui/jobs`);
  await expect(other.getByText("Signed in as user:operator")).toBeVisible();
  await other.close();
});

test.describe("without a right token", () => {
  test.use({ refusals: [401] });

  test("a wrong token is refused over the page, once, and a right one goes on", async ({ page, world }) => {
    let requests = 0;
    page.on("request", (request) => {
      if (request.url().includes("/v1/")) requests += 1;
    });
    await page.goto(`${world.base}/ui/#token=lfd_not_known_here_at_all`);
    const dialog = page.getByRole("dialog", { name: "Sign in" });
    await expect(dialog.getByRole("alert")).toHaveText(/not known here/);
    const before = requests;
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await expect(dialog).toBeVisible();
    await dialog.getByLabel("Token").fill(world.token);
    expect(requests, "nothing is asked without a token").toBe(before);
    await dialog.getByRole("button", { name: "Sign in" }).click();
    await expect(page.getByText("Signed in as user:operator")).toBeVisible();
  });
});

test("who signs out is asked for a token in each tab, and keeps what was typed", async ({ signedIn: page, world }) => {
  const other = await page.context().newPage();
  await other.goto(`${world.base}/ui/l/${world.life}/c/canvas_chat_main?topic=left`);
  await other.getByRole("textbox", composer).fill("half a thought");
  await page.getByRole("button", { name: "Sign out" }).click();
  for (const tab of [page, other]) {
    const dialog = tab.getByRole("dialog", { name: "Sign in" });
    await expect(dialog).toBeVisible();
    await expect(dialog.getByRole("alert")).toHaveCount(0);
  }
  await expect(other.getByRole("textbox", { ...composer, includeHidden: true })).toHaveValue("half a thought");
  await other.getByLabel("Token").fill(world.token);
  await other.getByRole("button", { name: "Sign in" }).click();
  await expect(other.getByText(/live$/)).toBeVisible();
  await other.getByRole("textbox", composer).press("Enter");
  await expect(other.getByRole("log").getByText("You said: half a thought")).toBeVisible();
  await other.close();
});

test("a talk: said, answered, amended, taken back, and why", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/c/canvas_chat_main?topic=boats`);
  const write = page.getByRole("textbox", composer);
  await write.fill("My boat is called Petrel.");
  // Enter while a word is composed ends the word and sends nothing.
  await write.evaluate((field) => {
    field.dispatchEvent(new CompositionEvent("compositionstart", { bubbles: true }));
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
    field.dispatchEvent(new CompositionEvent("compositionend", { bubbles: true }));
    field.dispatchEvent(
      new KeyboardEvent("keydown", { key: "Enter", isComposing: true, bubbles: true, cancelable: true }),
    );
  });
  await expect(write).toHaveValue("My boat is called Petrel.");
  await write.press("Shift+Enter");
  await expect(write).toHaveValue("My boat is called Petrel.\n");
  await write.press("Enter");
  await expect(page.getByRole("log").getByText("You said: My boat is called Petrel.")).toBeVisible();
  await expect(write).toHaveValue("");

  const mine = page.getByRole("article").filter({ hasText: "operator" }).first();
  await mine.getByRole("button", { name: "Amend" }).click();
  await mine.getByRole("textbox", { name: "Amend" }).fill("My boat is called Heron.");
  await mine.getByRole("button", { name: "Save" }).click();
  await expect(mine.getByText("edited ×1")).toBeVisible();
  await mine.getByText("Earlier wordings").click();
  await expect(mine.locator("del")).toHaveText(/Petrel/);

  await page
    .getByRole("article")
    .filter({ hasText: "You said: My boat is called Petrel." })
    .getByRole("link", { name: "Why?" })
    .click();
  await expect(page.getByText("Where it began")).toBeVisible();
  await expect(page.getByText(/http:POST .*topics\/boats\/messages/).first()).toBeVisible();
  await page.goBack();
  await mine.getByRole("button", { name: "Take back" }).click();
  await expect(mine.getByText("taken back")).toBeVisible();
});

test("an answer is judged, and words on their way keep their order and their topic", async ({
  signedIn: page,
  world,
}) => {
  await page.goto(`${world.base}/ui/l/${world.life}/c/canvas_chat_main?topic=order`);
  const write = page.getByRole("textbox", composer);
  await expect(page.getByRole("main").getByText(/live$/)).toBeVisible();
  for (const word of ["one", "two", "three"]) {
    await write.fill(`Word ${word}`);
    await write.press("Enter");
  }
  await expect(page.getByRole("log").getByText(/You said: .*three/)).toBeVisible();
  const said = page.getByRole("article").filter({ hasText: "operator" });
  await expect(said).toHaveCount(3);
  for (const [at, word] of ["one", "two", "three"].entries()) await expect(said.nth(at)).toContainText(`Word ${word}`);
  const helped = page.getByRole("button", { name: "It helped" }).last();
  await helped.click();
  await expect(helped).toHaveAttribute("aria-pressed", "true");
  await helped.click();
  await expect(helped).toHaveAttribute("aria-pressed", "false");
  // A draft is of its topic, and outlives the page.
  await write.fill("a draft");
  await page.getByRole("link", { name: "Jobs" }).click();
  await expect(page.getByRole("heading", { name: "Jobs", level: 1 })).toBeVisible();
  await page.goBack();
  await expect(write).toHaveValue("a draft");
  await page.getByRole("button", { name: "New topic" }).click();
  await expect(write).toHaveValue("");
});

test("an answer is interrupted while it is written", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/c/canvas_chat_main?topic=slow`);
  await page.getByRole("textbox", composer).fill("Please count slowly for me");
  await page.getByRole("button", { name: "Send" }).click();
  await expect(page.getByText(/0 1 2 3/)).toBeVisible();
  await page.getByRole("button", { name: "Interrupt" }).click();
  await expect(page.getByText("interrupted", { exact: false }).first()).toBeVisible();
  await expect(page.getByText(/0 1 2 3/), "what it had said stays").toBeVisible();
});

test("what a model writes is text", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/c/canvas_chat_main?topic=hostile`);
  await page.getByRole("textbox", composer).fill("Now be hostile to me");
  await page.getByRole("button", { name: "Send" }).click();
  await expect(page.locator("strong", { hasText: "bold" })).toBeVisible();
  await expect(page.getByRole("log").getByText("<script>alert(2)</script>", { exact: false })).toBeVisible();
  expect(await page.locator("main img, main script, main a[href^=javascript]").count()).toBe(0);
});

test("two clicks book one top-up", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/nutrients`);
  await page.getByLabel("Tokens").fill("1234");
  await page.getByLabel("What for").fill("twice clicked");
  await page.getByRole("button", { name: "Book" }).dblclick();
  await expect(page.getByText("Booked.")).toBeVisible();
  await expect(page.getByRole("cell", { name: /twice clicked/ })).toHaveCount(1);
});

test("what it remembers, by its statements and by KIP", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/c/canvas_chat_main?topic=facts`);
  await page.getByRole("textbox", composer).fill("My lighthouse stands in Husum.");
  await page.getByRole("button", { name: "Send" }).click();
  await expect(page.getByRole("log").getByText("You said: My lighthouse")).toBeVisible();
  await page.goto(`${world.base}/ui/l/${world.life}/memory`);
  await expect(page.getByRole("cell", { name: "My lighthouse stands in Husum.", exact: true })).toBeVisible();
  await page.getByRole("searchbox", { name: "Search" }).fill("lighthouse");
  await page.getByRole("button", { name: "Search" }).click();
  await expect(page.getByRole("cell", { name: "My lighthouse stands in Husum.", exact: true })).toBeVisible();

  // The command of a link is not run; a write is refused until it is allowed.
  await page.goto(
    `${world.base}/ui/l/${world.life}/kip?q=${encodeURIComponent('UPSERT { CONCEPT { {type: "Fact", name: "of the page"} } }')}`,
  );
  let runs = 0;
  page.on("request", (request) => {
    if (request.url().endsWith("/kip") && request.postData()?.includes("UPSERT")) runs += 1;
  });
  await page.waitForLoadState("networkidle");
  expect(runs).toBe(0);
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.getByText("The command was refused", { exact: false })).toBeVisible();
  const command = page.getByRole("textbox", { name: "Command" });
  // Key by key: text that the browser itself puts into a field with colours brings inline styles, which the policy blocks and reports.
  const write = async (text: string) => {
    await command.press("ControlOrMeta+a");
    await command.press("Delete");
    await command.pressSequentially(text);
  };
  await write('FIND(?f.name) WHERE { ?f {type: "Fact", name: "of the page"} }');
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.getByText("0 rows")).toBeVisible();
  // A fault is said with its place and the hint; a write is undone.
  await write('FIND(?x.nam) WHERE { ?x {type: "Fact"} }');
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.getByRole("alert")).toContainText("line 1, column 9");
  await expect(page.locator(".cm-fault")).toBeVisible();
  await page.getByRole("checkbox", { name: "Allow writes" }).check();
  await write(
    'UPSERT { CONCEPT { {type: "Fact", name: "of the page"} SET ATTRIBUTES { statement: "The page wrote this." } } }',
  );
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByRole("button", { name: /^Undo this write/ }).click();
  await expect(page.getByText("Undone.")).toBeVisible();
  await write('FIND(?f.name) WHERE { ?f {type: "Fact", name: "of the page"} }');
  await command.press("Control+Enter");
  await expect(page.getByText("0 rows")).toBeVisible();
  // The words of KIP and the types of this mind are completed.
  await write('FIND(?p) WHERE { ?p {type: "Per');
  await expect(page.getByRole("option", { name: "Person" })).toBeVisible();
});

test("a goal is set and removed", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/goals`);
  await page.getByLabel("Goal").fill("Paint the hull");
  await page.getByRole("button", { name: "Set a goal" }).click();
  const goal = page.getByRole("region", { name: "Paint the hull" });
  await expect(goal).toBeVisible();
  await goal.getByRole("button", { name: "Remove" }).click();
  await expect(goal).toHaveCount(0);
});

test("a question waits in the inbox with its content, and is refused there", async ({ signedIn: page, world }) => {
  const spec = {
    id: "asks",
    output: "ok",
    nodes: [{ id: "ok", run: { approve: { message: "Shall the boat be sold?" } } }],
  };
  await world.ask("POST", "/v1/fascicles", spec);
  await world.ask("POST", "/v1/fascicles/asks/execute", { input: "the ketch" });
  await page.goto(`${world.base}/ui/inbox`);
  await expect(page.getByText("Shall the boat be sold?")).toBeVisible();
  await expect(page.getByRole("region", { name: "Content" })).toContainText("the ketch");
  await expect(page).toHaveTitle("(1) lifeformd");
  await page.getByRole("button", { name: "Refuse" }).click();
  await expect(page.getByText("Nothing waits for a decision.")).toBeVisible();
});

test("a lifeform is stopped and started", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}`);
  await page.getByRole("main").getByRole("button", { name: "Stop" }).click();
  await expect(page.getByRole("main").getByText("stopped", { exact: false }).first()).toBeVisible();
  await page.getByRole("main").getByRole("button", { name: "Start" }).click();
  await expect(page.getByRole("main").getByText("awake").first()).toBeVisible();
});

test("a daemon that is killed comes back without gap or double", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/c/canvas_chat_main?topic=kills`);
  const write = page.getByRole("textbox", composer);
  await write.fill("The first word");
  await write.press("Enter");
  await expect(page.getByRole("log").getByText("You said: The first word")).toBeVisible();
  await write.fill("half a thou");
  await world.killAndRestart();
  await expect(write).toHaveValue("half a thou");
  await expect(page.getByText("live", { exact: false }).first()).toBeVisible({ timeout: 20_000 });
  await write.fill("The second word");
  await write.press("Enter");
  await expect(page.getByRole("log").getByText("You said: The second word")).toBeVisible();
  await expect(page.getByRole("article")).toHaveCount(4);
});
