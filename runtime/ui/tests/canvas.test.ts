import { describe, expect, it } from "vitest";
import { isAtEnd, newBelow } from "../src/canvas/scroll";
import { empty, type Frame, fold, Gap, inOrder, patched, textOf } from "../src/canvas/state";

const message = (id: string, content: string, status = "final") => ({
  id,
  sender: "user:ada",
  content,
  status,
  ord: id,
  rev: 1,
  at: "2026-01-01T00:00:00Z",
  revisions: {},
});
const begun = fold(
  fold(empty(), {
    t: "snapshot",
    epoch: "e",
    rev: 3,
    state: { topics: { t: { id: "t", title: "T", ord: "1", messages: { m1: message("m1", "Hi") } } } },
  } as Frame),
  {
    t: "live",
    epoch: "e",
    rev: 3,
  },
);
const delta = (prev: number, rev: number, path: string, value: unknown, op = "add"): Frame => ({
  t: "delta",
  rev,
  prev,
  kind: "message.append",
  patch: [{ op: op as "add", path, value }],
});

describe("a canvas", () => {
  it("folds deltas in their order, once", () => {
    const next = fold(begun, delta(3, 4, "/topics/t/messages/m2", message("m2", "there")));
    expect(inOrder(next.state.topics.t?.messages).map((one) => one.content)).toEqual(["Hi", "there"]);
    expect(fold(next, delta(3, 4, "/topics/t/messages/m2", message("m2", "again")))).toBe(next);
    expect(begun.state.topics.t?.messages.m2).toBeUndefined();
  });

  it("tells a gap, and a patch that does not fit", () => {
    expect(() => fold(begun, delta(7, 8, "/topics/t/messages/m2", message("m2", "x")))).toThrow(Gap);
    expect(() => fold(begun, delta(3, 4, "/topics/none/messages/m2", message("m2", "x")))).toThrow(Gap);
    expect(() => fold(begun, delta(3, 4, "/topics/t/messages/m9", "x", "replace"))).toThrow(Gap);
  });

  it("is not changed by names of prototypes", () => {
    for (const path of ["/__proto__/x", "/topics/constructor", "/topics/t/__proto__"]) {
      expect(() => patched(begun.state, [{ op: "add", path, value: 1 }])).toThrow(Gap);
    }
    expect(({} as Record<string, unknown>).x).toBeUndefined();
  });

  it("decodes the keys of a patch", () => {
    const next = patched({ topics: { "a/b~c": { n: 1 } } }, [{ op: "replace", path: "/topics/a~1b~0c/n", value: 2 }]);
    expect(next.topics["a/b~c"]?.n).toBe(2);
  });

  it("adds streamed text where it follows, counted in bytes", () => {
    const writing = fold(begun, delta(3, 4, "/topics/t/messages/m2", message("m2", "", "streaming")));
    const first = fold(writing, { t: "stream", topic: "t", msg: "m2", at_len: 0, text: "你好" });
    const second = fold(first, { t: "stream", topic: "t", msg: "m2", at_len: 6, text: "!" });
    const late = fold(second, { t: "stream", topic: "t", msg: "m2", at_len: 6, text: "?" });
    const found = second.state.topics.t!.messages.m2!;
    expect(textOf(found, second.partial)).toBe("你好!");
    expect(late).toBe(second);
  });

  it("goes on with a stream after a resume, and begins anew after a reopening", () => {
    const checkpoint = fold(begun, delta(3, 4, "/topics/t/messages/m2", message("m2", "abc", "streaming")));
    const first = fold(checkpoint, { t: "stream", topic: "t", msg: "m2", at_len: 3, text: "d" });
    const later = fold(first, delta(4, 5, "/topics/t/messages/m2/content", "abcdef", "replace"));
    const resumed = fold(later, { t: "stream", topic: "t", msg: "m2", at_len: 6, text: "g" });
    expect(textOf(resumed.state.topics.t!.messages.m2!, resumed.partial)).toBe("abcdefg");
    const reopened = fold(resumed, {
      t: "delta",
      rev: 6,
      prev: 5,
      kind: "message.reopen",
      patch: [
        { op: "replace", path: "/topics/t/messages/m2/content", value: "" },
        { op: "replace", path: "/topics/t/messages/m2/status", value: "streaming" },
      ],
    });
    expect(textOf(reopened.state.topics.t!.messages.m2!, reopened.partial)).toBe("");
    const anew = fold(reopened, { t: "stream", topic: "t", msg: "m2", at_len: 0, text: "x" });
    expect(textOf(anew.state.topics.t!.messages.m2!, anew.partial)).toBe("x");
  });

  it("folds a batch like its deltas one by one", () => {
    const deltas = [
      delta(3, 4, "/topics/t/messages/m2", message("m2", "a")),
      delta(4, 5, "/topics/t/messages/m2/content", "b", "replace"),
    ];
    const one = deltas.reduce(fold, begun);
    expect(fold(begun, { t: "batch", deltas } as Frame)).toEqual(one);
  });
});

describe("the scroll rule", () => {
  it("follows at the end alone", () => {
    expect(isAtEnd({ scrollHeight: 1000, scrollTop: 430, clientHeight: 500 })).toBe(true);
    expect(isAtEnd({ scrollHeight: 1000, scrollTop: 400, clientHeight: 500 })).toBe(false);
    expect(newBelow(3, 5, false)).toBe(2);
    expect(newBelow(3, 5, true)).toBe(0);
    expect(newBelow(5, 3, false)).toBe(0);
  });
});
