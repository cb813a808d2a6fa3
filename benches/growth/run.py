#!/usr/bin/env python3
"""What a lifeform makes of a long talk: records made, duplicates, junk by rule, tokens spent, whether anything that it was told
unasked was learned again, and the claims of its graph.

    python3 benches/growth/run.py <lifeformd> <folder with the sets> [--messages 500] [--questions 0] [--model NAME]

A talk of LoCoMo (benches/README.md) is posted message by message, each by its own speaker, through the public API into the
chat of a lifeform, in a topic where it answers only who calls it; after every so many messages it is called and asked
one of the set's questions. Without a model only explicit cues become records. The rules for junk are of this file, not of
the daemon.
"""

import argparse
import json
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "retrieval"))
from run import Client, Daemon, digest  # noqa: E402

TOPIC = "talk"


def turns(file, most, skipped):
    """Speakers and what they say, in order, and questions about it."""
    for sample in json.loads(file.read_text())[skipped:]:
        talk, said, number = sample["conversation"], [], 1
        while f"session_{number}" in talk:
            said += [(turn["speaker"], turn["text"]) for turn in talk[f"session_{number}"] if turn.get("text")]
            number += 1
        if len(said) >= most:
            asked = [question["question"] for question in sample["qa"] if question["category"] != 5]
            return said[:most], asked
    raise SystemExit(f"no talk of {most} messages")


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def likeness(one, other):
    return len(one & other) / max(len(one | other), 1)


def junk(record, said):
    """Why a record is worth nothing, if it is not."""
    content = record["content"].strip()
    if "<knowledge" in content:
        return "it was told, not said"
    if content.endswith("?"):
        return "it asks"
    if len(words(content)) < 3:
        return "it says too little"
    if "user_profile" in record["types"] and not any(content in text for text in said):
        return "nobody said so"
    if re.match(r"(?i)(thanks|thank you|hi|hello|hey|wow|ok|okay|bye|sure)\b", content):
        return "it greets"
    return None


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("lifeformd")
    asked.add_argument("folder", type=pathlib.Path)
    asked.add_argument("--messages", type=int, default=500)
    asked.add_argument("--skip", type=int, default=0, help="talks of the set to pass over")
    asked.add_argument("--questions", type=int, default=0)
    asked.add_argument("--patience", type=int, default=300, help="seconds that an answer may take: a small model on a few cores is slow")
    asked.add_argument("--model", default="none", help="what LIFEFORMD_MODELS__EMBEDDED is; questions need one")
    asked = asked.parse_args()
    file = asked.folder / "locomo10.json"
    said, questions = turns(file, asked.messages, asked.skip)
    print(f"{file.name} sha256 {digest(file)}, {len(said)} messages, {asked.questions} questions, model {asked.model}")
    daemon = Daemon(asked.lifeformd, "none", asked.model)
    try:
        operator = Client(daemon.port, "retrieval-bench-operator")
        made = operator.ask("POST", "/v1/lifeforms", {"definition": {"name": "Iris", "nutrients": {"tokens": 5_000_000, "micro_usd": 0}}})
        life = f"/v1/lifeforms/{made['id']}"
        operator.ask("POST", f"{life}/start", {})
        chat = f"{life}/canvases/canvas_chat_main"
        operator.ask("POST", f"{chat}/topics", {"id": TOPIC, "title": TOPIC, "turns": "mentioned"})
        people = {name: daemon.principal(name.lower()) for name in sorted({name for name, _ in said})}
        posted = f"{chat}/topics/{TOPIC}/messages"
        every = len(said) // asked.questions if asked.questions else 0
        begun = time.perf_counter()
        for at, (speaker, text) in enumerate(said, 1):
            post(people[speaker], posted, text)
            if every and at % every == 0:
                question = f"@Iris {questions[at // every - 1]}"
                message = post(people[speaker], posted, question)
                wait_for_answer(operator, posted, message, asked.patience)
        settle(operator, life)
        took = time.perf_counter() - begun
        records = operator.ask("GET", "/api/knowledge?limit=1000")["results"]
        texts = [text for _, text in said]
        by_type = {}
        for record in records:
            kind = "/".join(record["types"]) + ":" + str(record["tags"].get("category", ""))
            by_type[kind] = by_type.get(kind, 0) + 1
        # Those that cases confirmed say what several messages said.
        confirmed = sum(record["eval"]["helpful"] > 1 for record in records)
        pairs = [
            (one, other) for at, one in enumerate(records) for other in records[at + 1 :]
            if one["owner"] == other["owner"] and likeness(words(one["content"]), words(other["content"])) >= 0.8
        ]
        faults = [(why, record["content"]) for record in records if (why := junk(record, texts))]
        again = [record for record in records if "<knowledge" in record["content"]]
        report = operator.ask("GET", f"{life}/resources/report")
        spent = sum(tally["charged"]["tokens"] for group in report["by"].get("model", {}).values() for tally in [group])
        print(f"posted and heard in {took:.1f} s")
        print(f"records {len(records)}: " + ", ".join(f"{kind} {count}" for kind, count in sorted(by_type.items())))
        print(f"confirmed {confirmed}, duplicates {len(pairs)}, junk {len(faults)}, learned again {len(again)}, tokens {spent}")
        claims = claimed(operator, life)
        once = {(claim["s"], claim["p"], claim["o"]) for claim in claims}
        print(f"claims {len(claims)}, the same claim twice {len(claims) - len(once)}; of {len({claim['f'] for claim in claims})} statements")
        for claim in claims:
            print(f"    {claim['s']} {claim['p']} {claim['o']} <- {claim['f']}", file=sys.stderr)
        for why, content in faults[:20]:
            print(f"  junk: {why}: {content[:100]}")
        for one, other in pairs[:10]:
            print(f"  twice: {one['content'][:80]} | {other['content'][:80]}")
        for record in records[:400]:
            print(f"    {record['tags'].get('category')}: {record['content'][:140]}", file=sys.stderr)
    finally:
        daemon.stop()


