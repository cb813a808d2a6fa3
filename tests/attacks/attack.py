"""What one participant takes from the others: memory, turns of a model, jobs, a lifeform's attention, the disk.

Usage: attack.py small|large. Every attack starts its own daemon on loopback, on a port that is free. `over idle` is the peak of the
resident memory less that just before the attack; `p99` is over the requests that another participant makes meanwhile.
"""

import concurrent.futures
import hashlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SMALL = sys.argv[1:] == ["small"]
OPERATOR = "operator-of-the-attacks-0123456789"
WORKSPACE = tempfile.mkdtemp(prefix="attacks-")
# Memory over idle, and the p99 of others, that an attack must stay below.
OVER_IDLE_MB = 400
P99_S = 1.0


class Model(ThreadingHTTPServer):
    """A provider of the OpenAI protocol that takes its time for what says SLOW."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, slow_s):
        self.slow_s = slow_s
        super().__init__(("127.0.0.1", 0), Answer)

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def handle_error(self, request, client_address):
        pass  # A daemon that is killed hears no answer.

    def config(self):
        tiers = "".join(f'[tiers.{tier}]\nprovider = "mock"\nmodel = "m"\n' for tier in ("economy", "standard", "high"))
        return f'[providers.mock]\nbase_url = "http://127.0.0.1:{self.server_port}/v1"\n{tiers}'


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = json.dumps(asked["messages"])
        if "SLOW" in said:
            time.sleep(self.server.slow_s)
        if "BUSY" in said:
            self.send_response(503)
            self.send_header("retry-after", "20")
            self.send_header("content-length", "0")
            return self.end_headers()
        usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
        if asked.get("stream"):
            delta = {"choices": [{"index": 0, "delta": {"content": "Here."}, "finish_reason": None}]}
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
            body = "".join(f"data: {json.dumps(part)}\n\n" for part in (delta, end)) + "data: [DONE]\n\n"
            kind = "text/event-stream"
        else:
            text = '{"facts": []}' if asked.get("response_format") else "Here."
            message = {"role": "assistant", "content": "z" * 1_000_000 if "HUGE" in said else text}
            body, kind = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}), "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


class Daemon:
    """A daemon with a data folder of its own."""

    def __init__(self, name, config="", descriptors=None, starts=True):
        self.name, self.log = name, os.path.join(WORKSPACE, f"{name}.log")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        file = os.path.join(WORKSPACE, f"{name}.toml")
        with open(file, "w") as out:
            out.write(f'[models]\nembedded = "none"\nembedder = "none"\n{config}')
        arguments = ["up", "--offline", "--config", file, "--data", os.path.join(WORKSPACE, name), "--listen", f"127.0.0.1:{self.port}"]
        self.environment = dict(os.environ, LIFEFORMD_TOKEN=OPERATOR)
        self.environment.pop("LIFEFORMD_BIN")
        self.data, self.arguments, self.descriptors = os.path.join(WORKSPACE, name), arguments, descriptors
        self.up(starts)

    def up(self, starts=True):
        """Starts the process. Where it is not expected to start, returns what it says when it has ended."""
        arguments, environment, descriptors = self.arguments, self.environment, self.descriptors
        self.process = subprocess.Popen([os.environ["LIFEFORMD_BIN"], *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=open(self.log, "wb"), stderr=subprocess.STDOUT, preexec_fn=descriptors and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))))
        end = time.time() + 60
        while True:
            try:
                if self.ask("GET", "/health")[0] == 200:
                    break
            except OSError:
                pass
            if self.process.poll() is not None and not starts:
                return open(self.log).read()
            if time.time() > end or self.process.poll() is not None:
                sys.exit(f"{self.name} does not start:\n{open(self.log).read()[-2000:]}")
            time.sleep(0.05)
        self.life = self.ask("GET", "/v1/lifeforms")[1]["lifeforms"][0]["id"]
        self.chat = f"/v1/lifeforms/{self.life}/canvases/canvas_chat_main"

    def ask(self, method, path, body=None, token=OPERATOR, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
            if path == "/mcp":
                headers["accept"] = "application/json, text/event-stream"
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def token(self, principal, role="participant"):
        return self.ask("POST", "/v1/tokens", {"principal": principal, "role": role})[1]["token"]

    def memory_mb(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Other:
    """Another participant, who asks all the while; and the memory meanwhile."""

    def __init__(self, daemon, token):
        self.daemon, self.token, self.times, self.failures = daemon, token, [], []
        self.idle = self.peak = daemon.memory_mb()
        self.goes_on = True
        self.threads = [threading.Thread(target=self.asks), threading.Thread(target=self.watches)]
        [thread.start() for thread in self.threads]

    def asks(self):
        while self.goes_on or len(self.times) < 200:
            begun = time.time()
            try:
                status = self.daemon.ask("GET", f"/v1/lifeforms/{self.daemon.life}", token=self.token, timeout=20)[0]
            except OSError as error:
                status = type(error).__name__
            self.times.append(time.time() - begun)
            if status != 200:
                self.failures.append(status)
            time.sleep(0.02)

    def watches(self):
        while self.goes_on:
            self.peak = max(self.peak, self.daemon.memory_mb())
            time.sleep(0.05)

    def ended(self, what):
        self.goes_on = False
        [thread.join() for thread in self.threads]
        p99 = sorted(self.times)[int(len(self.times) * 0.99) - 1]
        over = self.peak - self.idle
        judge(f"{what}: memory {over} MB over idle", over < OVER_IDLE_MB)
        judge(f"{what}: p99 of another {p99 * 1000:.0f} ms over {len(self.times)} requests, {len(self.failures)} refused", p99 < P99_S and not self.failures)


held, broke = [], []


def judge(what, holds):
    (held if holds else broke).append(what)
    print(("held   " if holds else "BROKE  ") + what, flush=True)


def deaf(daemon, request):
    """A connection that sends a request and reads nothing of its answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(5)
    connection.connect(("127.0.0.1", daemon.port))
    connection.sendall(request.encode())
    return connection


