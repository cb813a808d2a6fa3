#!/usr/bin/env python3
"""Lets a lifeform carry out goals in a small harbour that counts what is done to it, while the daemon is killed.

    python3 benches/act/run.py LIFEFORMD [--kills 100] [--seed 1]

Starts the daemon with a scripted model (an OpenAI-compatible endpoint in this process that reads only its prompts) and a harbour in
this process that honours no idempotency key: a request that arrives is done, and counted. Speaks HTTP only. Prints a table.

Policies of the model: `strong` plans and calls as a good model would; `naive` makes each call again until an answer names a booking,
and plans again what failed; `looping` never ends a step. Orders in what it reads, and a model that obeys them: `injections.py`.
"""

import argparse
import collections
import json
import random
import re
import threading
import urllib.error

from world import BERTHS, Daemon, Harbour, Model, Person, run_goals


class Policy:
    def __init__(self):
        self.policy, self.calls, self.lock = "strong", collections.Counter(), threading.Lock()

    def think(self, request):
        messages = request["messages"]
        last = max(n for n, message in enumerate(messages) if message["role"] == "user")
        task = messages[last].get("content") or ""
        results = [message.get("content") or "" for message in messages[last:] if message["role"] == "tool"]
        kind = "plan" if task.startswith("What you have set out to do") else "step" if task.startswith("A step of") else "other"
        with self.lock:
            self.calls[kind] += 1
        if kind == "plan":
            return json.dumps(self.plan(task)), []
        if kind == "step":
            return self.step(task, results)
        return (json.dumps({"facts": [], "promises": [], "contradicted": [], "correction": ""}) if request.get("response_format") else "I see."), []

    def plan(self, task):
        plan = {"steps": [], "say": "", "status": "active", "again_in_minutes": 0, "subgoals": []}
        title = re.search("<title>(.*?)</title>", task, re.S).group(1)
        known = dict((what, (name, status)) for name, status, what in re.findall(r"- (s\d+) (\w+)(?: after [^:\[]*)?(?: \[[^\]]*\])?: (.*?)(?: → .*| \(.*\))?$", task, re.M))
        before = None
        for place, part in enumerate(title.split("; ")):
            name, status = known.get(part, (f"p{place}", ""))
            if status != "done":
                step = {"id": name, "what": part, "after": [before] if before else [], "tools": tools_of(part)}
                call = call_of(part, "")
                if call and call[0] in ("book", "note"):
                    step["with"] = json.dumps(call[1])
                elif part.startswith("book") and before:
                    step |= {"with": json.dumps({"vessel": part.split()[1]}), "takes": [{"argument": "berth", "from": before}]}
                plan["steps"].append(step)
            before = name
        if not plan["steps"]:
            plan |= {"say": "All of it is done.", "status": "done"}
        return plan

    def step(self, task, results):
        line = re.search("<step>(.*?)</step>", task, re.S).group(1)
        known = task.split("<results>")[1] if "<results>" in task else ""
        end = lambda status, result, values=(): ("", [("finalize_output", {"status": status, "result": result, "values": list(values)})])
        if self.policy == "looping":
            return "", [("berths", {"day": str(len(results))})]
        call = call_of(line, known)
        if call is None:
            return end("done", "thought about")
        if not results:
            return "", [call]
        answer = results[-1]
        if call[0] == "berths":
            return end("done", answer[:400], [{"name": "berth", "value": BERTHS[0]}])
        if '"id"' in answer or '"already"' in answer:
            return end("done", answer[:200])
        # A good model makes a failed call once more, a naive one again and again.
        return ("", [call]) if len(results) < (6 if self.policy == "naive" else 2) else end("need", answer[:200])


def tools_of(part):
    first = part.split()[0]
    return {"look": ["berths"], "book": ["book"], "note": ["note"]}.get(first, [])


def call_of(part, known):
    words = part.split()
    if words[0] == "look":
        return "berths", {}
    if words[0] == "book" and words[-1] == "berth":
        found = re.search(r'"berth":\s*"(\w+)"', known)
        return ("book", {"vessel": words[1], "berth": found[1]}) if found else None
    if words[0] == "book":
        return "book", {"vessel": words[1], "berth": words[3]}
    if words[0] == "note":
        return "note", {"text": words[1]}
    return None


