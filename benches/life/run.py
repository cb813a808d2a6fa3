#!/usr/bin/env python3
"""Counts the facts of a person in the prompts of a lifeform.

    python3 benches/life/run.py LIFEFORMD [--distractors 0,200,2000] [--locomo locomo10.json] [--languages en,zh,ja]

Starts the daemon with a recording model (an OpenAI-compatible endpoint in this process, which answers at once) and the embedder of
its configuration, speaks HTTP only, and therefore measures any version of the daemon. A hit is the fact's sentence in the first
prompt of the answer. Distractors are said by the same person; half of them are templates, half sentences of LoCoMo if its file is
given (it is not shipped: CC BY-NC 4.0).
"""

import argparse
import http.server
import json
import os
import random
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

TOKEN = "life-bench-0123456789abcdef"
START_S, ANSWER_S = 300, 120


class Recorder(http.server.ThreadingHTTPServer):
    """A model that answers at once, and keeps the prompts of answers."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.prompts, self.cards, self.calls, self.guard, self.says = [], [], 0, threading.Lock(), "Noted."
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        schema = (request.get("response_format") or {}).get("json_schema", {}).get("schema")
        text = json.dumps(least(schema)) if schema else self.server.says
        with self.server.guard:
            self.server.calls += 1
            if not schema:
                self.server.prompts.append(request["messages"])
                self.server.cards.append(about(json.dumps(request["tools"], separators=(",", ":"))) if request.get("tools") else 0)
        usage = {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102}
        if request.get("stream"):
            choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
            end = {"index": 0, "delta": {}, "finish_reason": "stop"}
            events = [{"choices": [choice]}, {"choices": [end]}, {"choices": [], "usage": usage}]
            head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "recorder"}
            body = "".join(f"data: {json.dumps(head | event)}\n\n" for event in events) + "data: [DONE]\n\n"
            kind = "text/event-stream"
        else:
            message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            whole = {"id": "c", "object": "chat.completion", "created": 0, "model": "recorder", "choices": [message], "usage": usage}
            body, kind = json.dumps(whole), "application/json"
        data = body.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def least(schema):
    """The smallest value that fits a schema of the shipped fascicles."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: least(schema["properties"][name]) for name in schema.get("required", [])}
    return {"array": [], "string": "", "integer": schema.get("minimum", 0), "boolean": False}.get(kind)


class Daemon:
    def __init__(self, binary, recorder, tools=True, models=""):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.base = f"http://127.0.0.1:{free.getsockname()[1]}"
        home = tempfile.mkdtemp(prefix="life-")
        config = os.path.join(home, "lifeformd.toml")
        with open(config, "w") as file:
            file.write(f'[models]\nembedded = "none"\n{models}[providers.recorder]\nbase_url = "http://127.0.0.1:{recorder.server_port}/v1"\n')
            file.write("" if tools else "can = { tools = false }\n")
            file.write('[tiers.standard]\nprovider = "recorder"\nmodel = "recorder"\ncontext_tokens = 8192\n')
        environment = dict(os.environ, LIFEFORMD_TOKEN=TOKEN, LIFEFORMD_LISTEN=self.base.removeprefix("http://"))
        command = [binary, "up", "--config", config, "--data", os.path.join(home, "data")]
        self.log = open(os.path.join(home, "log"), "w")
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        until(START_S, "a healthy daemon", lambda: self.ask("GET", "/health"))

    def ask(self, method, path, body=None, token=TOKEN):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.base + path, data, method=method)
        request.add_header("authorization", f"Bearer {token}")
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def person(self, name):
        return self.ask("POST", "/v1/tokens", {"principal": f"user:{name}", "role": "participant"})["token"]

    def lifeform(self, tokens=500_000_000):
        definition = {"name": "Iris", "nutrients": {"tokens": tokens, "micro_usd": 0}}
        life = self.ask("POST", "/v1/lifeforms", {"definition": definition})["id"]
        self.ask("POST", f"/v1/lifeforms/{life}/start", {})
        return f"/v1/lifeforms/{life}/canvases/canvas_chat_main"

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def until(seconds, what, found):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if result := found():
                return result
        except OSError:
            pass
        time.sleep(0.02)
    raise SystemExit(f"{what} did not come within {seconds} s")


