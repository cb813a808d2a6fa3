#!/usr/bin/env python3
"""Lets a goal make four calls, two over HTTP and two of a real MCP server, and kills the daemon in the middle. Prints what came of it.

    npm install --prefix MCP @modelcontextprotocol/server-filesystem
    python3 benches/act/four.py LIFEFORMD MCP/node_modules/.bin/mcp-server-filesystem

A berth is looked up and booked in the harbour of `world.py`, and the booking is written into a file and read back by the server of files. The
daemon is killed by SIGKILL as soon as the booking has arrived, before it knows the answer, and again as soon as the file is there.
"""

import argparse
import json
import os
import re
import tempfile
import time
import urllib.error

from world import Daemon, Harbour, Model, Person

STEPS = [
    ("Look up the free berths", "berths", {}),
    ("Book V-212 the berth Q1", "book", {"vessel": "V-212", "berth": "Q1"}),
    ("Write the booking down", "files_write_file", {"path": "FOLDER/berth.txt", "content": "V-212 is at Q1"}),
    ("Read it back", "files_read_text_file", {"path": "FOLDER/berth.txt"}),
]


def thinking(folder):
    def think(request):
        messages = request["messages"]
        last = max(n for n, message in enumerate(messages) if message["role"] == "user")
        task = str(messages[last].get("content") or "")
        results = [str(message.get("content") or "") for message in messages[last:] if message["role"] == "tool"]
        if task.startswith("What you have set out to do"):
            done = "all steps of the plan are done" in task
            known = dict((what.strip(), name) for name, what in re.findall(r"- (s\d+) done[^:]*: (.*?)(?: → .*)?$", task, re.M))
            steps = [
                {"id": f"p{n}", "what": what, "tools": [tool], "after": [known.get(STEPS[n - 1][0], f"p{n - 1}")] if n else []}
                for n, (what, tool, _) in enumerate(STEPS) if what not in known
            ]
            say, status = ("The berth is booked and written down.", "done") if done else ("", "active")
            return json.dumps({"steps": [] if done else steps, "say": say, "status": status, "again_in_minutes": 0, "subgoals": []}), []
        if not task.startswith("A step of"):
            return json.dumps({"facts": [], "promises": [], "contradicted": [], "correction": ""}) if request.get("response_format") else "I see.", []
        line = re.search("<step>(.*?)</step>", task, re.S).group(1)
        _, tool, given = next(step for step in STEPS if step[0] == line)
        if not results:
            return "", [(tool, {name: value.replace("FOLDER", folder) for name, value in given.items()})]
        return "", [("finalize_output", {"status": "need" if '"error"' in results[-1] else "done", "result": results[-1][:300], "values": []})]

    return think


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("server", help="the program of the MCP server")
    given = parser.parse_args()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="act-files-"))
    harbour = Harbour(1)
    server = f'[tools.servers.files]\ncommand = {json.dumps([os.path.abspath(given.server), folder])}\ntrusts_hints = true\n'
    daemon = Daemon(given.binary, Model(thinking(folder)), harbour, more=server)
    daemon.ask("PUT", "/v1/tools/files", {"run": {"mcp": {"server": "files"}}})
    born = daemon.ask("POST", "/v1/lifeforms", {"definition": {"name": "Iris", "nutrients": {"tokens": 1_000_000, "micro_usd": 0}, "tools": [{"use": "berths"}, {"use": "book"}, {"use": "files"}]}})
    life = f"/v1/lifeforms/{born['id']}"
    daemon.ask("POST", f"{life}/start", {})
    goal = daemon.ask("POST", f"{life}/goals", {"title": "Book V-212 a berth and write it down"})["id"]
    # Whether the file was written is answered by a look at it, and before the person of `world.py` decides about the rest.
    written = lambda: os.path.exists(f"{folder}/berth.txt")
    person, kills, end = Person(daemon), [], time.time() + 120
    while time.time() < end:
        for what, has_come in (("the booking has arrived", lambda: harbour.done), ("the file is there", written)):
            if what not in kills and has_come():
                daemon.kill()
                kills.append(what)
                daemon.start()
        try:
            for one in daemon.ask("GET", "/v1/approvals")["approvals"]:
                if one["calls"][0]["unsure"] and one["calls"][0]["tool"].startswith("files"):
                    decision = {"decision": "done", "comment": json.dumps({"written": True})} if written() else {"decision": "approve"}
                    daemon.ask("POST", f"/v1/approvals/{one['id']}", decision)
            person.look()
            if daemon.ask("GET", f"{life}/goals/{goal}")["status"] == "done":
                break
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.01)
    print(f"killed when {', and when '.join(kills)}\n")
    for step in daemon.ask("GET", f"{life}/goals/{goal}")["plan"]:
        print(f"{step['id']} {step['status']}: {step['what']}, tries {step.get('tries', 0)}")
    print("\nsaid:")
    for message in daemon.ask("GET", f"{life}/canvases/canvas_chat_main/topics/goal_{goal}/messages")["messages"]:
        print(f"  {message['sender'].split(':')[0]}: {message['content']}")
    print("\neffects:")
    for effect in daemon.ask("GET", f"{life}/effects")["effects"]:
        print(f"  {effect['state']} {effect['tool']} {effect['arguments']} key {effect['id'][:12]} tries {effect['tries']}")
    print(f"\nin the harbour: {len(harbour.done)} booking(s), with key {harbour.done[0]['key'][:12]}; in the file: {open(folder + '/berth.txt').read()!r}")
    ledger = daemon.ask("GET", f"{life}/resources")
    print(f"ledger: spent {ledger['spent']}, held {ledger['held']}")
    jobs = sorted({effect["by"].split("/")[0] for effect in daemon.ask("GET", f"{life}/effects")["effects"]})
    for job in jobs:
        walk = daemon.ask("GET", f"{life}/trace?from=job:{job}")
        kinds = [f"{step['ref'].split(':')[0]} {step['kind']}" for step in walk["forward"]]
        print(f"trace of {job.split('.', 1)[1]}: {len(kinds)} entries: " + ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)))
    daemon.kill()


if __name__ == "__main__":
    main()
