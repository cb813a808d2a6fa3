#!/usr/bin/env python3
"""Asks a lifeform what only several statements together answer: chains, counts, lists, the present state, and what nobody told.

    python3 benches/know/run.py LIFEFORMD [--talks benches/know/talks.jsonl] [--language en,zh,ja] [--misses] [--readings benches/know/readings.json] [--prompts FILE] [--distractors 0]

Starts the daemon with a recording model that answers at once, speaks HTTP only, and so measures any version of the daemon. The talks
were written by a person who had not seen the rules that read them. Right is a prompt whose last line of notes names exactly what
answers ("As far as you were told: ..."); for what nobody told, a prompt without that line. `evidence` counts the questions whose prompt
holds all statements that are needed, which a daemon without a graph can reach, too. With readings, the model answers the batches of
statements with the claims, and the questions with the queries, that were read in them by one who saw the prompts of the daemon alone
(`--prompts` prints them): they stand for a strong model. With `--answers`, the answers of a model that saw the prompts of the questions
(`--asked`) are judged, too: right is one that names all that is wanted, and "unknown" for what nobody told. `held_out.jsonl` has talks
of which the daemon was not changed after their misses. Distractors are messages of `domains.jsonl` in the language of the talk, which
its people say before it.
"""

import argparse
import collections
import io
import json
import pathlib
import re
import sys
import time
import unicodedata

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "life"))
import run as life  # noqa: E402

LINE = re.compile(r"\((?:As far as you were told|就我所听说的|聞いたかぎりでは)(?:，共)?,? ?(\d*)个?[:：] ?(.*)\)")
SETTLE_S = 60
TOGETHER = 20


def plain(text):
    text = unicodedata.normalize("NFKC", text).lower()
    return re.sub(r"\s*\([^)]*\)|さん$|くん$|ちゃん$|先生$", "", text).strip(" .。")


def same(one, other):
    one, other = plain(one), plain(other)
    return one == other or (len(min(one, other, key=len)) > 1 and (one in other or other in one))


def answers_it(question, answer):
    """Whether an answer of a model names all that is wanted, or, where nobody told it, says that it is unknown."""
    said = plain(answer)
    if question["kind"] == "not_told":
        return said == "unknown"
    parts = [part for part in re.split(r"[,、，;；]| and |和|と", answer) if part.strip()]
    return said != "unknown" and all(any(same(part, want) for part in [answer, *parts]) for want in question["answer"])


def is_right(question, prompt):
    line = LINE.search("\n".join(message.get("content") or "" for message in prompt))
    if question["kind"] == "not_told":
        return line is None
    if line is None:
        return False
    number, names = line.group(1), [name for name in line.group(2).split(", ") if name]
    if question["kind"] == "count" and int(number or len(names)) != question["count"]:
        return False
    wanted = question["answer"]
    return len(names) == len(wanted) and all(any(same(name, want) for name in names) for want in wanted)


