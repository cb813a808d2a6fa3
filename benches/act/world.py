"""A small harbour that counts what is done to it, a scripted model, a daemon and a person, for the benchmarks beside this file."""

import collections
import http.server
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

TOKEN = "act-bench-0123456789abcdef"
START_S, GOAL_S = 300, 120
BERTHS = [f"Q{n}" for n in range(1, 9)]


def serve(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    # A daemon that is killed leaves its connections open.
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


class Harbour:
    """Books and keeps notes, and counts each by its key. With `faults`, one request in four is slow, answered by 502 after it was
    done, or cut off after it was done."""

    def __init__(self, seed):
        self.lock, self.random = threading.Lock(), random.Random(seed)
        self.faults, self.said = False, ""
        self.done, self.reads = [], 0
        # Further pages as pairs of status and body, by path; all GET requests; and what answers as an MCP server.
        self.pages, self.asked, self.server = {}, [], None
        harbour = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body):
                data = json.dumps(body, ensure_ascii=False).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                with harbour.lock:
                    harbour.asked.append(urllib.parse.unquote_plus(self.path))
                if page := harbour.pages.get(url.path):
                    return self.answer(*page)
                if url.path == "/berths":
                    with harbour.lock:
                        harbour.reads += 1
                    return self.answer(200, {"free": BERTHS[:3], "note": harbour.said or "Calm sea."})
                key = urllib.parse.parse_qs(url.query).get("key", [""])[0]
                found = [one for one in harbour.done if one["key"] == key]
                self.answer(200, {"state": "done", "id": found[0]["id"]}) if found else self.answer(404, {"error": "none"})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
                if self.path == "/mcp":
                    return self.answer(200, harbour.server.answer(body)) if "id" in body else self.answer(202, {})
                with harbour.lock:
                    number, fault = len(harbour.done) + 1, harbour.random.random() if harbour.faults else 1.0
                    harbour.done.append({"key": self.headers["idempotency-key"], "path": self.path, "body": body, "id": f"B{number}"})
                time.sleep(0.3 if fault < 0.15 else 0.02)
                if fault < 0.08:
                    return self.answer(502, {"error": "lost"})
                if fault < 0.12:
                    return self.connection.close()
                self.answer(200, {"id": f"B{number}"})

        self.port = serve(Handler)

    def clear(self):
        with self.lock:
            self.done, self.reads, self.asked = [], 0, []

    def state(self):
        """What was done, each with the number of times."""
        with self.lock:
            return collections.Counter((one["path"], json.dumps(one["body"], sort_keys=True)) for one in self.done)