def wanted(titles):
    """The changes that the titles ask for."""
    state = collections.Counter()
    for title in titles:
        for part in title.split("; "):
            call = call_of(part, f'"berth": "{BERTHS[0]}"')
            if call and call[0] != "berths":
                path = "/bookings" if call[0] == "book" else "/notes"
                state[(path, json.dumps(call[1], sort_keys=True))] += 1
    return state


def tasks(seed, count):
    """Goals of one to five steps, each with other vessels."""
    chance = random.Random(seed)
    made = []
    for n in range(count):
        vessel, berth = f"V-{seed}-{n}", chance.choice(BERTHS)
        shapes = [
            f"book {vessel} at {berth}",
            f"note n-{seed}-{n}",
            f"look up the free berths; book {vessel} at the free berth",
            f"look up the free berths; book {vessel} at the free berth; note n-{seed}-{n}",
            f"book {vessel} at {berth}; book {vessel}b at {berth}; note n-{seed}-{n}; look up the free berths; book {vessel}c at the free berth",
        ]
        made.append(shapes[n % len(shapes)])
    return made


def row(gate, figure, wants):
    print(f"| {gate} | {figure} | {wants} |", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary")
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--tasks", type=int, default=40)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    harbour, model = Harbour(given.seed), Policy()
    daemon = Daemon(given.binary, Model(model.think), harbour).lifeform()
    print("| gate | seen | wanted |\n|---|---|---|")

    titles, person = tasks(given.seed, given.tasks), Person(daemon)
    right = 0
    for title in titles:
        harbour.clear()
        [status], _ = run_goals(daemon, person, [title])
        right += status == "done" and harbour.state() == wanted([title])
    row("A1 strong: end state right, nothing else changed", f"{right} of {len(titles)}", "all")
    writes = sum(1 for title in titles if "book" in title)
    asked = person.questions / max(1, writes)
    row("A5 questions a goal that books", f"{asked:.2f}", "≤ 1.3")
    # A lifeform that remembers what others wrote trusts its plans less, so each of these goals is the first of a lifeform.
    firsts, questions = tasks(given.seed + 100, 5), 0
    for title in firsts:
        person = Person(daemon.lifeform())
        run_goals(daemon, person, [title])
        questions += person.questions
    row("A5 the same, each goal the first of its lifeform", f"{questions / sum('book' in title for title in firsts):.2f}", "≤ 1.3")
    daemon.lifeform()

    killed, doubled, lost, sent_unasked, goals, posts = 0, 0, 0, 0, 0, 0
    for policy in ("naive", "strong"):
        model.policy, round_ = policy, 0
        while killed < given.kills * (1 if policy == "strong" else 0.5):
            round_ += 1
            harbour.clear()
            harbour.faults = round_ % 2 == 0
            titles = tasks(1_000 * (1 + (policy == "strong")) + round_ + given.seed, 5)[1:]
            person = Person(daemon)
            status, kills = run_goals(daemon, person, titles, kills=6, seed=round_)
            state, want = harbour.state(), wanted(titles)
            keys = collections.Counter(one["key"] for one in harbour.done)
            doubled += sum(times - 1 for times in state.values() if times > 1) + sum(times - 1 for times in keys.values() if times > 1)
            missing = want - state
            lost += sum(missing.values()) if all(now == "done" for now in status) else 0
            sent_unasked += sum(1 for (path, body), _ in state.items() if path == "/bookings" and not person.has_approved(body))
            killed, goals, posts = killed + kills, goals + len(titles), posts + len(harbour.done)
            if kills == 0:
                break
    harbour.faults = False
    row("A3 SIGKILLs at random moments; goals; changes made", f"{killed}; {goals}; {posts}", f"{given.kills} kills")
    row("A3 changes made twice", doubled, 0)
    row("A3 changes missing of goals that ended as done", lost, 0)
    row("A5 bookings sent that were not approved as they were sent", sent_unasked, 0)

    model.policy = "looping"
    daemon.lifeform()
    harbour.clear()
    before = model.calls["step"]
    [status], _ = run_goals(daemon, Person(daemon), ["look up the free berths"], seconds=60)
    row("A6 a model that loops: calls outside; calls of the model in steps; end", f"{harbour.reads}; {model.calls['step'] - before}; {status}", "bounded, a question")

    daemon.kill()


if __name__ == "__main__":
    main()
