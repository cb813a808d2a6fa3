import { describe, expect, it } from "vitest";
import { en } from "../src/i18n/en";
import { ja } from "../src/i18n/ja";
import { zh } from "../src/i18n/zh";

function paths(value: unknown, at = ""): string[] {
  if (typeof value !== "object" || value === null) return [at];
  return Object.entries(value).flatMap(([key, inner]) => paths(inner, `${at}.${key}`));
}

describe("the sentences", () => {
  it("are there in each language, also those by name", () => {
    expect(paths(zh).sort()).toEqual(paths(en).sort());
    expect(paths(ja).sort()).toEqual(paths(en).sort());
  });
});