def slowly(post):
    """Posts again after the time that a refusal names, where the pace is bounded."""
    while True:
        try:
            return post()
        except urllib.error.HTTPError as error:
            if error.code != 429:
                raise SystemExit(f"{error.code}: {error.read().decode()}")
            time.sleep(float(error.headers.get("retry-after", 1)))


class Talk:
    def __init__(self, daemon, recorder, chat):
        self.daemon, self.recorder, self.chat, self.topics = daemon, recorder, chat, 0

    def topic(self, turns="free", token=TOKEN):
        self.topics += 1
        name = f"t{self.topics}"
        body = {"id": name, "title": name, "turns": turns}
        slowly(lambda: self.daemon.ask("POST", f"{self.chat}/topics", body, token))
        return f"{self.chat}/topics/{name}/messages"

    def tell(self, sentences, token=TOKEN):
        """Says sentences that need no answer, and waits until the mind holds the last one."""
        place = self.topic("mentioned", token)
        for sentence in sentences:
            slowly(lambda: self.daemon.ask("POST", place, {"content": sentence}, token))
        mind = self.chat.split("/")[3]
        find = {"command": "FIND(?f.attributes.statement) WHERE { ?f {type: \"Fact\"} FILTER(?f.attributes.statement == $s) }",
                "parameters": {"s": sentences[-1]}}
        until(600, "the last fact", lambda: self.daemon.ask("POST", f"/v1/nexus/{mind}/kip", find).get("result"))

    def ask(self, question, token=TOKEN):
        """Asks in a topic of its own and returns the first prompt of the answer."""
        place, before = self.topic(token=token), len(self.recorder.prompts)
        slowly(lambda: self.daemon.ask("POST", place, {"content": question}, token))
        said = lambda messages: any((message.get("content") or "").endswith(question) for message in messages)
        answers = lambda: [messages for messages in self.recorder.prompts[before:] if said(messages)]
        return until(ANSWER_S, f"an answer to {question}", answers)[0]


def notes_in(prompt):
    """Returns a prompt without its last message, which is the question."""
    return "\n".join(message.get("content") or "" for message in prompt[:-1])


