#!/usr/bin/env python3
"""Counts how well a strong model files statements into domains.

    python3 benches/know/filed.py [FILED]

`filed.jsonl` holds the answers of a language model to the instructions of `config/fascicles/form.toml` for the messages of
`domains.jsonl`, twelve in a batch, each with the names that it gave before. A name with eight messages is a domain, as in the
daemon. Its theme is that of most of its messages.
"""

import collections
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
BATCH, DOMAIN_FROM = 12, 8

messages, names = collections.defaultdict(list), collections.defaultdict(lambda: collections.defaultdict(list))
for line in open(HERE / "domains.jsonl"):
    message = json.loads(line)
    messages[message["set"]].append(message["theme"])
for line in open(sys.argv[1] if len(sys.argv) > 1 else HERE / "filed.jsonl"):
    answer = json.loads(line)
    for filed in answer["filed"]:
        names[answer["set"]][filed["domain"]].append((answer["batch"] - 1) * BATCH + filed["n"] - 1)

print("| set | themes | domains | themes that have one | members of the domain's theme | messages with a theme in no domain | small talk in a domain |")
print("|---|---|---|---|---|---|---|")
for of, themes in messages.items():
    domains = {name: places for name, places in names[of].items() if len(places) >= DOMAIN_FROM}
    top = {name: collections.Counter(themes[at] for at in places).most_common(1)[0] for name, places in domains.items()}
    filed = {at for places in domains.values() for at in places}
    members = sum(map(len, domains.values()))
    themed = [at for at, theme in enumerate(themes) if theme]
    found = len({theme for theme, _ in top.values()} - {None})
    print(f"| {of} | {len({theme for theme in themes if theme})} | {len(domains)} | {found} | "
          f"{100 * sum(count for _, count in top.values()) / members:.0f} % of {members} | "
          f"{sum(at not in filed for at in themed)} of {len(themed)} | {sum(at in filed for at, theme in enumerate(themes) if not theme)} |")
