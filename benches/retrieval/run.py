#!/usr/bin/env python3
"""What our search finds, on public sets with evidence labels, posted and asked through the public API.

    python3 benches/retrieval/run.py <lifeformd> <folder with the sets> [locomo cmrc jsquad crowd] [--embedder NAME] [--router lexical hybrid]

The sets are named in benches/README.md with their licences; they are not shipped. Each row says the set's SHA-256, the unit
that is counted, and the router that picked. Everything is asked with default settings: a conversation belongs to a principal
of its own, and no scope, weight or limit is set.
"""

import argparse
import datetime
import hashlib
import http.client
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

TOKEN = "retrieval-bench-operator"


class Daemon:
    """A lifeformd of its own, on a free port and in a folder that goes with it."""

    def __init__(self, binary, embedder, model="none"):
        self.folder = tempfile.TemporaryDirectory()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        environment = dict(
            os.environ,
            LIFEFORMD_TOKEN=TOKEN,
            LIFEFORMD_MODELS__EMBEDDED=model,
            LIFEFORMD_MODELS__EMBEDDER=embedder,
            LIFEFORMD_LOG="warn",
        )
        command = [binary, "up", "--data", self.folder.name, "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sys.stderr)
        for _ in range(600):
            try:
                if Client(self.port, TOKEN).ask("GET", "/health")["status"] == "ok":
                    return
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the daemon does not come up")

    def principal(self, name):
        made = Client(self.port, TOKEN).ask("POST", "/v1/tokens", {"principal": f"user:{name}"})
        return Client(self.port, made["token"])

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


class Client:
    """One connection that stays open."""

    def __init__(self, port, token):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def ask(self, method, path, body=None):
        self.connection.request(method, path, None if body is None else json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        read = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {read.decode()}")
        return json.loads(read)

    def ask_text(self, path, text):
        self.connection.request("POST", path, text.encode(), {**self.headers, "content-type": "text/plain"})
        answer = self.connection.getresponse()
        read = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"POST {path}: {answer.status} {read.decode()}")
        return json.loads(read)

    def save(self, task, content, **more):
        return self.ask("POST", "/api/knowledge", {"task": task, "content": content, "types": ["usecase"], **more})["id"]

    def search(self, question, router):
        query = urllib.parse.urlencode({"q": question, "top_k": 10, "router": router})
        begun = time.perf_counter()
        answer = self.ask("GET", f"/api/knowledge/search?{query}")
        took = time.perf_counter() - begun
        if answer["router"] != router or "degraded" in answer:
            # What has no vector yet is being read; the figures are of what it finds once it is.
            return None, took
        return [hit["id"] for hit in answer["results"]], took

    def settled(self, router):
        """Waits until what was posted can be found by meaning."""
        # A connection that nobody used for a while is closed by the daemon; `http.client` opens the next one.
        self.connection.close()
        while self.search("is it all read", router)[0] is None:
            time.sleep(0.5)


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def said(turn):
    text = f"{turn['speaker']}: {turn.get('text', '')}"
    return text + (f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else "")


def minute(session, at):
    """The time of a turn in a session that began at "1:56 pm on 8 May, 2023": each turn takes a minute."""
    begun = datetime.datetime.strptime(session, "%I:%M %p on %d %B, %Y")
    return (begun + datetime.timedelta(minutes=at)).strftime("%Y-%m-%dT%H:%M:%SZ")


def locomo(file):
    """Conversations: what they consist of, with neighbours, and the questions with the turns that answer them."""
    for sample in json.loads(file.read_text()):
        talk, turns = sample["conversation"], []
        number = 1
        while f"session_{number}" in talk:
            session = talk[f"session_{number}"]
            for at, turn in enumerate(session):
                beside = [said(session[near]) for near in (at - 1, at - 2, at + 1) if 0 <= near < len(session)]
                turns.append((turn["dia_id"], turn["speaker"], said(turn), beside, minute(talk[f"session_{number}_date_time"], at)))
            number += 1
        known = {turn[0] for turn in turns}
        questions = []
        for asked in sample["qa"]:
            evidence = {part for told in asked["evidence"] for part in re.split(r"[;,\s]+", told)} & known
            if evidence:
                questions.append((asked["question"], evidence, asked["category"]))
        yield sample["sample_id"], turns, questions


def paragraphs(file):
    texts, questions = [], []
    for article in json.loads(file.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            texts.append(paragraph["context"])
            questions.extend((asked["question"], len(texts) - 1) for asked in paragraph["qas"])
    return texts, questions


def percentiles(times):
    times = sorted(times)
    return ", ".join(f"{name} {1000 * times[min(len(times) - 1, int(part * len(times)))]:.1f}" for name, part in (("p50", 0.5), ("p99", 0.99)))


def run_locomo(daemon, file, routers, known):
    """Posts each turn: "plain", "with neighbours" as `context`, or "as heard", also with its time and speaker as its source."""
    talks = []
    for name, turns, questions in locomo(file):
        client = daemon.principal(f"{name}-{known.replace(' ', '-')}")
        ids = {}
        for turn, speaker, content, beside, said_at in turns:
            more = {} if known == "plain" or not beside else {"context": beside}
            if known == "as heard":
                more["source"] = {"name": speaker, "timestamp": said_at}
            ids[client.save(f"a talk with {speaker}", content, message_id=turn, **more)] = turn
        talks.append((client, ids, questions))
    for router in routers:
        asked, times, by_kind = [], [], {}
        for client, ids, questions in talks:
            if router == "hybrid":
                client.settled(router)
            for question, evidence, kind in questions:
                hits, took = client.search(question, router)
                hits = [ids.get(hit) for hit in hits]
                found = {at: len(evidence & set(hits[:at])) / len(evidence) for at in (5, 10)}
                rank = next((1 / (at + 1) for at, hit in enumerate(hits) if hit in evidence), 0.0)
                asked.append((found[5], found[10], found[5] > 0, found[10] > 0, rank))
                by_kind.setdefault(kind, []).append(found[10])
                times.append(took)
        means = [100 * sum(column) / len(asked) for column in zip(*asked)]
        kinds = " / ".join(f"{100 * sum(of) / len(of):.1f}" for _, of in sorted(by_kind.items()))
        print(
            f"| LoCoMo turns, {known} ({digest(file)}) | {router} | {len(asked)} | recall@5 {means[0]:.1f}, @10 {means[1]:.1f}; "
            f"any@5 {means[2]:.1f}, @10 {means[3]:.1f}; MRR {means[4]:.1f}; @10 by kind 1–5: {kinds} | {percentiles(times)} |",
            flush=True,
        )


def run_paragraphs(daemon, name, file, routers):
    texts, questions = paragraphs(file)
    client = daemon.principal(name)
    ids = {client.save("a paragraph", text): at for at, text in enumerate(texts)}
    for router in routers:
        if router == "hybrid":
            client.settled(router)
        ranks, times = [], []
        for question, wanted in questions:
            hits, took = client.search(question, router)
            places = [at for at, hit in enumerate(hits) if ids.get(hit) == wanted]
            ranks.append(places[0] + 1 if places else 99)
            times.append(took)
        found = ", ".join(f"R@{at} {100 * sum(rank <= at for rank in ranks) / len(ranks):.1f}" for at in (1, 5, 10))
        print(f"| {name} paragraphs, {len(texts)} ({digest(file)}) | {router} | {len(ranks)} | {found} | {percentiles(times)} |", flush=True)


def run_crowd(daemon, file, count, texts, routers):
    """How long a search takes among many records of one principal: turns of all talks, two by two, drawn by a seed, `texts`
    different ones. Somebody else has a few, so that there is something to hide; an operator sees all."""
    draw = random.Random(7)
    talks = list(locomo(file))
    turns = [content for _, told, _ in talks for _, _, content, *_ in told]
    questions = [question for _, _, asked in talks for question, _, _ in asked]
    told = [(f"talk {at}", f"{draw.choice(turns)} {draw.choice(turns)}") for at in range(min(texts, count))]
    client, neighbour = daemon.principal("crowd"), daemon.principal("neighbour")

    def post(whose, name, told):
        # Without a name of its own, a record of the same text would be the same one.
        lines = [
            json.dumps({"id": f"knowledge-{name}-{at}", "task": task, "content": content, "types": ["usecase"]})
            for at, (task, content) in told
        ]
        done = whose.ask_text("/api/knowledge/import?format=jsonl", "\n".join(lines))
        assert done["imported"] == len(told), done

    begun = time.perf_counter()
    for first in range(0, count, 5_000):
        post(client, "crowd", [(at, told[at % len(told)]) for at in range(first, min(first + 5_000, count))])
    posted = time.perf_counter() - begun
    post(neighbour, "neighbour", list(enumerate(told[:100])))
    for router in routers:
        if router == "hybrid":
            client.settled(router)
        for who, whose in (("who sees all but 100", client), ("an operator", Client(daemon.port, TOKEN))):
            asked = draw.sample(questions, min(1_000, len(questions)))
            whose.search(asked[0], router)
            times = [whose.search(question, router)[1] for question in asked]
            what = f"{count} records of {len(told)} texts ({digest(file)}), imported in {posted:.0f} s, by {who}"
            print(f"| {what} | {router} | {len(asked)} | | {percentiles(times)} |", flush=True)


def main():
    read = argparse.ArgumentParser()
    read.add_argument("binary")
    read.add_argument("data", type=pathlib.Path)
    read.add_argument("sets", nargs="*", default=["locomo", "cmrc", "jsquad"])
    read.add_argument("--embedder", default="none", help="the embedder in the process, or none")
    read.add_argument("--records", type=int, default=100_000, help="of the crowd")
    read.add_argument("--texts", type=int, default=100_000, help="different ones of the crowd: each has to be embedded once")
    read.add_argument("--known", nargs="*", default=["as heard", "with neighbours", "plain"], help="of a LoCoMo turn")
    read.add_argument("--router", nargs="*", default=None)
    options = read.parse_args()
    routers = options.router or (["lexical"] if options.embedder == "none" else ["lexical", "hybrid"])
    print("| set | router | questions | found, % | ms a question, over HTTP |\n|---|---|---|---|---|", flush=True)
    for name in options.sets or ["locomo", "cmrc", "jsquad"]:
        daemon = Daemon(options.binary, options.embedder)
        try:
            if name == "locomo":
                for known in options.known:
                    run_locomo(daemon, options.data / "locomo10.json", routers, known)
            elif name == "crowd":
                run_crowd(daemon, options.data / "locomo10.json", options.records, options.texts, routers)
            elif name == "cmrc":
                run_paragraphs(daemon, "CMRC2018", options.data / "cmrc2018_dev.json", routers)
            else:
                run_paragraphs(daemon, "JSQuAD", options.data / "jsquad_valid_v1.3.json", routers)
        finally:
            daemon.stop()


if __name__ == "__main__":
    main()
