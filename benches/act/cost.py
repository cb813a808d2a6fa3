#!/usr/bin/env python3
"""Measures what the record of an effect costs: the processor time of a neuron's call that changes something, beside one that reads.

    python3 benches/act/cost.py LIFEFORMD [--calls 400]

The same neuron calls one tool in each invocation, over HTTP in a harbour of this process: GET, and POST. Rounds of both alternate, with
one client and with 16. Prints a table.
"""

import argparse
import concurrent.futures
import os
import statistics

from world import Daemon, Harbour, Model

TICKS = os.sysconf("SC_CLK_TCK")


def think(request):
    if any(message["role"] == "tool" for message in request["messages"]):
        return "Done.", []
    return "", [(request["tools"][0]["function"]["name"], {"text": str(len(request["messages"]))})]


def seconds(daemon):
    """The processor time that the daemon has used so far."""
    with open(f"/proc/{daemon.process.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--calls", type=int, default=400)
    given = parser.parse_args()
    harbour = Harbour(1)
    daemon = Daemon(given.binary, Model(think), harbour)
    text = {"type": "object", "properties": {"text": {"type": "string"}}}
    for name, method, path in (("reads", "GET", "/berths"), ("writes", "POST", "/notes")):
        run = {"http": {"method": method, "url": f"http://127.0.0.1:{harbour.port}{path}"}}
        tool = {"name": "act", "parameters": text, "run": run}
        daemon.ask("POST", "/v1/neurons", {"id": name, "kind": "base", "tools": [tool]})
    print("| processor time of an invocation with one call, ms | that reads | that changes something | difference (asked for: ≤ 0.3) |\n|---|---|---|---|")
    for clients in (1, 16):
        rounds = {"reads": [], "writes": []}
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            for round_ in range(9):
                for name, costs in rounds.items():
                    before = seconds(daemon)
                    ask = lambda _: daemon.ask("POST", f"/v1/neurons/{name}/invoke", {"input": "Act."})
                    list(pool.map(ask, range(given.calls // 8)))
                    # The first round warms up.
                    costs.extend([(seconds(daemon) - before) / (given.calls // 8) * 1000] if round_ else [])
        reads, writes = (statistics.median(costs) for costs in rounds.values())
        print(f"| {clients} at once | {reads:.2f} | {writes:.2f} | {writes - reads:.2f} |", flush=True)
    daemon.kill()


if __name__ == "__main__":
    main()
