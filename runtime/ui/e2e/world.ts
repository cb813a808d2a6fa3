// The world of the flows: the real daemon in a folder of its own, a model that is a script, and a page on which every foreign request, every
// console error and every report of the content security policy is a failure.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test as base, expect, type Page } from "@playwright/test";

const TOKEN = "lfd_the_token_of_the_flows_of_the_page";

/** Answers like a model: it repeats what it is told, and counts where it is asked to. */
function answer(said: string): string[] {
  if (said.includes("count slowly")) return Array.from({ length: 400 }, (_, n) => `${n} `);
  if (said.includes("be hostile")) {
    return [
      '<img src="https://evil.example/a.png" onerror="alert(1)"> <script>alert(2)</script> ',
      "[click](javascript:alert(3)) ![p](https://evil.example/b.png) **bold**",
    ];
  }
  return ["You said: ", said.slice(0, 200)];
}

function model(): Server {
  return createServer((request, response) => {
    let body = "";
    request.on("data", (part) => {
      body += part;
    });
    request.on("end", async () => {
      const asked = JSON.parse(body || "{}");
      const last = asked.messages?.filter((one: { role: string }) => one.role === "user").at(-1)?.content ?? "";
      const parts = asked.response_format ? ["{}"] : answer(String(last));
      const usage = { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 };
      const chunk = (delta: object, finish: string | null) => ({
        id: "c",
        object: "chat.completion.chunk",
        created: 0,
        model: "script",
        choices: [{ index: 0, delta, finish_reason: finish }],
      });
      if (!asked.stream) {
        const message = { role: "assistant", content: parts.join("") };
        response.setHeader("content-type", "application/json");
        response.end(
          JSON.stringify({
            id: "c",
            object: "chat.completion",
            created: 0,
            model: "script",
            choices: [{ index: 0, message, finish_reason: "stop" }],
            usage,
          }),
        );
        return;
      }
      response.setHeader("content-type", "text/event-stream");
      for (const content of parts) {
        if (response.destroyed) return;
        response.write(`data: ${JSON.stringify(chunk({ content }, null))}\n\n`);
        if (parts.length > 10) await new Promise((resolve) => setTimeout(resolve, 25));
      }
      response.write(`data: ${JSON.stringify({ ...chunk({}, "stop"), usage })}\n\ndata: [DONE]\n\n`);
      response.end();
    });
  });
}

export class World {
  base = "";
  life = "";
  readonly token = TOKEN;
  private daemon: ChildProcess | null = null;
  private readonly folder = mkdtempSync(join(tmpdir(), "lifeformd-ui-"));
  private readonly server = model();

  async begin() {
    await new Promise<void>((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    const port = (this.server.address() as AddressInfo).port;
    writeFileSync(
      join(this.folder, "lifeformd.toml"),
      `[models]\nembedded = "none"\nembedder = "none"\nmultilingual_embedder = "none"\n[providers.script]\nbase_url = "http://127.0.0.1:${port}/v1"\n[tiers.standard]\nprovider = "script"\nmodel = "script"\ncontext_tokens = 8192\n`,
    );
    await this.start("127.0.0.1:0");
    const { lifeforms } = (await this.ask("GET", "/v1/lifeforms")) as { lifeforms: { id: string }[] };
    this.life = lifeforms[0]!.id;
  }

  private async start(listen: string) {
    const binary = process.env.DAEMON;
    if (!binary) throw new Error("DAEMON is the path of the daemon");
    const daemon = spawn(
      binary,
      ["up", "--config", join(this.folder, "lifeformd.toml"), "--data", join(this.folder, "data"), "--listen", listen],
      {
        env: { ...process.env, LIFEFORMD_TOKEN: TOKEN },
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    this.daemon = daemon;
    let log = "";
    this.base = await new Promise<string>((resolve, reject) => {
      const read = (part: Buffer) => {
        log += part;
        const found = log.match(/http:\/\/127\.0\.0\.1:\d+/);
        if (found) resolve(found[0]);
      };
      daemon.stdout.on("data", read);
      daemon.stderr.on("data", read);
      daemon.on("exit", () => reject(new Error(`the daemon ended: ${log}`)));
    });
  }

  /** Kills the daemon, and starts it again at the same address. */
  async killAndRestart() {
    const ended = new Promise((resolve) => this.daemon?.once("exit", resolve));
    this.daemon?.kill("SIGKILL");
    await ended;
    await this.start(this.base.replace("http://", ""));
  }

  async ask(method: string, path: string, body?: unknown): Promise<unknown> {
    const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
    const response = await fetch(this.base + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  async end() {
    this.daemon?.removeAllListeners("exit");
    this.daemon?.kill("SIGTERM");
    this.server.closeAllConnections();
    this.server.close();
    await new Promise((resolve) => setTimeout(resolve, 300));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

interface Fixtures {
  /** The statuses with which the daemon may refuse requests of the page in a flow. */
  refusals: number[];
  signedIn: Page;
}

export const test = base.extend<Fixtures, { world: World }>({
  world: [
    // biome-ignore lint/correctness/noEmptyPattern: the runner reads the names of the fixtures from this pattern
    async ({}, use) => {
      const world = new World();
      await world.begin();
      await use(world);
      await world.end();
    },
    { scope: "worker" },
  ],
  refusals: [[], { option: true }],
  page: async ({ page, world, refusals }, use) => {
    const faults: string[] = [];
    page.on("response", (response) => {
      const isExpected = response.status() < 400 || refusals.includes(response.status());
      if (!isExpected) faults.push(`${response.status()} ${response.request().method()} ${response.url()}`);
    });
    page.on("request", (request) => {
      const url = request.url();
      if (
        !/^(data|blob):/.test(url) &&
        !url.startsWith(world.base) &&
        !url.startsWith(world.base.replace("http", "ws"))
      )
        faults.push(`foreign request: ${url}`);
    });
    page.on("console", (message) => {
      // A daemon that is away, and a token that is refused, are said by the browser, too.
      const isExpected = /Failed to load resource|WebSocket connection/.test(message.text());
      if (message.type() === "error" && !isExpected) faults.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
    page.on("dialog", (dialog) => {
      if (dialog.type() !== "confirm") faults.push(`dialog: ${dialog.message()}`);
      dialog.accept();
    });
    await use(page);
    expect(faults).toEqual([]);
  },
  signedIn: async ({ page, world }, use) => {
    await page.goto(`${world.base}/#token=${world.token}`);
    await expect(page.getByText("Signed in as user:operator")).toBeVisible();
    await use(page);
  },
});

export { expect };
