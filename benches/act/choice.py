#!/usr/bin/env python3
"""Asks a lifeform that has 200 tools for what one of them does, and looks which tools its model is shown.

    python3 benches/act/choice.py LIFEFORMD [--language en|zh|ja] [--embedder minilm-l6-v2] [--misses]

The tools and the requests, in other words than the tools' own, stand in tools.tsv; requests in Chinese and Japanese in requests.tsv. A goal with the request as its title shows 20 cards to
the model that plans, and a message in a topic 16 definitions to the model that answers. A hit is the tool among them. Prints a table.
"""

import argparse
import json
import os
import re

import world


# A document may have fewer operations than there are tools, so these stand in several.
PREFIX = re.compile(r"^all\d+_")


def without(name):
    return PREFIX.sub("", name)


class Recorder:
    """Records the tools that it is shown: the cards of a plan, and the definitions of an answer."""

    def __init__(self):
        self.cards, self.given = [], []

    def think(self, request):
        last = next(message["content"] for message in reversed(request["messages"]) if message["role"] == "user")
        if last.startswith("What you have set out to do"):
            title = re.search(r"<title>(.*?)</title>", last, re.S).group(1)
            lines = re.search(r"<tools>(.*?)</tools>", last, re.S).group(1).strip().splitlines()
            names = re.search(r"<more_tools_by_name>(.*?)</more_tools_by_name>", last, re.S)
            names = names.group(1).split(", ") if names else []
            cards = [without(line[2:].split("(")[0]) for line in lines]
            self.cards.append((title, cards, [without(name) for name in names], len("".join(lines) + ", ".join(names)) // 4))
            plan = {"steps": [], "say": "", "status": "done", "again_in_minutes": 0, "subgoals": []}
            return json.dumps(plan), []
        names = [tool["function"]["name"] for tool in request.get("tools", [])]
        self.given.append((last, [without(name) for name in names if PREFIX.match(name)]))
        return "All right.", []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--language", default="en", choices=["en", "zh", "ja"])
    parser.add_argument("--embedder", default="minilm-l6-v2")
    parser.add_argument("--misses", action="store_true")
    given = parser.parse_args()
    with open(os.path.join(os.path.dirname(__file__), "tools.tsv")) as file:
        tools = [line.rstrip("\n").split("\t") for line in file]
    with open(os.path.join(os.path.dirname(__file__), "requests.tsv")) as file:
        others = [line.rstrip("\n").split("\t") for line in file]
    harbour, model = world.Harbour(1), Recorder()
    daemon = world.Daemon(given.binary, world.Model(model.think), harbour, embedder=given.embedder)
    try:
        answer = {"200": {"description": "ok"}}
        operation = lambda name, about: {"get": {"operationId": name, "summary": about, "responses": answer}}
        uses = []
        for start in range(0, len(tools), 50):
            paths = {f"/{name}": operation(name, about) for name, about, _ in tools[start : start + 50]}
            document = {"openapi": "3.1.0", "info": {"title": "all", "version": "1"}, "servers": [{"url": f"http://127.0.0.1:{harbour.port}"}], "paths": paths}
            daemon.ask("PUT", f"/v1/tools/all{start}", {"run": {"openapi": {"document": document}}})
            uses.append({"use": f"all{start}"})
        daemon.lifeform()
        daemon.ask("PUT", f"{daemon.life}/tools", {"tools": uses})
        wanted = {request: name for name, _, request in tools if request}
        if given.language != "en":
            wanted = {request: name for language, name, request in others if language == given.language}
        for request in wanted:
            before = len(model.cards)
            daemon.ask("POST", f"{daemon.life}/goals", {"title": request})
            world.until(60, "plan", lambda: len(model.cards) > before)
        chat = f"{daemon.life}/canvases/canvas_chat_main"
        for number, request in enumerate(wanted):
            before = len(model.given)
            daemon.ask("POST", f"{chat}/topics", {"id": f"t{number}", "title": "t"})
            daemon.ask("POST", f"{chat}/topics/t{number}/messages", {"content": request})
            try:
                world.until(10, "answer", lambda: len(model.given) > before)
            except SystemExit:
                print(f"no model was asked: {request}")
        plans = {title: (cards, names, tokens) for title, cards, names, tokens in reversed(model.cards)}
        talks = {request: next((names for last, names in model.given if request in last), []) for request in wanted}
        rows = [
            ("the cards of a plan", [plans[request][0] for request in wanted]),
            ("the cards of a plan and the names beside them", [sum(plans[request][:2], []) for request in wanted]),
            ("the definitions of an answer", [talks[request] for request in wanted]),
        ]
        print(f"| shown to a model, of {len(tools)} tools | shown | requests | the tool is among them | first | among five |\n|---|---|---|---|---|---|")
        for what, shown in rows:
            hits = [names.index(wanted[request]) if wanted[request] in names else None for request, names in zip(wanted, shown)]
            within = lambda most: sum(hit is not None and hit < most for hit in hits)
            order = (within(1), within(5)) if what.startswith("the cards") else ("–", "–")
            print(f"| {what} | {max(map(len, shown))} | {len(wanted)} | {within(99)} ({100 * within(99) / len(wanted):.1f} %) | {order[0]} | {order[1]} |")
            if given.misses:
                for request, hit in zip(wanted, hits):
                    print(f"  missed: {request} ({wanted[request]})" if hit is None else "", end="\n" if hit is None else "")
        print(f"tokens of cards and names, characters through four: {max(tokens for *_, tokens in plans.values())} at most")
    finally:
        daemon.kill()


if __name__ == "__main__":
    main()
