#!/usr/bin/env python3
"""Fan-out of canvases: the daemon beside its floors and Hocuspocus, in one run on one machine.

usage: run.py LIFEFORMD [OUT.jsonl]        SECS=5 seconds a row; ONLY=durable,floor,hocuspocus,idle,mute,rest,ws picks some

Every message carries a marker with its number and the time it was written; each subscriber finds all markers in every frame,
so that frames of several deltas count as what they hold, and counts what is lost, doubled or out of order. The floors are an
axum server that fans out from memory, and one that appends each message to a file and syncs before it does (group commit).
Hocuspocus is itself with its SQLite extension, over libsql, which needs no compiler. Everything listens on loopback.
"""
import json, os, pathlib, signal, socket, subprocess, sys, tempfile, time, urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SECS = os.environ.get("SECS", "5")
ONLY = os.environ.get("ONLY", "durable,floor,hocuspocus,idle,mute,rest,ws").split(",")
TOKEN = "lfd_the_token_of_the_benchmark"
# documents, subscribers of each, and a rate or a window of messages on their way
ROWS = [(1, 1, "--rate", 500), (1, 1, "--window", 64), (1, 100, "--rate", 100), (1, 100, "--window", 16),
        (1, 1000, "--rate", 10), (1, 1000, "--window", 4), (1000, 1, "--rate", 2000), (1000, 1, "--window", 256)]


def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until_open(at):
    for _ in range(200):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", at)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on {at}")


def resident(pid):
    line = next(line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


class Server:
    """One that is measured, started for the rows and ended after them."""

    def __init__(self, label, command, at, env=None, cwd=None):
        self.label, self.port = label, at
        self.process = subprocess.Popen(command, env={**os.environ, **(env or {})}, cwd=cwd, stdout=subprocess.DEVNULL)
        until_open(at)

    def row(self, out, load, docs, subs, how, much, *extra):
        command = [load, "--label", self.label, "--addr", f"127.0.0.1:{self.port}", "--pid", str(self.process.pid), "--secs", SECS,
                   "--docs", str(docs), "--subs", str(subs), how, str(much), *extra]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        line = done.stdout.strip()
        if not line:
            print(f"{self.label} {docs}x{subs} {how} {much}: {done.stderr[-400:]}", file=sys.stderr)
            return
        out.write(line + "\n")
        out.flush()
        row = json.loads(line)
        mode = f"{row['rate']:g}/s" if row["rate"] else f"{row['window']} on their way"
        ack = "" if row["ack_p50_ms"] < 0 else f"{row['ack_p50_ms']:.2f} / {row['ack_p99_ms']:.2f}"
        print(f"| {self.label} | {docs} × {subs} | {mode} | {row['deliveries_per_s']:,.0f} | {row['p50_ms']:.2f} / {row['p99_ms']:.2f} | "
              f"{ack} | {row['expected'] - row['delivered']} / {row['dups']} | {row['rss_mib']} | {row['srv_cpu_us_per_delivery']} |", flush=True)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Daemon(Server):
    def __init__(self, binary, folder, write):
        at = port()
        env = {"LIFEFORMD_MODELS__EMBEDDED": "none", "LIFEFORMD_MODELS__EMBEDDER": "none", "LIFEFORMD_TOKEN": TOKEN, "LIFEFORMD_LOG": "warn",
               "LIFEFORMD_CANVAS__OPS_PER_S": "1000000", "LIFEFORMD_CANVAS__BYTES_PER_S": "1000000000"}
        super().__init__(f"lifeformd, {write} writes", [binary, "up", "--data", folder, "--listen", f"127.0.0.1:{at}", "--offline"], at, env)
        self.folder, self.write, self.made = folder, write, 0

    def api(self, method, path, body):
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), headers, method=method)
        return json.load(urllib.request.urlopen(request))

    def canvases(self, count):
        """So many fresh canvases with a topic each, as a file of their paths."""
        paths = []
        for n in range(count):
            if n % 90 == 0:
                lifeform = self.api("POST", "/v1/lifeforms", {"definition": "first"})["id"]
            self.made += 1
            name = f"c{self.made}"
            self.api("POST", f"/v1/lifeforms/{lifeform}/canvases", {"type": "chat", "title": name, "id": name})
            self.api("POST", f"/v1/lifeforms/{lifeform}/canvases/{name}/topics", {"id": "t", "title": "t"})
            paths.append(f"{lifeform}/canvases/{name}")
        file = pathlib.Path(self.folder) / f"canvases-{self.made}.txt"
        file.write_text("\n".join(paths) + "\n")
        return str(file)

    def protocol(self, file, body):
        return ["--proto", "canvas", "--ids-file", file, "--ws-path", "/v1/lifeforms/{doc}/subscribe",
                "--post-path", "/v1/lifeforms/{doc}/topics/t/messages", "--body", body, "--header", f"Authorization: Bearer {TOKEN}",
                "--hello", '{"t":"hello","v":1}', "--ready", '"t":"live"', "--http-conns", "16", "--write", self.write]

    def command(self, load, file, docs, subs, how, much, body, secs=SECS):
        return [load, "--label", self.label, "--addr", f"127.0.0.1:{self.port}", "--pid", str(self.process.pid), "--secs", str(secs),
                "--docs", str(docs), "--subs", str(subs), how, str(much), *self.protocol(file, body)]

    def row(self, out, load, docs, subs, how, much):
        body = '{"id":"m{q}","content":"{m}"}'
        if self.write == "ws":
            body = '{"t":"op","cid":"{q}","op":{"kind":"message.append","topic":"t","id":"m{q}","content":"{m}"}}'
        super().row(out, load, docs, subs, how, much, *self.protocol(self.canvases(docs), body))


