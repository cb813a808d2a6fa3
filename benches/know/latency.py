#!/usr/bin/env python3
"""Measures what the size of a mind adds to the time before a prompt, without an embedder.

    python3 benches/know/latency.py LIFEFORMD [--concepts 0,100000] [--questions 120]

Fills minds with statements, people, places and their claims by KIP, asks each the same questions, and takes the time from the message
to the prompt that the recording model receives. The row of the empty mind is the floor. All recalls that the daemon logs meanwhile
(`LIFEFORMD_LOG=lifeform=debug`) are timed, too: also those after an answer, which look for what a message corrects. The command of the chain alone is timed over HTTP, beside a command that finds one concept by
its name.
"""

import argparse
import os
import pathlib
import re
import sys
import threading
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "life"))
import run as life  # noqa: E402

TOGETHER = 100
# A lifeform answers one person so often a minute.
EVERY_S = 1.05
PLACES = 500
CHAIN = """FIND(?n0, ?n1, ?n2, ?f1, ?f2, ?l1.metadata, ?l2.metadata) WHERE {
  ?n0 {type: "Person", name: "user:ada"}
  ?l1 (?n0, "friend_of", ?n1)
  ?l2 (?n1, "lives_in", ?n2) FILTER(?n2.attributes.key == $place)
  (?f1, "states", ?l1) FILTER(?f1.metadata.status == "active" && ?l1.metadata.status == "active")
  (?f2, "states", ?l2) FILTER(?f2.metadata.status == "active" && ?l2.metadata.status == "active")
} LIMIT 2000"""


class Timed(life.Handler):
    arrived = threading.Event()
    at = 0.0

    def do_POST(self):
        Timed.at = time.perf_counter()
        Timed.arrived.set()
        super().do_POST()


def fill(daemon, mind, concepts):
    """One person in four hundred is a friend of Ada's; the others are neighbours of one another."""
    people = concepts // 2
    kip = lambda command: daemon.ask("POST", f"/v1/nexus/{mind}/kip", {"command": command})
    for start in range(0, people, TOGETHER):
        blocks = []
        for n in range(start, min(start + TOGETHER, people)):
            place = n % PLACES
            metadata = 'source: "bench", author: "user:ada", status: "active", access_scopes: ["user:ada"], heard_by: ["user:ada"]'
            of = f'{{type: "Person", name: "user:ada"}}' if n % 400 == 0 else f'{{type: "Person", name: "Person{n - 1} x"}}'
            predicate = "friend_of" if n % 400 == 0 else "neighbour_of"
            blocks.append(
                f'CONCEPT ?p{n} {{ {{type: "Person", name: "Person{n} x"}} SET ATTRIBUTES {{ id: "heard:{n}", name: "Person{n}", key: "person{n}", person_class: "Human" }} }} '
                f'WITH METADATA {{ source: "formation", status: "active", access_scopes: ["user:ada"] }}\n'
                f'CONCEPT ?t{n} {{ {{type: "Place", name: "Town{place}"}} SET ATTRIBUTES {{ name: "Town{place}", key: "town{place}" }} }} '
                f'WITH METADATA {{ source: "formation", status: "active" }}\n'
                f'CONCEPT ?f{n} {{ {{type: "Fact", name: "Person{n} lives in Town{place}, and likes the number {n * 7919 % 99991}."}} '
                f'SET ATTRIBUTES {{ statement: "Person{n} lives in Town{place}, and likes the number {n * 7919 % 99991}.", subject: "Person{n}", topic: "told", message: "m{n}", among: ["user:ada"], stated_at: "2026-01-01T00:00:00Z" }} }} '
                f'WITH METADATA {{ source: "bench", author: "user:ada", status: "active", confidence: 0.8, access_scopes: ["user:ada"] }}\n'
                f'PROPOSITION ?l{n} {{ (?p{n}, "lives_in", ?t{n}) }} WITH METADATA {{ {metadata} }}\n'
                f'PROPOSITION ?r{n} {{ ({of}, "{predicate}", ?p{n}) }} WITH METADATA {{ {metadata} }}\n'
                f'PROPOSITION {{ (?f{n}, "states", ?l{n}) }} WITH METADATA {{ {metadata} }}\n'
                f'PROPOSITION {{ (?f{n}, "states", ?r{n}) }} WITH METADATA {{ {metadata} }}\n'
                f'PROPOSITION {{ (?f{n}, "mentions", ?p{n}) }} WITH METADATA {{ {metadata} }}'
            )
        answer = kip("UPSERT {\n" + "\n".join(blocks) + "\n}")
        if answer.get("error"):
            raise SystemExit(answer["error"])