class Model:
    """An OpenAI-compatible endpoint that answers with what `think(request)` returns: a text, and calls as pairs of name and arguments."""

    def __init__(self, think):
        model = self
        self.think = think

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                text, calls = model.think(request)
                calls = [
                    {"index": n, "id": f"c{random.randrange(1 << 40)}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                    for n, (name, given) in enumerate(calls)
                ]
                used = sum(len(str(message.get("content"))) for message in request["messages"]) // 4
                usage = {"prompt_tokens": used, "completion_tokens": 20, "total_tokens": used + 20}
                message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
                choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop"}
                whole = {"id": "c", "created": 0, "model": "scripted"}
                if request.get("stream"):
                    whole["object"] = "chat.completion.chunk"
                    events = [{"choices": [{"index": 0, "delta": message}]}, {"choices": [choice | {"delta": {}}], "usage": usage}]
                    body = "".join(f"data: {json.dumps(whole | event)}\n\n" for event in events) + "data: [DONE]\n\n"
                    kind = "text/event-stream"
                else:
                    whole |= {"object": "chat.completion", "choices": [choice | {"message": message}], "usage": usage}
                    body, kind = json.dumps(whole), "application/json"
                data = body.encode()
                try:
                    self.send_response(200)
                    self.send_header("content-type", kind)
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass

        self.port = serve(Handler)


def until(seconds, what, found):
    end = time.time() + seconds
    while time.time() < end:
        try:
            if (value := found()) not in (None, False):
                return value
        except (urllib.error.URLError, OSError, ValueError, KeyError):
            pass
        time.sleep(0.05)
    raise SystemExit(f"no {what} in {seconds} s")


class Daemon:
    def __init__(self, binary, model, harbour, embedder="none", more=""):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.base = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.home, self.binary, self.harbour = tempfile.mkdtemp(prefix="act-"), binary, harbour
        self.config = os.path.join(self.home, "lifeformd.toml")
        host = f"127.0.0.1:{harbour.port}"
        with open(self.config, "w") as file:
            file.write(f'[models]\nembedded = "none"\nembedder = "{embedder}"\n')
            file.write(f'[providers.scripted]\nbase_url = "http://127.0.0.1:{model.port}/v1"\ncan = {{ tools = true }}\n')
            file.write('[tiers.standard]\nprovider = "scripted"\nmodel = "scripted"\ncontext_tokens = 16384\n')
            file.write(f'[tools.hosts."{host}"]\nplain = true\nprivate = true\n{more}')
        self.log = open(os.path.join(self.home, "log"), "a")
        self.start()
        tool = lambda method, path, **more: {"run": {"http": {"method": method, "url": f"http://{host}{path}"}}, **more}
        words = lambda *names: {"type": "object", "required": list(names), "additionalProperties": False, "properties": {name: {"type": "string"} for name in names}}
        look = {"settle": {
            "run": {"http": {"url": f"http://{host}/find", "query": ["key"]}}, "arguments": {"key": "{{effect}}"}, "after_s": 1,
            "done": {"at": "/state", "is": {"const": "done"}}, "absent": {"at": "/error", "is": {"type": "string", "pattern": "404"}},
        }}
        berths = {"description": "Lists the free berths.", "parameters": {"type": "object", "properties": {"day": {"type": "string"}}}}
        self.ask("PUT", "/v1/tools/berths", tool("GET", "/berths", **berths))
        self.ask("PUT", "/v1/tools/book", tool("POST", "/bookings", description="Books a berth for a vessel.", parameters=words("vessel", "berth"), **look))
        note = {"description": "Keeps a note in the log.", "parameters": words("text"), "approval": "never"}
        self.ask("PUT", "/v1/tools/note", tool("POST", "/notes", **note))

    def start(self):
        environment = dict(os.environ, LIFEFORMD_TOKEN=TOKEN, LIFEFORMD_LISTEN=self.base.removeprefix("http://"))
        command = [self.binary, "up", "--config", self.config, "--data", os.path.join(self.home, "data")]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        until(START_S, "a healthy daemon", lambda: self.ask("GET", "/health"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, method, path, body=None, token=TOKEN):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.base + path, data, method=method)
        request.add_header("authorization", f"Bearer {token}")
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return json.loads(text) if text else {}

    def lifeform(self, **more):
        definition = {
            "name": "Iris", "nutrients": {"tokens": 500_000_000, "micro_usd": 0}, "tools": [{"use": name} for name in ("berths", "book", "note")],
            "initiative": {"unasked_per_day": 1000, "upkeep": False, "thoughts": False}, **more,
        }
        self.life = f"/v1/lifeforms/{self.ask('POST', '/v1/lifeforms', {'definition': definition})['id']}"
        self.ask("POST", f"{self.life}/start", {})
        return self


class Person:
    """Approves what waits, and tells the truth about calls of which nobody knows. Keeps what was shown."""

    def __init__(self, daemon, approves=True):
        self.daemon, self.approves = daemon, approves
        self.approved, self.questions, self.seen = [], 0, set()

    def look(self):
        for one in self.daemon.ask("GET", "/v1/approvals")["approvals"]:
            # A question about the tokens of a goal has no calls.
            calls = one.get("calls", [])
            is_unsure = any(call["unsure"] for call in calls)
            if one["id"] not in self.seen:
                self.seen.add(one["id"])
                self.questions += 1
            if not self.approves:
                continue
            decision = {"decision": "approve"}
            if is_unsure:
                body = json.dumps(calls[0]["arguments"], sort_keys=True)
                is_done = any(json.dumps(done["body"], sort_keys=True) == body for done in self.daemon.harbour.done)
                decision = {"decision": "done", "comment": '{"id": "B0"}'} if is_done else decision
            else:
                self.approved += [(call["arguments"], call["takes"]) for call in calls]
            try:
                self.daemon.ask("POST", f"/v1/approvals/{one['id']}", decision)
            except urllib.error.HTTPError:
                pass


    def has_approved(self, body):
        """Whether a booking is one that was shown, with what the look-up found where the question left that open."""
        body, found = json.loads(body), {"berth": BERTHS[0]}
        return any(body == arguments | {name: found.get(name) for name in takes} for arguments, takes in self.approved)


def run_goals(daemon, person, titles, kills=0, seed=0, seconds=GOAL_S):
    """Sets goals and waits for their ends. Kills the daemon `kills` times in between. Returns the status of each."""
    chance, left = random.Random(seed), kills
    goals = [daemon.ask("POST", f"{daemon.life}/goals", {"title": title})["id"] for title in titles]
    end, next_kill = time.time() + seconds, time.time() + chance.uniform(0.02, 0.4)
    status = {}
    while time.time() < end:
        try:
            person.look()
            status = {goal: daemon.ask("GET", f"{daemon.life}/goals/{goal}")["status"] for goal in goals}
        except (urllib.error.URLError, OSError):
            pass
        if status and all(now in ("done", "blocked", "dropped") for now in status.values()):
            return [status[goal] for goal in goals], kills - left
        if left and time.time() >= next_kill:
            daemon.kill()
            daemon.start()
            left, next_kill = left - 1, time.time() + chance.uniform(0.02, 0.6)
        time.sleep(0.02)
    return [status.get(goal, "open") for goal in goals], kills - left
