#!/usr/bin/env python3
"""One day of a lifeform in short, with the model in the process: talk, goal, interruption, hunger, top-up, kill, waking, and
"why did you say that?" answered from the trace. `benches/day.py LIFEFORMD` prints the transcript in Markdown."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOKEN = "lfd_the_token_of_the_day"


def main(binary):
    folder = tempfile.mkdtemp(prefix="day")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = f"http://127.0.0.1:{port}/v1"

    def start():
        environment = dict(os.environ, LIFEFORMD_TOKEN=TOKEN, LIFEFORMD_LOG="warn")
        command = [binary, "up", "--data", folder, "--listen", f"127.0.0.1:{port}"]
        daemon = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        for _ in range(6000):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
                return daemon
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        sys.exit("the daemon does not come up")

    def ask(method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        request = urllib.request.Request(base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            sys.exit(f"{method} {path}: {error.code} {error.read().decode()}")

    daemon = start()
    life = ask("GET", "/lifeforms")["lifeforms"][0]["id"]
    chat = f"/lifeforms/{life}/canvases/canvas_chat_main"
    shown = set()

    def heading(text):
        print(f"\n## {text}\n", flush=True)

    def show(topic):
        for message in ask("GET", f"{chat}/topics/{topic}/messages")["messages"]:
            key = (message["id"], message["status"], message["content"])
            if message["status"] == "streaming" or key in shown:
                continue
            shown.add(key)
            who = "Iris" if message["sender"].startswith("lifeform:") else "you"
            status = "" if message["status"] == "final" else f" *({message['status']})*"
            print(f"- **{who}** in {topic}: {message['content']}{status}", flush=True)

    def settle(topic, at_least, finals_only=True):
        """Waits until so many messages of the lifeform have come to their end."""
        for _ in range(2400):
            messages = ask("GET", f"{chat}/topics/{topic}/messages")["messages"]
            own = [m for m in messages if m["sender"].startswith("lifeform:")]
            done = [m for m in own if m["status"] == "final" or not finals_only and m["status"] != "streaming"]
            if len(done) >= at_least and not any(m["status"] == "streaming" for m in own):
                show(topic)
                return done
            time.sleep(0.25)
        sys.exit(f"nothing came in {topic}")

    def say(topic, content, **more):
        return ask("POST", f"{chat}/topics/{topic}/messages", dict(content=content, **more))

    def topic(name):
        ask("POST", f"{chat}/topics", {"id": name, "title": name})

    heading("Morning: a talk")
    topic("morning")
    say("morning", "My sailing boat is called Petrel.")
    settle("morning", 1)
    say("morning", "What is the name of my sailing boat?")
    answer = settle("morning", 2)[-1]

    heading("A goal, which it takes up by itself")
    ask("POST", f"/lifeforms/{life}/goals", {"title": "Plan the trip with the boat to Faro", "description": "Two days, in May."})
    for _ in range(2400):
        goal = ask("GET", f"/lifeforms/{life}/goals")["goals"][0]
        if goal["pursued"] and not goal["job"]:
            break
        time.sleep(0.25)
    print(f"- the goal is {goal['status']}; its plan: {json.dumps(goal['plan'])}")
    if any(known["id"] == f"goal_{goal['id']}" for known in ask("GET", f"{chat}/topics")["topics"]):
        show(f"goal_{goal['id']}")

    heading("An interruption")
    topic("noon")
    say("noon", "Tell me a long story about a boat and the sea?")
    for _ in range(600):
        messages = ask("GET", f"{chat}/topics/noon/messages")["messages"]
        if any(m["status"] == "streaming" for m in messages):
            break
        time.sleep(0.02)
    say("noon", "Quick: what is my boat called?", urgent=True)
    settle("noon", 2)

    heading("Hunger, and a top-up")
    left = ask("GET", f"/lifeforms/{life}/resources")["available"]["tokens"]
    ask("POST", f"/lifeforms/{life}/resources/transactions", {"amount": 1000 - left, "currency": "tokens", "memo": "a lean day"})
    topic("evening")
    say("evening", "Are you there?")
    settle("evening", 1)
    print(f"- it is {ask('GET', f'/lifeforms/{life}')['status']}, hunger {ask('GET', f'/lifeforms/{life}')['hunger']}")
    ask("POST", f"/lifeforms/{life}/resources/transactions", {"amount": 100000, "currency": "tokens", "memo": "top-up"})
    settle("evening", 2)

    heading("Killed, and awake again")
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    daemon = start()
    topic("night")
    say("night", "What is the name of my sailing boat?")
    settle("night", 1)

    heading("Why did you say that?")
    evidence = ask("GET", f"{chat}/topics/morning/messages/{answer['id']}/evidence")
    for rests in evidence["rests_on"]:
        print(f"- it rests on {rests['id']}: {rests['concept']['attributes']['statement']}")
    for command in evidence["kip"]:
        print(f"- found by `{re.sub(r'[ ]+', ' ', command['command'])}` with `{json.dumps(command['parameters'])}`")
    trace = ask("GET", f"/lifeforms/{life}/trace?from={evidence['trace']}")
    for step in trace["back"]:
        print(f"- because of {step['ref']} ({step['kind']}, by {step['by']})")
    for root in trace["roots"]:
        print(f"- and that because of {root}")
    resources = ask("GET", f"/lifeforms/{life}/resources")
    print(f"\nThe day cost {resources['spent']['tokens']} tokens; {resources['balance']['tokens']} are left.")
    daemon.terminate()
    daemon.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
