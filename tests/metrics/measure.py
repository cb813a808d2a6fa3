"""Measures the words and the rooms of the code: one row a crate, and the places of what is counted.

Usage: measure.py [--places WHAT]. WHAT is one of summaries, words, files, functions, columns. Tests, benches and generated files are left out;
functions are found by their indentation, as rustfmt leaves it.
"""

import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATES = ["store", "nexus/kip", "nexus", "neurons", "knowledge", "fascicles", "lifeform", "runtime"]
BEGINNINGS = "What|Whether|How|Which|Who|Whose|Where|When|Why|It|Its|Those"
WORDS = re.compile(r"\b(told|somebody|whoever|anew|stands)\b")
LINES_MAX, FUNCTION_MAX, COLUMNS_MAX = 500, 70, 120


def sources(crate):
    for path in sorted((ROOT / crate / "src").rglob("*.rs")):
        if path.name != "generated.rs":
            yield path, path.read_text().split("#[cfg(test)]\nmod tests")[0].splitlines()


def measured(crate):
    found = {name: [] for name in ("docs", "summaries", "words", "files", "functions", "columns")}
    lengths, functions = [], 0
    for path, lines in sources(crate):
        place = path.relative_to(ROOT)
        lengths.append(len(lines))
        if len(lines) > LINES_MAX:
            found["files"].append(f"{place}: {len(lines)} lines")
        begun = None
        for number, line in enumerate(lines, 1):
            text = line.strip()
            is_doc, before = text.startswith(("///", "//!")), lines[number - 2].strip() if number > 1 else ""
            if is_doc and not before.startswith(text[:3]):
                found["docs"].append(place)
                if re.match(rf"//[/!] (?:{BEGINNINGS})\b", text):
                    found["summaries"].append(f"{place}:{number}: {text}")
            if text.startswith("//") and WORDS.search(text):
                found["words"].append(f"{place}:{number}: {text}")
            if len(line) > COLUMNS_MAX:
                found["columns"].append(f"{place}:{number}: {len(line)} columns")
            if re.match(r"\s*(?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?fn ", line):
                begun, functions = (number, len(line) - len(line.lstrip())), functions + 1
            if begun and line.startswith(" " * begun[1] + "}") and len(line.rstrip()) == begun[1] + 1:
                if number - begun[0] + 1 > FUNCTION_MAX:
                    found["functions"].append(f"{place}:{begun[0]}: {number - begun[0] + 1} lines")
                begun = None
    return found, lengths, functions


def main():
    wanted = sys.argv[2] if sys.argv[1:2] == ["--places"] else None
    every, lengths, functions = {}, [], 0
    print("| crate | files | median | p90 | max | over 500 | functions over 70 | summaries | of docs | words | over 120 columns |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for crate in CRATES:
        found, own, count = measured(crate)
        [every.setdefault(name, []).extend(places) for name, places in found.items()]
        lengths, functions = lengths + own, functions + count
        row(crate, found, own)
    row("all", every, lengths)
    print(f"\n{len(every['functions'])} of {functions} functions are over {FUNCTION_MAX} lines ({100 * len(every['functions']) / functions:.1f} %).")
    if wanted:
        print("\n".join(every[wanted]))


def row(name, found, lengths):
    p90 = sorted(lengths)[int(len(lengths) * 0.9)]
    share = 100 * len(found["summaries"]) / max(len(found["docs"]), 1)
    print(f"| {name} | {len(lengths)} | {statistics.median(lengths):.0f} | {p90} | {max(lengths)} | {len(found['files'])} | {len(found['functions'])} | {len(found['summaries'])} ({share:.1f} %) | {len(found['docs'])} | {len(found['words'])} | {len(found['columns'])} |")


if __name__ == "__main__":
    main()