def exhausting():
    daemon = Daemon("exhausting")
    ada, bob, watcher = daemon.token("user:ada"), daemon.token("user:bob"), daemon.token("user:watcher", "observer")
    daemon.ask("POST", f"/v1/lifeforms/{daemon.life}/stop", {})
    daemon.ask("POST", f"{daemon.chat}/topics", {"title": "t", "id": "t"}, token=ada)
    wanted, said = (3 if SMALL else 12) << 20, 0
    while said < wanted:
        status = daemon.ask("POST", f"{daemon.chat}/topics/t/messages", {"content": "q" * 31_000}, token=ada)[0]
        said += 31_000 if status == 201 else 0
        time.sleep(0 if status == 201 else 0.2)
    auth = f"host: 127.0.0.1:{daemon.port}\r\nauthorization: Bearer {watcher}\r\n"
    upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    hello = b"\x81\x93\0\0\0\0" + b'{"t":"hello","v":1}'
    other, open_ones = Other(daemon, bob), []
    for _ in range(60 if SMALL else 360):
        connection = deaf(daemon, f"GET {daemon.chat}/subscribe HTTP/1.1\r\n{auth}{upgrade}\r\n")
        connection.sendall(hello)
        open_ones.append(connection)
    time.sleep(3)
    other.ended(f"{len(open_ones)} sockets that do not read {said >> 20} MiB")
    [connection.close() for connection in open_ones]
    time.sleep(2)
    other = Other(daemon, bob)
    open_ones = [deaf(daemon, f"GET {daemon.chat}/{('state', 'topics/t/messages')[n % 2]} HTTP/1.1\r\n{auth}\r\n") for n in range(40 if SMALL else 150)]
    time.sleep(3)
    other.ended(f"{len(open_ones)} answers that are not taken")
    if not SMALL:
        time.sleep(12)
        judge(f"after 12 s they hold {daemon.memory_mb() - other.idle} MB", daemon.memory_mb() - other.idle < OVER_IDLE_MB)
    [connection.close() for connection in open_ones]
    other, length = Other(daemon, bob), 1 << 20
    sent = f"POST {daemon.chat}/topics HTTP/1.1\r\nhost: 127.0.0.1:{daemon.port}\r\nauthorization: Bearer {ada}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    open_ones = []
    for _ in range(150 if SMALL else 1_200):
        connection = socket.create_connection(("127.0.0.1", daemon.port))
        connection.settimeout(1)
        try:
            connection.sendall(sent.encode() + b" " * (length - 1))
        except OSError:
            pass  # It was refused before it was sent whole.
        open_ones.append(connection)
    other.ended(f"{len(open_ones)} bodies of {length >> 20} MiB that do not end")
    [connection.close() for connection in open_ones]
    other, kept, refused = Other(daemon, bob), 0, 0
    for n in range(200 if SMALL else 3_000):
        status = daemon.ask("POST", "/v1/neurons", {"id": f"n{n}", "memory": "x" * 30_000, "tools": []}, token=ada)[0]
        kept, refused = kept + (status == 201), refused + (status == 429)
    other.ended(f"{kept} definitions of 30 kB, {refused} refused")
    daemon.end()


