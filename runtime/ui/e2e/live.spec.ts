// What happens, as it happens: the page of a lifeform at work, and the steps of its jobs.
import { expect, test } from "./world";

const chat = (world: { life: string }) => `/v1/lifeforms/${world.life}/canvases/canvas_chat_main/topics`;

test("an answer is seen as it is made, gone through, and its job has its steps", async ({ signedIn: page, world }) => {
  await world.ask("POST", chat(world), { id: "seen-live", title: "Live" });
  await page.goto(`${world.base}/ui/l/${world.life}/live`);
  await expect(page.getByRole("main").getByText(/live$/)).toBeVisible();
  await world.ask("POST", `${chat(world)}/seen-live/messages`, { content: "Hello there." });
  const events = page.getByRole("region", { name: "Events" });
  await expect(events.getByText("job.ended").first()).toBeVisible();
  const answer = page.getByRole("listitem").filter({ hasText: /^answer/ });
  await page.getByText("As a list").click();
  await expect(answer.getByText(/done/)).toBeVisible();
  // A node shows its events alone.
  await answer.getByRole("button", { name: "answer" }).click();
  await expect(page).toHaveURL(/step=answer/);
  await expect(events.getByText("job.started")).toBeVisible();
  await expect(events.getByText("job.ended")).toHaveCount(0);
  // Before it began, nothing was done.
  await page.getByRole("button", { name: "Pause" }).click();
  const slider = page.getByRole("slider", { name: "Place among the events" });
  await slider.focus();
  await slider.press("Home");
  await expect(answer.getByText(/done/)).toHaveCount(0);
  await slider.press("End");
  await expect(answer.getByText(/done/)).toBeVisible();
  await page.getByRole("button", { name: "Go on live" }).click();
  await page.goto(`${world.base}/ui/jobs`);
  await page
    .getByRole("link", { name: /seen-live/ })
    .first()
    .click();
  const steps = page.getByRole("region", { name: "Steps" });
  await expect(steps.getByRole("row").filter({ hasText: "answer" }).getByText(/done/)).toBeVisible();
  await steps.getByRole("button", { name: "answer", exact: true }).click();
  await expect(steps.getByText(/You said/)).toBeVisible();
});

test("events go on after a kill, from the new start of the daemon", async ({ signedIn: page, world }) => {
  await page.goto(`${world.base}/ui/l/${world.life}/live`);
  await expect(page.getByRole("main").getByText(/live$/)).toBeVisible();
  await world.killAndRestart();
  await expect(page.getByRole("main").getByText(/live$/)).toBeVisible({ timeout: 20_000 });
  await world.ask("POST", chat(world), { id: "after-kill", title: "After" });
  await world.ask("POST", `${chat(world)}/after-kill/messages`, { content: "Are you back?" });
  await expect(page.getByRole("region", { name: "Events" }).getByText("job.ended").first()).toBeVisible();
});