def recalls(daemon):
    """The times of the recalls so far, in seconds."""
    return [int(micros) / 1e6 for micros in re.findall(r"recalled.* micros=(\d+)", open(daemon.log.name).read())]


def percentile(times, share):
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000


def timed(count, act):
    times = []
    for n in range(count):
        start = time.perf_counter()
        end = act(n)
        times.append((end or time.perf_counter()) - start)
    return times


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary")
    arguments.add_argument("--concepts", default="0,100000")
    arguments.add_argument("--questions", type=int, default=120)
    given = arguments.parse_args()
    life.Handler = Timed
    recorder = life.Recorder()
    os.environ["LIFEFORMD_LOG"] = "info,lifeform=debug"
    daemon = life.Daemon(given.binary, recorder, models='embedder = "none"\nmultilingual_embedder = "none"\n')
    try:
        token = daemon.person("ada")
        print("| concepts | fill, s | to the prompt, p50 ms | p99 ms | all recalls, p50 ms | p99 ms | chain by KIP, p50 ms | p99 ms | one concept by KIP, p50 ms | p99 ms |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for concepts in [int(count) for count in given.concepts.split(",")]:
            chat = daemon.lifeform()
            mind = chat.split("/")[3]
            said = life.Talk(daemon, recorder, chat)
            place = said.topic("free")
            # The first statement with a claim brings the types of claims.
            life.slowly(lambda: daemon.ask("POST", place, {"content": "My friend Person0 lives in Town0."}, token))
            find = {"command": 'FIND(?t) WHERE { ?t {type: "$PropositionType", name: "states"} }'}
            life.until(60, "the types of claims", lambda: daemon.ask("POST", f"/v1/nexus/{mind}/kip", find).get("result"))
            start = time.perf_counter()
            fill(daemon, mind, concepts)
            filled = time.perf_counter() - start

            def ask(n):
                begun = time.perf_counter()
                Timed.arrived.clear()
                life.slowly(lambda: daemon.ask("POST", place, {"content": f"Which of my friends live in Town{n * 7 % PLACES}?"}, token))
                if not Timed.arrived.wait(30):
                    raise SystemExit("no prompt came")
                at = Timed.at
                time.sleep(max(0, EVERY_S - (time.perf_counter() - begun)))
                return at

            kip = lambda command, parameters: daemon.ask("POST", f"/v1/nexus/{mind}/kip", {"command": command, "parameters": parameters}) and None
            ask(0)
            before = len(recalls(daemon))
            prompts = timed(given.questions, ask)
            recalled = recalls(daemon)[before:]
            chains = timed(given.questions, lambda n: kip(CHAIN, {"place": f"town{n * 7 % PLACES}"}))
            ones = timed(given.questions, lambda n: kip('FIND(?p) WHERE { ?p {type: "Person", name: $name} }', {"name": f"Person{n} x"}))
            cells = [f"{percentile(times, share):.1f}" for times in (prompts, recalled, chains, ones) for share in (0.5, 0.99)]
            print(f"| {concepts} | {filled:.0f} | " + " | ".join(cells) + " |", flush=True)
    finally:
        daemon.end()
        recorder.shutdown()


if __name__ == "__main__":
    main()