def merging():
    """Records that share most of their wording are held against each other, which takes its time."""
    daemon = Daemon("merging")
    ada, bob = daemon.token("user:ada"), daemon.token("user:bob")
    wording, taken = "lorem ipsum dolor sit amet " * 5, 0
    for part in range(1 if SMALL else 3):
        lines = (json.dumps({"task": f"Task {part} number {n} about the sea", "content": f"content {n} {wording}", "types": ["strategy"], "scopes": ["public"]}) for n in range(1_500))
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=300)
        headers = {"authorization": f"Bearer {ada}", "content-type": "text/plain"}
        connection.request("POST", "/api/knowledge/import?format=jsonl", "\n".join(lines), headers)
        taken += json.loads(connection.getresponse().read())["imported"]
        connection.close()
    judge(f"{taken} records are taken in", taken == (1 if SMALL else 3) * 1_500)
    other = Other(daemon, bob)
    pool = concurrent.futures.ThreadPoolExecutor(4)
    begun = time.time()
    asked = [pool.submit(daemon.ask, "POST", "/api/knowledge/slim", {"dry_run": True}, ada, 300) for _ in range(4)]
    answers = [one.result() for one in asked]
    statuses = sorted(status for status, _ in answers)
    other.ended(f"records compared for {time.time() - begun:.1f} s, {statuses.count(429)} of 4 requests refused")
    judge(f"one of them at a time is done: {statuses}", 200 in statuses and set(statuses) <= {200, 429})
    judge("it went through all of them", all(answer["before"] == taken for status, answer in answers if status == 200))
    tokens = [daemon.token(f"user:reader{n}") for n in range(24)]
    pool, other, begun = concurrent.futures.ThreadPoolExecutor(48), Other(daemon, bob), time.time()

    def exports(token):
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=300)
        connection.request("GET", "/api/knowledge/export?format=jsonl", headers={"authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        lines = sum(b"about the sea" in line for line in answer.read().splitlines())  # Shipped records are in it, too.
        connection.close()
        return answer.status, lines

    answers = list(pool.map(exports, tokens * 2))
    statuses = [status for status, _ in answers]
    other.ended(f"48 exports of {taken} records by 24 participants for {time.time() - begun:.1f} s, {statuses.count(429)} refused")
    judge("those that are made are whole", 200 in statuses and set(statuses) <= {200, 429} and all(lines == taken for status, lines in answers if status == 200))
    daemon.end()


def tampering():
    """Files of the data folder that are changed, lost or put back between a kill and a start."""
    daemon = Daemon("tampering")
    daemon.ask("POST", f"/v1/lifeforms/{daemon.life}/stop", {})
    daemon.ask("POST", f"{daemon.chat}/topics", {"title": "t", "id": "t"})
    said = 120 if SMALL else 600

    def says(first, last):
        for n in range(first, last):
            status = daemon.ask("POST", f"{daemon.chat}/topics/t/messages", {"id": f"m{n}", "content": f"{n} " + "x" * 6_000})[0]
            if status == 429:
                time.sleep(0.5)
            judge_all(status in (201, 409), f"message {n}: {status}")

    def judge_all(holds, what):
        if not holds:
            judge(what, False)

    def is_whole(upto):
        return all(daemon.ask("GET", f"{daemon.chat}/topics/t/messages/m{n}")[0] == 200 for n in range(upto))

    def files():
        found = {}
        for folder, _, names in os.walk(os.path.join(daemon.data, "store")):
            for name in names:
                if folder.endswith(("wal", "manifest", "sstables", "log")):
                    with open(os.path.join(folder, name), "rb") as file:
                        found[os.path.join(folder, name)] = hashlib.sha256(file.read()).hexdigest()
        return found

    says(0, said)
    time.sleep(4)
    says(said, said + 20)
    daemon.end()
    kept = os.path.join(WORKSPACE, "kept")
    shutil.copytree(daemon.data, kept)

    def afresh():
        shutil.rmtree(daemon.data)
        shutil.copytree(kept, daemon.data)

    daemon.up()
    judge(f"{said + 20} messages are there after a kill", is_whole(said + 20))
    daemon.end()
    logs = [path for path in files() if path.endswith(".wal") and os.path.getsize(path) > 64]
    judge("the database has a log of its own to damage", bool(logs))
    for part in (0.1, 0.5, 0.9):
        afresh()
        damaged = max((path for path in files() if path.endswith(".wal")), key=os.path.getsize)
        with open(damaged, "r+b") as file:
            file.seek(int(os.path.getsize(damaged) * part))
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 4]))
        before = files()
        told = daemon.up(starts=False)
        if told is None:
            judge(f"with a flipped bit at {part} of the database's log all is there", is_whole(said + 20))
            daemon.end()
        else:
            judge(f"a start that a flipped bit at {part} of the database's log refuses changes no file", files() == before)
            judge("it names the folder", "/store" in told)
    for named in ("1", "earlier", None):
        afresh()
        newest = os.path.join(daemon.data, "store", "log", "newest")
        if named == "earlier":
            segments = sorted(name for name in os.listdir(os.path.dirname(newest)) if name.endswith(".log"))
            named = str(int(segments[0].removesuffix(".log")))
        os.remove(newest) if named is None else open(newest, "w").write(named)
        before = files()
        if daemon.up(starts=False) is not None:
            changed = sorted(set(files().items()) ^ set(before.items()))
            judge(f"a start with {named} as the newest segment is refused and changes no file {[path.split('/store/')[1] for path, _ in changed]}", not changed)
            continue
        daemon.end()
        daemon.up()
        judge(f"with {named} as the newest segment nothing is lost by two starts", is_whole(said + 20))
        daemon.end()
    afresh()
    segments = sorted(path for path in files() if path.endswith(".log"))
    number = int(os.path.basename(segments[-1]).removesuffix(".log"))
    os.rename(segments[-1], os.path.join(os.path.dirname(segments[-1]), f"{number + 1:020}.log"))
    before, told = files(), daemon.up(starts=False) or ""
    judge(f"a renamed segment is refused by name and changes no file: {told.strip()[-160:]}", f"is segment {number}" in told and files() == before)
    afresh()
    [os.remove(path) for path in (segments[-1], os.path.join(daemon.data, "store", "log", "newest"))]
    before, told = files(), daemon.up(starts=False) or ""
    judge("a last segment that is gone with the file that names it is refused and changes no file", "--accept-loss" in told and files() == before)
    # A clean stop writes the tables.
    afresh()
    daemon.up()
    daemon.process.send_signal(signal.SIGTERM)
    daemon.process.wait()
    shutil.rmtree(kept)
    shutil.copytree(daemon.data, kept)
    for place in range(100, 2_500, 600 if SMALL else 60):
        afresh()
        table = max((path for path in files() if path.endswith(".sst")), key=os.path.getsize)
        with open(table, "r+b") as file:
            file.seek(-place, os.SEEK_END)
            file.write(b"\0")
        told = daemon.up(starts=False)
        if told is None:
            judge(f"with a zero {place} bytes before the end of a table all is there", is_whole(said + 20))
            daemon.end()
        else:
            judge(f"a start that it refuses names the table: {told.strip()[-200:]}", os.path.basename(table) in told)
    afresh()
    shutil.rmtree(os.path.join(daemon.data, "store"))
    os.mkdir(os.path.join(daemon.data, "store"))
    judge("an empty store beside keys is refused", "--accept-loss" in (daemon.up(starts=False) or ""))
    afresh()
    daemon.up()
    os.remove(os.path.join(daemon.data, "store", "LOCK"))
    other = [os.environ["LIFEFORMD_BIN"], *daemon.arguments[:-1], "127.0.0.1:0"]
    try:
        second = subprocess.run(other, env=daemon.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        judge(f"a second daemon on the folder is refused though its lock file is gone: {second.stderr.strip()[-120:]}", second.returncode == 1)
    except subprocess.TimeoutExpired:
        judge("a second daemon on the folder is refused though its lock file is gone", False)
    daemon.end()


def holding():
    """Connections that nobody uses take the file descriptors of the store."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    for limit in (256, 1_200):
        holding_at(limit)


def holding_at(limit):
    daemon = Daemon(f"holding-{limit}", descriptors=limit)
    ada = daemon.token("user:ada")
    known = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)

    def writes(topic):
        headers = {"authorization": f"Bearer {ada}", "content-type": "application/json"}
        known.request("POST", f"{daemon.chat}/topics", json.dumps({"title": "t", "id": topic}), headers)
        answer = known.getresponse()
        answer.read()
        return answer.status == 201

    judge("a write before", writes("before"))
    held_open = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(limit)]
    time.sleep(0.5)
    done = sum(writes(f"t{n}") for n in range(200))
    judge(f"{limit} idle connections at {limit} descriptors: {done} of 200 writes over a connection of before are taken", done == 200)
    [connection.close() for connection in held_open]
    time.sleep(0.5)
    judge("a new connection is taken when they are closed", daemon.ask("GET", "/health")[0] == 200)
    daemon.end()


def reading():
    """A participant reads whole canvases and long lists over many connections, and takes its answers."""
    daemon = Daemon("reading")
    ada, bob = daemon.token("user:ada"), daemon.token("user:bob")
    daemon.ask("POST", f"/v1/lifeforms/{daemon.life}/stop", {})
    daemon.ask("POST", f"{daemon.chat}/topics", {"title": "t", "id": "t"}, token=ada)
    wanted, said = (2 if SMALL else 6) << 20, 0
    while said < wanted:
        status = daemon.ask("POST", f"{daemon.chat}/topics/t/messages", {"content": "q" * 31_000}, token=ada)[0]
        said += 31_000 if status == 201 else 0
        time.sleep(0 if status == 201 else 0.2)
    for path in ("state", "topics/t/messages"):
        other, end = Other(daemon, bob), time.time() + (4 if SMALL else 15)

        def reads(_):
            statuses = []
            while time.time() < end:
                statuses.append(daemon.ask("GET", f"{daemon.chat}/{path}", token=ada)[0])
            return statuses

        statuses = sum(concurrent.futures.ThreadPoolExecutor(24).map(reads, range(24)), [])
        other.ended(f"{len(statuses)} answers of {said >> 20} MiB ({path}) over 24 connections, {statuses.count(429)} refused")
        judge("nothing else is refused", set(statuses) <= {200, 429})
    lines = (json.dumps({"task": f"Task {n}", "content": f"content {n} " + "lorem ipsum dolor sit amet " * 10, "types": ["strategy"], "scopes": ["public"]}) for n in range(1_500 if SMALL else 6_000))
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=300)
    connection.request("POST", "/api/knowledge/import?format=jsonl", "\n".join(lines), {"authorization": f"Bearer {ada}", "content-type": "text/plain"})
    connection.getresponse().read()
    connection.close()
    union = "".join(f' UNION {{ ?d {{type: "Knowledge"}} FILTER(CONTAINS(?d.attributes.content, "zz{n}")) }}' for n in range(100))
    query = f'FIND(?d) WHERE {{ ?d {{type: "Knowledge"}}{union} }} LIMIT 1'
    for what, body in (("long queries", {"command": query}), ("batches", {"commands": [query] * 16})):
        other, end = Other(daemon, bob), time.time() + (4 if SMALL else 15)

        def asks(_):
            count = 0
            while time.time() < end:
                daemon.ask("POST", "/v1/nexus/commons/kip", dict(body, readonly=True), token=ada, timeout=120)
                count += 1
            return count

        count = sum(concurrent.futures.ThreadPoolExecutor(8).map(asks, range(8)))
        other.ended(f"{count} {what} over 8 connections")
    daemon.end()


def snapshot(daemon, token):
    """Opens a WebSocket on the chat, says hello, reads the snapshot and closes it. Returns whether it came."""
    connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=60)
    try:
        connection.sendall(f"GET {daemon.chat}/subscribe HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
        hello = json.dumps({"t": "hello", "v": 1, "token": token}).encode()
        connection.sendall(bytes([0x81, 0x80 | 126]) + len(hello).to_bytes(2, "big") + bytes(4) + hello)
        seen = b""
        while b'"t":"live"' not in seen[-200_000:]:
            part = connection.recv(1 << 20)
            if not part:
                return False
            seen += part
        return True
    except OSError:
        return False
    finally:
        connection.close()


def crowding():
    """What one request costs, over many connections: the processor, the writer of the commons, a provider's patience."""
    model = Model(slow_s=1).start()
    daemon = Daemon("crowding", model.config())
    ada, bob, eve = daemon.token("user:ada"), daemon.token("user:bob"), daemon.token("user:eve", "observer")
    many = 1_500 if SMALL else 20_000
    lines = (json.dumps({"task": f"Task {n}", "content": f"content {n} " + "lorem ipsum dolor sit amet " * 10, "types": ["strategy"], "scopes": ["public"]}) for n in range(many))
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=600)
    connection.request("POST", "/api/knowledge/import?format=jsonl", "\n".join(lines), {"authorization": f"Bearer {ada}", "content-type": "text/plain"})
    connection.getresponse().read()
    connection.close()
    large = 'UPSERT { CONCEPT { {type: "Knowledge", name: "big"} SET ATTRIBUTES { task: "t", content: $text, types: ["strategy"] } } } WITH METADATA { access_scopes: ["public"] }'
    daemon.ask("POST", "/v1/nexus/commons/kip", {"command": large, "parameters": {"text": "x" * 900_000}}, ada)
    daemon.ask("POST", f"{daemon.chat}/topics", {"title": "t", "id": "t"}, token=ada)
    daemon.ask("POST", f"/v1/lifeforms/{daemon.life}/stop", {})
    wanted, said = (2 if SMALL else 16) << 20, 0
    while said < wanted:
        status = daemon.ask("POST", f"{daemon.chat}/topics/t/messages", {"content": "q" * 31_000}, token=ada)[0]
        said += 31_000 if status == 201 else 0
        time.sleep(0 if status == 201 else 0.2)
    memory = lambda word: "".join(f"{word} {n}\n" for n in range(20_000))
    daemon.ask("POST", "/v1/neurons", {"id": "long", "memory": memory("line")}, ada)
    daemon.ask("PUT", "/v1/neurons/long", {"memory": memory("other")}, ada)
    patterns = [f"(?:[a-z]{{1,8}} ){{1,8}}zz{n}" for n in range(32)]
    daemon.ask("POST", "/v1/neurons", {"id": "drops", "kind": "transformer", "transform": {"inhibit": {"drop_matching": patterns}}}, ada)
    daemon.ask("POST", "/v1/neurons", {"id": "asks", "memory": "x"}, ada)
    kip = lambda command, **more: ("POST", "/v1/nexus/commons/kip", {"command": command, **more})
    union = "".join(f' UNION {{ ?k {{type: "Knowledge"}} FILTER(REGEX(?k.attributes.content, "(a|b|c){n}.*zz")) }}' for n in range(100))
    cross = 'FIND(?a.attributes.content, ?b.name) WHERE { ?a {type: "Knowledge", name: "big"} ?b {type: "Knowledge"} } LIMIT 1000'
    events = [{"role": "user", "content": "abcdefg hijklmn opqrstu " * 150} for _ in range(200)]
    read = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "canvas_read", "arguments": {"lifeform": daemon.life}}}
    for what, connections, token, ask in (
        ("cross joins of a large text", 4, eve, kip(cross, readonly=True)),
        ("all records in one answer", 24, eve, kip('FIND(?k) WHERE { ?k {type: "Knowledge"} }', readonly=True)),
        ("writes with a costly WHERE", 4, ada, kip(f'UPDATE ?k SET ATTRIBUTES {{ note: "x" }} WHERE {{ ?k {{type: "Knowledge"}} FILTER(?k.name == "none"){union} }}')),
        ("whole canvases by MCP", 24, eve, ("POST", "/mcp", read)),
        ("comparisons of memories", 48, eve, ("GET", "/v1/neurons/long/memory/diff?from=1&to=2", None)),
        ("events through patterns", 48, ada, ("POST", "/v1/neurons/drops/invoke", {"input": {"events": events}})),
        ("calls that a provider refuses", 48, ada, ("POST", "/v1/neurons/asks/invoke", {"input": "BUSY"})),
        ("answers of a megabyte", 48, ada, ("POST", "/v1/neurons/asks/invoke", {"input": "HUGE"})),
        ("snapshots over sockets", 48, eve, None),
    ):
        def asks(_):
            count = 0
            while time.time() < end:
                try:
                    snapshot(daemon, token) if ask is None else daemon.ask(*ask, token=token, timeout=120)
                except (OSError, ValueError, http.client.HTTPException):
                    pass
                count += 1
            return count

        if "patterns" in what:
            # The store keeps its tables in memory while it writes this much, for one connection as for many.
            alone, end = daemon.memory_mb(), time.time() + 3
            asks(0)
            print(f"       over one connection: memory {daemon.memory_mb() - alone} MB over idle, from which what follows is counted", flush=True)
        other, end = Other(daemon, bob), time.time() + (4 if SMALL else 20)
        with concurrent.futures.ThreadPoolExecutor(connections) as pool:
            doing = [pool.submit(asks, n) for n in range(connections)]
            begun = time.time()
            status = daemon.ask("POST", "/v1/neurons/asks/invoke", {"input": "x"}, token=bob, timeout=60)[0]
            took = time.time() - begun
            begun = time.time()
            wrote = daemon.ask(*kip('UPSERT { CONCEPT { {type: "Knowledge", name: "bobs"} SET ATTRIBUTES { task: "t", content: "c", types: ["strategy"] } } }'), token=bob, timeout=60)[0]
            kept = time.time() - begun
            count = sum(one.result() for one in doing)
        other.ended(f"{count} {what} over {connections} connections")
        judge(f"another is answered in {took * 1000:.0f} ms and writes in {kept * 1000:.0f} ms", (status, wrote) == (200, 200) and took < 2 and kept < 2)
    daemon.end()