def idle(server):
    """What a thousand sockets that only listen cost."""
    path = pathlib.Path(server.canvases(1)).read_text().strip()
    time.sleep(2)
    before = resident(server.process.pid)
    sockets = []
    for _ in range(1000):
        one = socket.create_connection(("127.0.0.1", server.port))
        one.sendall(f"GET /v1/lifeforms/{path}/subscribe HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: Upgrade\r\n"
                    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
        one.recv(4096)
        sockets.append(one)
    time.sleep(2)
    print(f"\n1,000 idle sockets: {resident(server.process.pid) - before} MiB over the {before} MiB of the daemon with nobody\n", flush=True)
    for one in sockets:
        one.close()


def subscribed(server, path):
    """A socket that has said hello on a canvas, with as small a buffer as there is."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", server.port))
    one.sendall(f"GET /v1/lifeforms/{path}/subscribe HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: Upgrade\r\n"
                "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
    one.recv(4096)
    hello = b'{"t":"hello","v":1}'
    one.sendall(bytes([0x81, 0x80 | len(hello), 0, 0, 0, 0]) + hello)
    return one


def is_closed(server, one):
    """Whether the server has closed it; who reads nothing does not hear of that, so its end of the connection is looked at."""
    ends = (f":{server.port:04X}", f":{one.getsockname()[1]:04X}")
    lines = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
    return not any(line[1].endswith(ends[0]) and line[2].endswith(ends[1]) and line[3] == "01" for line in lines)


def mute(server, load):
    """One subscriber reads nothing, beside a hundred who do: when it is closed, and what the others notice of it."""
    print("\n| 1 × 100, 100/s, 16 KiB each | write → received p50 / p99 ms | resident MiB | the one that reads nothing |\n|---|---|---|---|", flush=True)
    for with_mute in (False, True, False, True):
        file = server.canvases(1)
        path = pathlib.Path(file).read_text().strip()
        one = subscribed(server, path) if with_mute else None
        before, begun = resident(server.process.pid), time.time()
        body = '{"id":"m{q}","content":"{m} ' + "x" * 16384 + '"}'
        running = subprocess.Popen(server.command(load, file, 1, 100, "--rate", 100, body, secs=20), stdout=subprocess.PIPE, text=True)
        closed, most = None, before
        while running.poll() is None:
            if one and closed is None and is_closed(server, one):
                closed = time.time() - begun
            most = max(most, resident(server.process.pid))
            time.sleep(0.05)
        row = json.loads(running.stdout.read())
        told = "not there" if one is None else f"closed {closed:.1f} s after the load began" if closed else "not closed"
        print(f"| {'with one that reads nothing' if one else 'alone'} | {row['p50_ms']:.2f} / {row['p99_ms']:.2f} | {before} before, {most} at most | {told} |", flush=True)
        if one:
            one.close()


def main():
    binary, out = sys.argv[1], open(sys.argv[2] if len(sys.argv) > 2 else "canvas.jsonl", "w")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")) / "canvas"
    subprocess.run(["cargo", "build", "--release", "--quiet", "--target-dir", target], cwd=HERE, check=True)
    load, floor = str(target / "release/canvas-load"), str(target / "release/rustfloor")
    print("| server | documents × subscribers | messages | deliveries/s | write → received p50 / p99 ms | ack p50 / p99 ms | lost / doubled | resident MiB | CPU µs a delivery |\n|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        if "durable" in ONLY:
            at = port()
            one = Server("axum, synced group commit, REST writes", [floor, str(at)], at, {"DURABLE": f"{folder}/durable.log"})
            for row in ROWS:
                one.row(out, load, *row, "--proto", "raw", "--write", "rest", "--http-conns", "16")
            one.end()
        if "floor" in ONLY:
            at = port()
            one = Server("axum from memory, 4 KiB buffers, ws writes", [floor, str(at)], at, {"READBUF": "4096"})
            for row in ROWS:
                one.row(out, load, *row, "--proto", "raw")
            one.end()
        if "hocuspocus" in ONLY:
            node = HERE / "node"
            subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--no-package-lock"], cwd=node, check=True)
            at = port()
            one = Server("Hocuspocus, SQLite", ["node", "hocuspocus.mjs", str(at), f"{folder}/hocuspocus.sqlite"], at, cwd=node)
            for row in ROWS:
                one.row(out, load, *row, "--proto", "hocus")
            one.end()
        if "idle" in ONLY:
            one = Daemon(binary, tempfile.mkdtemp(dir=folder), "rest")
            idle(one)
            one.end()
        if "mute" in ONLY:
            one = Daemon(binary, tempfile.mkdtemp(dir=folder), "rest")
            mute(one, load)
            one.end()
        for write in [write for write in ("rest", "ws") if write in ONLY]:
            one = Daemon(binary, tempfile.mkdtemp(dir=folder), write)
            for row in ROWS:
                one.row(out, load, *row)
            one.end()


main()
