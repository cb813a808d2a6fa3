import { describe, expect, it } from "vitest";
import { add, fold, type Happened, nodeOf } from "../src/events/fold";
import { changedBy } from "../src/events/refresh";

let n = 0;
const event = (kind: string, step?: string, more: Partial<Happened> = {}): Happened => {
  n += 1;
  return {
    n,
    ref: `job:j1@${n}`,
    at: `2026-01-01T00:00:${String(n % 60).padStart(2, "0")}Z`,
    by: "lifeform:lf",
    cause: [],
    kind,
    lifeform: "lf",
    job: "lf.j1",
    fascicle: "reply",
    step,
    what: {},
    ...more,
  };
};

describe("what happens", () => {
  it("says of each node its state, its jobs and how often it ran", () => {
    const events = [
      event("job.accepted"),
      event("job.started", "answer"),
      event("job.started", "answer[1]"),
      event("job.started", "answer", { job: "lf.j2" }),
      event("job.done", "answer[1]"),
    ];
    const running = fold(events).get("reply")!;
    expect([running.jobs.size, running.count]).toEqual([1, 1]);
    expect(running.nodes.get("answer")).toMatchObject({ state: "started", count: 2 });
    expect([...running.nodes.get("answer")!.jobs]).toEqual(["lf.j1", "lf.j2"]);
    const ended = fold([...events, event("job.failed", "answer"), event("job.ended", undefined)]).get("reply")!;
    expect(ended.jobs.size).toBe(0);
    expect(ended.nodes.get("answer")).toMatchObject({ state: "failed" });
    expect([...ended.nodes.get("answer")!.jobs]).toEqual(["lf.j2"]);
  });

  it("stands where the reader goes back to", () => {
    const events = [event("job.started", "note"), event("job.done", "note"), event("job.started", "answer")];
    expect(fold(events, 1).get("reply")!.nodes.get("note")!.state).toBe("started");
    expect(fold(events, 2).get("reply")!.nodes.has("answer")).toBe(false);
    const whole = fold(events);
    add(whole, event("canvas.op"));
    expect([...whole.keys()]).toEqual(["reply"]);
  });

  it("names the node of a step", () => {
    expect(["look", "look[2]", "look[2]/read", "look!/read", "look[1]!"].map(nodeOf)).toEqual(Array(5).fill("look"));
  });

  it("says which answers it changes", () => {
    expect(changedBy([event("job.started", "note"), event("calls.sent", undefined, { job: undefined })])).toEqual([
      ["job", "lf.j1"],
    ]);
    expect(changedBy([event("job.ended")])).toEqual([["jobs"], ["approvals"], ["job", "lf.j1"]]);
    expect(changedBy([event("nexus.command", undefined, { job: undefined })])).toEqual([]);
    expect(changedBy([])).toContainEqual(["lifeforms"]);
  });
});