def starving():
    model = Model(slow_s=1 if SMALL else 4).start()
    daemon = Daemon("starving", model.config())
    ada, bob = daemon.token("user:ada"), daemon.token("user:bob")
    daemon.ask("POST", "/v1/neurons", {"id": "n", "memory": "x"})
    waits = {"id": "waits", "output": "w", "nodes": [{"id": "w", "run": {"wait": {"event": "never"}}}]}
    daemon.ask("POST", "/v1/fascicles", waits, token=ada)
    pool = concurrent.futures.ThreadPoolExecutor(200)

    def invokes():
        begun = time.time()
        status = daemon.ask("POST", "/v1/neurons/n/invoke", {"input": "x"}, token=bob)[0]
        return status == 200 and time.time() - begun < 10

    def is_answered(topic, patience=20):
        daemon.ask("POST", f"{daemon.chat}/topics", {"title": "t", "id": topic}, token=bob)
        daemon.ask("POST", f"{daemon.chat}/topics/{topic}/messages", {"content": "Are you there?"}, token=bob)
        end = time.time() + patience
        while time.time() < end:
            messages = daemon.ask("GET", f"{daemon.chat}/topics/{topic}/messages", token=bob)[1]["messages"]
            if any(message["sender"].startswith("lifeform") and message["content"] == "Here." for message in messages):
                return True
            time.sleep(0.1)
        return False

    judge("another is served before", invokes() and is_answered("before"))
    slow = [pool.submit(daemon.ask, "POST", "/v1/neurons/n/invoke", {"input": "SLOW"}, ada, 300) for _ in range(150 if SMALL else 600)]
    time.sleep(0.5)
    judge("another invokes beside hundreds of slow invocations", invokes())
    judge("a lifeform answers another beside them", is_answered("slow"))
    [one.result() for one in slow]
    many = 600 if SMALL else 17_000
    statuses = list(pool.map(lambda _: daemon.ask("POST", "/v1/fascicles/waits/execute", {"input": "x"}, ada)[0], range(many)))
    judge(f"another starts a job beside {statuses.count(202)} that wait ({statuses.count(429)} refused)", daemon.ask("POST", "/v1/fascicles/waits/execute", {"input": "x"}, bob)[0] == 202)
    judge("a lifeform answers another beside them", is_answered("jobs"))
    more, stopped = True, 0
    while more:
        done = daemon.ask("POST", "/v1/jobs/cancel", {}, ada)[1]
        more, stopped = done["more"], stopped + done["cancelled"]
    judge(f"{stopped} jobs are stopped at once", stopped == statuses.count(202))
    end, sent, n = time.time() + (5 if SMALL else 60), 0, 0
    for topic in ("f0", "f1", "f2", "f3"):
        daemon.ask("POST", f"{daemon.chat}/topics", {"title": "f", "id": topic}, token=ada)
    while time.time() < end:
        statuses = pool.map(lambda n: daemon.ask("POST", f"{daemon.chat}/topics/f{n % 4}/messages", {"content": f"SLOW {n}"}, ada)[0], range(40))
        sent, n = sent + list(statuses).count(201), n + 1
    judge(f"a lifeform answers another beside {sent} messages", is_answered("flood"))
    report = daemon.ask("GET", f"/v1/lifeforms/{daemon.life}/resources")[1]
    judge(f"what is left is others' ({report['available']['tokens']} tokens of 200000)", report["available"]["tokens"] > 100_000)
    daemon.end()


if __name__ == "__main__":
    try:
        exhausting()
        merging()
        tampering()
        holding()
        reading()
        crowding()
        starving()
    finally:
        shutil.rmtree(WORKSPACE, ignore_errors=True)
    print(f"{len(held)} held, {len(broke)} broke")
    sys.exit(bool(broke))
