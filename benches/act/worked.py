#!/usr/bin/env python3
"""Runs the worked example (config/fascicles/intent_analysis.toml) with a model of the process, in the example world.

    python3 benches/act/worked.py LIFEFORMD [--model qwen2.5-coder-0.5b] [--show]

20 requests, ten in English and ten in Chinese. A plan is valid if the job completed, its intent and tasks are there, the city was looked
up, and the total and what is left of the budget are right: null where the request names no budget. Prints a table, and what each plan
that is not valid lacks.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

TOKEN = "worked-example-0123456789abcdef"
START_S, JOB_S = 300, 300

# The request; the city as the world names it, nights, price of a night, budget.
REQUESTS = [
    ("I want to spend 3 nights in Kyoto with my wife, at about 9500 a night; we have 40000 in all. Plan it.", "Kyoto", 3, 9500, 40000),
    ("Plan a trip to Lisbon: 4 nights, 130 euros a night, budget 600.", "Lisbon", 4, 130, 600),
    ("Two of us go to Hangzhou for two nights. A room is 480 a night. What do we have to arrange?", "Hangzhou", 2, 480, None),
    ("Help me plan five nights in Kyoto at 4,200 yen per night. I can spend 30,000 yen.", "Kyoto", 5, 4200, 30000),
    ("My family of 4 will stay in Lisbon for 7 nights, 85 a night, and can spend 1000 at most.", "Lisbon", 7, 85, 1000),
    ("A weekend in Hangzhou, 2 nights, hostel for 140 each night, no more than 500 please.", "Hangzhou", 2, 140, 500),
    ("I need a plan for Lisbon. I stay 10 nights and pay 28 per night.", "Lisbon", 10, 28, None),
    ("Organise our stay in Kyoto: six people, 3 nights, 18000 per night for the house, total budget 60000.", "Kyoto", 3, 18000, 60000),
    ("I'd like to see Hangzhou in spring, one night at the West Lake Inn for 320. I have 1000.", "Hangzhou", 1, 320, 1000),
    ("Could you sort out 8 nights in Lisbon at 99.50 a night with a budget of 900?", "Lisbon", 8, 99.5, 900),
    ("帮我规划京都三晚的旅行，两个人，每晚9500日元，总预算40000日元。", "Kyoto", 3, 9500, 40000),
    ("我想去杭州住2晚，每晚480元，预算1500元，帮我安排一下。", "Hangzhou", 2, 480, 1500),
    ("我们一家四口去里斯本住7晚，每晚85欧元，最多花1000欧元。", "Lisbon", 7, 85, 1000),
    ("计划一下京都之行：住5晚，每晚4200日元。", "Kyoto", 5, 4200, None),
    ("周末去杭州，住两晚，旅馆每晚140元，总共不超过500元。", "Hangzhou", 2, 140, 500),
    ("我一个人去里斯本10晚，每晚28欧元，请做个计划。", "Lisbon", 10, 28, None),
    ("六个人去京都住3晚，整栋房子每晚18000日元，总预算60000日元。", "Kyoto", 3, 18000, 60000),
    ("春天去杭州西湖住一晚，320元一晚，我有1000元。", "Hangzhou", 1, 320, 1000),
    ("请安排里斯本8晚，每晚99.5欧元，预算900欧元。", "Lisbon", 8, 99.5, 900),
    ("想去京都玩四晚，每晚一万二千日元，预算五万日元。", "Kyoto", 4, 12000, 50000),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def call(port, path, body=None, wait=60):
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", "prefer": f"wait={wait}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=wait + 30) as answer:
        return json.load(answer)


def start(binary, folder, model, port):
    config = os.path.join(folder, "lifeformd.toml")
    with open(config, "w") as file:
        file.write(f'token = "{TOKEN}"\nlog = "warn"\nperson_share = 1.0\n[models]\nembedded = "{model}"\n')
    command = [binary, "up", "--config", config, "--data", os.path.join(folder, "data"), "--listen", f"127.0.0.1:{port}"]
    daemon = subprocess.Popen([*command, f"--with-example=127.0.0.1:{free_port()}"], stdout=subprocess.DEVNULL)
    for _ in range(START_S * 10):
        try:
            call(port, "/health")
            return daemon
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    daemon.kill()
    raise SystemExit("the daemon does not start")


def lacks(plan, city, nights, price, budget):
    """What a plan lacks."""
    faults = []
    if plan["status"] != "completed":
        return [f"{plan['status']}: {plan.get('error')}"]
    output = plan["output"]
    if not output.get("intent") or not output.get("tasks"):
        faults.append("intent or tasks")
    if output.get("found", {}).get("lookup", {}).get("city") != city:
        faults.append(f"look-up: {json.dumps(output.get('found'), ensure_ascii=False)[:120]}")
    stay = output.get("figures", {}).get("stay", {})
    total = nights * price
    left = None if budget is None else budget - total
    if stay.get("total") != total or stay.get("left") != left:
        faults.append(f"figures: {json.dumps(stay)}, not total {total} and left {left}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--show", action="store_true", help="print each plan")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        daemon = start(given.binary, folder, given.model, port)
        try:
            valid, seconds = {"en": 0, "zh": 0}, []
            for request, *expected in REQUESTS:
                begun = time.monotonic()
                plan = call(port, "/v1/fascicles/intent_analysis/execute", {"input": request})
                while plan["status"] not in ("completed", "failed", "cancelled") and time.monotonic() - begun < JOB_S:
                    plan = call(port, f"/v1/jobs/{plan['job_id']}")
                seconds.append(time.monotonic() - begun)
                faults = lacks(plan, *expected)
                valid["en" if request.isascii() else "zh"] += not faults
                if faults:
                    print(f"not valid: {request}\n  {'; '.join(faults)}")
                if given.show:
                    print(json.dumps(plan.get("output"), ensure_ascii=False))
            seconds.sort()
            print("| model | valid plans with right figures | en | zh | seconds a plan, median and longest |\n|---|---|---|---|---|")
            print(f"| {given.model} | {sum(valid.values())} of {len(REQUESTS)} | {valid['en']} of 10 | {valid['zh']} of 10 | {seconds[len(seconds) // 2]:.1f}, {seconds[-1]:.1f} |")
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)


if __name__ == "__main__":
    main()