def claimed(client, life):
    """The active claims of the mind, each once, by the names of its ends, with the first statement that states it."""
    job = client.ask("POST", f"{life}/system/run-maintenance", {"task": "form_claims"})["job_id"]
    while client.ask("GET", f"/v1/jobs/{job}")["status"] != "completed":
        time.sleep(0.2)
    find = lambda command: client.ask("POST", f"{life}/kip", {"command": command})["result"]
    claims = {}
    for predicate in find('FIND(?t.name) WHERE { ?t {type: "$PropositionType"} } LIMIT 200'):
        if predicate in ("states", "stated", "mentions", "read_by", "stated_by", "belongs_to_domain"):
            continue
        rows = find(f'''FIND(?l.id, ?s, ?o, ?f.attributes.statement) WHERE {{ ?l (?s, "{predicate}", ?o) (?f, "states", ?l)
            FILTER(?l.metadata.status == "active" && ?f.metadata.status == "active") }} LIMIT 5000''')
        for link, subject, object, statement in rows:
            name = lambda end: end["attributes"].get("name") or end["attributes"].get("relation") or end["name"]
            claims.setdefault(link, {"s": name(subject), "p": predicate, "o": name(object), "f": statement})
    return list(claims.values())


def post(client, path, content):
    """Says something; a person may only say so much in a minute."""
    while True:
        client.connection.request("POST", path, json.dumps({"content": content}), client.headers)
        answer = client.connection.getresponse()
        read = json.loads(answer.read())
        if answer.status == 429:
            time.sleep(float(answer.headers.get("retry-after", "1")))
            continue
        if answer.status >= 400:
            raise SystemExit(f"POST {path}: {answer.status} {read}")
        return read["id"]


def wait_for_answer(client, path, message, patience):
    for _ in range(4 * patience):
        newest = client.ask("GET", f"{path}?limit=5")["messages"]
        if any(one.get("reply_to") == message and one["status"] == "final" for one in newest):
            return
        time.sleep(0.25)
    raise SystemExit(f"no answer came within {patience} s")


def settle(client, life):
    """Waits until everything that was said is heard: no job is under way."""
    calm = 0
    while calm < 4:
        jobs = client.ask("GET", "/v1/jobs?limit=100")["jobs"]
        busy = [job for job in jobs if job["status"] in ("pending", "running")]
        calm = 0 if busy else calm + 1
        time.sleep(0.5)


if __name__ == "__main__":
    main()