class Reader(life.Handler):
    """Answers a batch of statements, and a question, with the readings."""

    readings, tokens, statements, questions, question_tokens, prompts = {}, 0, 0, 0, 0, None

    def of_statements(self, said):
        lines = [re.match(r"(\d+)\. [^:]+: (.*)", line) for line in said.split("\n")]
        read = self.readings.get("statements", {})
        claims = [{"n": int(line.group(1)), **claim} for line in lines if line for claim in read.get(line.group(2), [])]
        Reader.statements += len([line for line in lines if line])
        proposed = self.readings.get("predicates", {})
        new = [{"p": name, **proposed[name]} for name in dict.fromkeys(claim["p"] for claim in claims) if name in proposed]
        return {"claims": claims, "new": new, "filed": []}

    def of_question(self, said):
        question = re.match(r"<question>(.*)</question>", said, re.S).group(1)
        Reader.questions += 1
        return self.readings.get("questions", {}).get(question, {"asks": "", "counts": False, "claims": []})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(body)
        said = request["messages"][-1].get("content") or ""
        is_batch, is_question = (said.startswith(mark) for mark in ("<statements>", "<question>"))
        if not (is_batch or is_question) or not request.get("response_format") or not (self.readings or self.prompts):
            self.rfile = io.BytesIO(body)
            return super().do_POST()
        if self.prompts:
            print(json.dumps(request["messages"], ensure_ascii=False), file=self.prompts, flush=True)
        text = json.dumps(self.of_statements(said) if is_batch else self.of_question(said), ensure_ascii=False)
        tokens = life.about("".join(message["content"] for message in request["messages"])) + life.about(text)
        if is_batch:
            Reader.tokens += tokens
        else:
            Reader.question_tokens += tokens
        message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200}
        data = json.dumps({"id": "c", "object": "chat.completion", "created": 0, "model": "recorder", "choices": [message], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


MENTIONED = """FIND(?f.attributes.statement, ?e) WHERE { ?e {type: "Person"} (?f, "mentions", ?e) } LIMIT 5000"""


class Entities:
    """The people whom the mind takes for one, beside those who are one in the talks: B-cubed over the mentions that it has."""

    def __init__(self):
        self.rows = collections.defaultdict(list)
        self.all = collections.Counter()

    def of(self, talk, found):
        for at, message in enumerate(talk["messages"]):
            said = [row for row in found if row[0] and row[0] in message["text"]]
            known = {row[1]["id"]: row[1] for row in said if row[1]["attributes"].get("person_class") != "Organization"}
            mentions = [(entity, mention["surface"]) for entity in talk.get("entities", []) for mention in entity["mentions"] if mention["message"] == at]
            self.all[talk["language"]] += len(mentions)
            for entity, surface in sorted(mentions, key=lambda pair: -len(pair[1])):
                concept = self.concept(known, entity, surface)
                if concept:
                    known.pop(concept["id"])
                    self.rows[talk["language"]].append((talk["id"] + entity["id"], talk["id"] + concept["id"]))

    def concept(self, known, entity, surface):
        name = lambda concept: plain(concept["attributes"].get("name") or "")
        named = lambda concept: any(name(concept) == plain(own) for own in entity["names"]) or (name(concept) and name(concept) in plain(surface))
        login = lambda concept: entity.get("login") and concept["name"] == "user:" + entity["login"]
        fitting = [concept for concept in known.values() if login(concept)] or [concept for concept in known.values() if named(concept)]
        # A relation that nobody named yet: the one concept without a name.
        unnamed = [concept for concept in known.values() if not name(concept)]
        return (fitting or (unnamed if len(unnamed) == 1 else []) or [None])[0]

    def table(self):
        print("| language | mentions of people | of them in the graph | B-cubed precision | recall | F1 | people of whom two were made one |")
        print("|---|---|---|---|---|---|---|")
        for language, rows in sorted(self.rows.items()):
            gold, made = collections.Counter(one for one, _ in rows), collections.Counter(one for _, one in rows)
            both = collections.Counter(rows)
            precision = sum(both[row] / made[row[1]] for row in rows) / len(rows)
            recall = sum(both[row] / gold[row[0]] for row in rows) / len(rows)
            merged = sum(len({one for one, other in rows if other == concept}) > 1 for concept in made)
            f1 = 2 * precision * recall / (precision + recall)
            print(f"| {language} | {self.all[language]} | {len(rows)} | {precision:.3f} | {recall:.3f} | {f1:.3f} | {merged} of {len(made)} |")


def read_rest(daemon, mind):
    """Has the model read the statements that were left."""
    for _ in range(3):
        job = daemon.ask("POST", f"/v1/lifeforms/{mind}/system/run-maintenance", {"task": "read_statements"})["job_id"]
        life.until(60, "the end of the reading", lambda: daemon.ask("GET", f"/v1/jobs/{job}")["status"] in ("completed", "failed"))


def told(daemon, mind, place, talk, tokens, distractors):
    """Says all messages of a talk, after each of its people has spoken and the distractors were said. A lifeform passes over the
    messages of a person of whom too many wait, so the talk pauses now and then."""
    for who in talk["people"]:
        life.slowly(lambda: daemon.ask("POST", place, {"content": "Hi"}, tokens[who]))
    others = [json.loads(line) for line in open(HERE / "domains.jsonl")]
    for at, other in enumerate([other for other in others if other["set"] == talk["language"]][:distractors]):
        who = talk["people"][at % len(talk["people"])]
        life.slowly(lambda: daemon.ask("POST", place, {"content": other["text"]}, tokens[who]))
        if at % TOGETHER == TOGETHER - 1:
            settled(daemon, mind, 0.4)
    settled(daemon, mind, 0.4)
    for message in talk["messages"]:
        life.slowly(lambda: daemon.ask("POST", place, {"content": message["text"]}, tokens[message["who"]]))


def settled(daemon, mind, still_s=2):
    """Waits until the mind holds still."""
    seen, since, end = None, time.monotonic(), time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        found = daemon.ask("POST", f"/v1/nexus/{mind}/kip", {"command": "FIND(COUNT(?f)) WHERE { ?f {type: \"Fact\"} }"})
        links = daemon.ask("POST", f"/v1/nexus/{mind}/kip", {"command": "FIND(COUNT(?l)) WHERE { (?f, \"mentions\", ?l) }"})
        now = (json.dumps(found.get("result")), json.dumps(links.get("result")))
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > still_s:
            return
        time.sleep(0.1)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary")
    arguments.add_argument("--talks", default=HERE / "talks.jsonl")
    arguments.add_argument("--language", default="en,zh,ja")
    arguments.add_argument("--readings")
    arguments.add_argument("--prompts")
    arguments.add_argument("--distractors", type=int, default=0)
    arguments.add_argument("--misses", action="store_true")
    arguments.add_argument("--asked", help="a file for the prompts of the questions")
    arguments.add_argument("--answers", help="the answers of a model to these prompts, by talk and question, to be judged")
    given = arguments.parse_args()
    talks = [json.loads(line) for line in open(given.talks) if line.strip()]
    if given.readings:
        Reader.readings = json.load(open(given.readings))
    if given.prompts:
        Reader.prompts = open(given.prompts, "w")
    life.Handler = Reader
    recorder = life.Recorder()
    daemon = life.Daemon(given.binary, recorder)
    known = {}
    person = lambda who: known.setdefault(who, None) or known.update({who: daemon.person(who)}) or known[who]
    right, evidence, answered, all_ = (collections.Counter() for _ in range(4))
    answers = json.load(open(given.answers)) if given.answers else {}
    asked = open(given.asked, "w") if given.asked else None
    entities = Entities()
    try:
        for talk in [talk for talk in talks if talk["language"] in given.language.split(",")]:
            chat = daemon.lifeform()
            said = life.Talk(daemon, recorder, chat)
            tokens = {who: person(who) for who in talk["people"]}
            mind = chat.split("/")[3]
            told(daemon, mind, said.topic("mentioned"), talk, tokens, given.distractors)
            settled(daemon, mind)
            if given.readings or given.prompts:
                read_rest(daemon, mind)
            if "entities" in talk:
                entities.of(talk, daemon.ask("POST", f"/v1/nexus/{mind}/kip", {"command": MENTIONED}).get("result") or [])
            # The vectors are made in the background.
            search = {"command": "SEARCH CONCEPT \"boat\" MODE \"hybrid\" LIMIT 1"}
            life.until(300, "all vectors", lambda: "warnings" not in daemon.ask("POST", f"/v1/nexus/{mind}/kip", search))
            for question in talk["questions"]:
                prompt = said.ask(question["text"], tokens[question["by"]])
                notes = life.notes_in(prompt)
                key = (talk["language"], question["kind"])
                all_[key] += 1
                if asked:
                    of = {"key": f"{talk['id']}|{question['text']}", "asks": question["by"], "notes": notes}
                    print(json.dumps(of, ensure_ascii=False), file=asked, flush=True)
                answered[key] += answers_it(question, answers.get(f"{talk['id']}|{question['text']}", ""))
                is_hit = is_right(question, prompt)
                right[key] += is_hit
                sentences = [talk["messages"][at]["text"] for at in question["evidence"]]
                holds = lambda text: any(part.strip() and part.strip() in notes for part in re.split(r"(?<=[.!。！])\s*", text))
                evidence[key] += all(holds(text) for text in sentences)
                if given.misses and not is_hit:
                    line = LINE.search(notes)
                    print(f"{talk['id']} {question['kind']}: {question['text']} -> {line.group(0) if line else '-'}; wanted {question['answer']}", file=sys.stderr)
    finally:
        daemon.end()
        recorder.shutdown()
    if entities.rows:
        entities.table()
    print("| language | kind | questions | right | all evidence in the prompt | answered right |")
    print("|---|---|---|---|---|---|")
    for key in sorted(all_):
        print(f"| {key[0]} | {key[1]} | {all_[key]} | {right[key]} | {evidence[key]} | {answered[key]} |")
    if Reader.statements:
        print(f"tokens of the model a statement, estimated: {Reader.tokens / Reader.statements:.0f} ({Reader.statements} statements)")
    if Reader.questions:
        print(f"tokens of the model a question that it reads, estimated: {Reader.question_tokens / Reader.questions:.0f} ({Reader.questions} of {sum(all_.values())} questions)")
    graph = [key for key in all_ if key[1] != "not_told"]
    print(f"| all | chains, counts, lists, now | {sum(all_[key] for key in graph)} | {sum(right[key] for key in graph)} | {sum(evidence[key] for key in graph)} | {sum(answered[key] for key in graph)} |")


if __name__ == "__main__":
    main()
