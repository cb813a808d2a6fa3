// The types of the client are those of the daemon's OpenAPI document.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "./world";

test("src/api/schema.d.ts is made of what the daemon serves", async ({ world }) => {
  const folder = mkdtempSync(join(tmpdir(), "lifeformd-types-"));
  const document = join(folder, "openapi.json");
  writeFileSync(document, JSON.stringify(await world.ask("GET", "/openapi.json")));
  execFileSync("node_modules/.bin/openapi-typescript", [document, "-o", join(folder, "schema.d.ts")]);
  const made = readFileSync(join(folder, "schema.d.ts"), "utf8");
  // `OPENAPI=… npm run types` writes it anew.
  expect(readFileSync("src/api/schema.d.ts", "utf8") === made).toBe(true);
});
