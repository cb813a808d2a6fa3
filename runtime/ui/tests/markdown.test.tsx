import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import { Markdown, safeUrl, visible } from "../src/markdown/Markdown";

const html = (text: string) => renderToStaticMarkup(<Markdown text={text} />);

describe("text of people and models", () => {
  it("is parsed where it only looks deep", () => {
    expect(html(`**bold**\n${"-".repeat(60)}\n+${"-".repeat(40)}+`)).toContain("<strong>bold</strong>");
  });

  it("becomes elements", () => {
    expect(html("**bold** and `code`")).toContain("<strong>bold</strong>");
    expect(html("| a | b |\n|---|---|\n| 1 | 2 |")).toContain("<td>1</td>");
  });

  it("is never HTML", () => {
    for (const text of [
      `${"1. ".repeat(3_000)}x`,
      "~a".repeat(16_000),
      "*a_b".repeat(8_000),
      "<img src=x onerror=alert(1)>",
      "<script>alert(1)</script>",
      "<svg onload=alert(1)>",
      "a <b>b</b>",
    ]) {
      expect(html(text)).not.toMatch(/<(img|script|svg|b)\b/);
    }
  });

  it("loads no image and leads nowhere else than to pages", () => {
    expect(html("![x](https://evil.example/p.png)")).not.toContain("<img");
    for (const url of ["javascript:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd", "//evil"]) {
      expect(safeUrl(url)).toBeNull();
      expect(html(`[x](${url})`)).not.toContain("href");
    }
    expect(html("[bank](https://evil.example/x)")).toContain("evil.example)");
    expect(html("[bank](https://evil.example/x)")).toContain('rel="noopener noreferrer nofollow"');
  });

  it("shows what hides", () => {
    expect(visible("a\u202eb\u0000c")).toBe("a\u27e8202e\u27e9b\u27e80000\u27e9c");
  });

  it("stays bounded", () => {
    for (const text of [
      `${"1. ".repeat(3_000)}x`,
      "~a".repeat(16_000),
      "*a_b".repeat(8_000),
      ">".repeat(20_000),
      "[".repeat(50_000),
      "*".repeat(50_000),
      "x".repeat(200_000),
      `${"- ".repeat(3000)}x`,
    ]) {
      // The runner ends a test after five seconds.
      expect(html(text).length).toBeGreaterThan(0);
    }
  });
});