def distractors(count, locomo, seed):
    random.seed(seed)
    rooms, things = ["kitchen", "attic", "garage", "garden", "hall", "cellar"], ["chair", "lamp", "rug", "clock", "mirror", "basket"]
    verbs = ["painted", "moved", "repaired", "bought", "cleaned", "sold"]
    made = [f"I {random.choice(verbs)} the {random.choice(things)} number {n} in the {random.choice(rooms)}." for n in range(count)]
    if not locomo:
        return made
    talks = json.load(open(locomo))
    turns = [turn["text"] for talk in talks for key, session in talk["conversation"].items()
             if re.fullmatch(r"session_\d+", key) for turn in session]
    sentences = [part.strip() for turn in turns for part in re.split(r"(?<=[.!])\s", turn)]
    first_person = [one for one in dict.fromkeys(sentences) if 20 <= len(one) <= 300 and re.match(r"(I|My|We)\b", one) and one[-1] == "."]
    random.shuffle(first_person)
    half = first_person[: count // 2]
    mixed = made[: count - len(half)] + half
    random.shuffle(mixed)
    return mixed


def recall(binary, facts, count, locomo):
    recorder = Recorder()
    daemon = Daemon(binary, recorder)
    try:
        talk = Talk(daemon, recorder, daemon.lifeform())
        other = distractors(count, locomo, 7)
        told = [fact for fact, _, _ in facts]
        random.seed(11)
        mixed = told + other
        random.shuffle(mixed)
        talk.tell(mixed)
        # The vectors of what was told are made in the background.
        mind = talk.chat.split("/")[3]
        search = {"command": "SEARCH CONCEPT \"boat\" MODE \"hybrid\" LIMIT 1"}
        until(900, "all vectors", lambda: "warnings" not in daemon.ask("POST", f"/v1/nexus/{mind}/kip", search))
        hits, tokens, times = [0, 0], [], []
        for fact, literal, other_words in facts:
            for at, question in enumerate([literal, other_words]):
                began = time.monotonic()
                prompt = talk.ask(question)
                times.append(time.monotonic() - began)
                hits[at] += fact in notes_in(prompt)
                tokens.append(sum(about(message.get("content") or "") for message in prompt))
        return hits, sum(tokens) / len(tokens), sorted(times)[len(times) // 2] * 1000
    finally:
        daemon.end()
        recorder.shutdown()


def forgetting(binary, facts, request):
    """The facts that a person asked to forget and that stand in a later prompt."""
    recorder = Recorder()
    daemon = Daemon(binary, recorder)
    try:
        talk = Talk(daemon, recorder, daemon.lifeform())
        ada = daemon.person("ada")
        talk.tell([fact for fact, _, _ in facts], ada)
        place = talk.topic(token=ada)
        for fact, _, _ in facts:
            content = request.format(fact.rstrip(".。"))
            said = slowly(lambda: daemon.ask("POST", place, {"content": content}, ada))["id"]
            answers = lambda: [one for one in daemon.ask("GET", place)["messages"] if one.get("reply_to") == said and one["status"] == "final"]
            until(ANSWER_S, "a confirmation", answers)
        return sum(fact in notes_in(talk.ask(question, ada)) for fact, question, _ in facts)
    finally:
        daemon.end()
        recorder.shutdown()


def promises(binary, answers):
    """The answers that promise something for later, while neither the agenda has it nor the lifeform withdraws it."""
    recorder = Recorder()
    daemon = Daemon(binary, recorder)
    try:
        chat = daemon.lifeform()
        talk, kept = Talk(daemon, recorder, chat), 0
        for answer in answers:
            recorder.says = answer
            place = talk.topic()
            slowly(lambda: daemon.ask("POST", place, {"content": "Is that all right?"}))
            def is_kept():
                said = [one["content"] for one in daemon.ask("GET", place)["messages"]]
                agenda = daemon.ask("GET", chat.split("/canvases/")[0] + "/schedules")["schedules"]
                return agenda or any("do not rely on it" in text for text in said)
            try:
                until(10, "an entry", is_kept)
                kept += 1
            except SystemExit:
                pass
        return len(answers) - kept
    finally:
        daemon.end()
        recorder.shutdown()


def cost(binary, tokens, tools=True, messages=20):
    """The mean tokens of an answer's first prompt without its history, of its tools, and the calls an answer, with this budget."""
    recorder = Recorder()
    daemon = Daemon(binary, recorder, tools)
    try:
        talk = Talk(daemon, recorder, daemon.lifeform(tokens))
        firsts = []
        for n in range(messages):
            prompt = talk.ask(f"Is number {n} a prime?")
            firsts.append(sum(about(message.get("content") or "") for message in prompt if message["role"] == "system"))
        time.sleep(2)
        return sum(firsts) / len(firsts), sum(recorder.cards) / max(len(recorder.cards), 1), recorder.calls / messages
    finally:
        daemon.end()
        recorder.shutdown()


def about(text):
    ascii_chars = sum(c.isascii() for c in text)
    return -(-ascii_chars // 4) + len(text) - ascii_chars


def strangers(binary, facts):
    """The prompts of a second person that hold a fact which the first said where the second was not."""
    recorder = Recorder()
    daemon = Daemon(binary, recorder)
    try:
        talk = Talk(daemon, recorder, daemon.lifeform())
        ada, ben = daemon.person("ada"), daemon.person("ben")
        told = [fact for fact, _, _ in facts]
        talk.tell(told, ada)
        prompts = [notes_in(talk.ask(question, ben)) for _, question, _ in facts]
        return sum(any(fact in prompt for fact in told) for prompt in prompts)
    finally:
        daemon.end()
        recorder.shutdown()


def long_talk(binary, messages=110):
    """The messages of a talk that are, at an answer, neither in the prompt nor before the end of a summary."""
    recorder = Recorder()
    daemon = Daemon(binary, recorder)
    try:
        talk = Talk(daemon, recorder, daemon.lifeform())
        place = talk.topic()
        ords, lost = [], set()
        for n in range(messages):
            content = f"Is it known to you that the item {n:03} was seen again near the old mill by the river this week?"
            before = len(recorder.prompts)
            ords.append(f"{slowly(lambda: daemon.ask('POST', place, {'content': content}))['rev']:012}")
            # Summaries are asked for meanwhile, too.
            said = lambda prompt: any((message.get("content") or "").endswith(content) for message in prompt)
            of_answer = lambda: [prompt for prompt in recorder.prompts[before:] if said(prompt)]
            prompt = until(ANSWER_S, "an answer", of_answer)[0]
            prompt = "\n".join(message.get("content") or "" for message in prompt)
            topic = daemon.ask("GET", place.removesuffix("/messages"))
            upto = max((summary["ord"] for summary in (topic.get("summaries") or {}).values()), default="")
            lost |= {m for m in range(n + 1) if f"item {m:03}" not in prompt and ords[m] > upto}
            time.sleep(0.05)
        return len(lost)
    finally:
        daemon.end()
        recorder.shutdown()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("lifeformd")
    arguments.add_argument("--distractors", default="0,200,2000")
    arguments.add_argument("--languages", default="en,zh,ja")
    arguments.add_argument("--locomo")
    asked = arguments.parse_args()
    facts = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "facts.json")))
    print("| what | language | distractors | same words | other words | tokens a prompt | ms to the prompt |\n|---|---|---|---|---|---|---|", flush=True)
    for language in asked.languages.split(","):
        for count in map(int, asked.distractors.split(",")):
            (literal, other_words), tokens, ms = recall(asked.lifeformd, facts[language], count, asked.locomo)
            of = len(facts[language])
            print(f"| facts in the prompt | {language} | {count} | {literal} of {of} | {other_words} of {of} | {tokens:.0f} | {ms:.0f} |", flush=True)
    print(f"| prompts with a stranger's fact | en | 0 | {strangers(asked.lifeformd, facts['en'])} of 20 | – | – | – |", flush=True)
    for language, request in [("en", "Forget that {}."), ("zh", "请忘掉{}。"), ("ja", "{}のことは忘れてください。")]:
        if language in asked.languages.split(","):
            left = forgetting(asked.lifeformd, facts[language][:10], request)
            print(f"| facts in a prompt after they were to be forgotten, of 10 | {language} | 0 | {left} | – | – | – |", flush=True)
    said = ["I will remind you tomorrow at nine.", "Sure, I'll wake you at seven.", "我会提醒你的。", "明日お知らせします。"]
    print(f"| promises with neither an entry nor a withdrawal, of 4 | en, zh, ja | 0 | {promises(asked.lifeformd, said)} | – | – | – |", flush=True)
    for mode, tokens, tools in [("standard", 900_000, True), ("hyper", 500_000_000, True), ("without tools", 900_000, False)]:
        system, card, calls = cost(asked.lifeformd, tokens, tools)
        print(f"| {mode}: tokens of an answer without history / of its tools / calls an answer | en | 0 | {system:.0f} / {card:.0f} / {calls:.1f} | – | – | – |", flush=True)
    print(f"| messages in neither prompt nor summary, of 110 | en | 0 | {long_talk(asked.lifeformd)} | – | – | – |", flush=True)


if __name__ == "__main__":
    main()
