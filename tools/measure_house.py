"""Print how much a reader keeps in mind and a processor runs: the counts of today and those that were landed last.

    python tools/measure_house.py            a number above the landed one ends it with code 1
    python tools/measure_house.py --land     today's numbers are the landed ones from now on (house.json beside it)

What runs is counted at call 50 of a fixed session, with `sys.setprofile`; the rest is read from the source. Functions
are those that are written with `def`. A private function is short with one caller if its name, which starts with one
underscore, occurs once beside its definition and its body has at most five lines. An f-string is one token, as
Python 3.11 reads it. No time is measured.
"""

from __future__ import annotations

import ast
import gc
import json
import logging
import sys
import tempfile
import time
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any, Final

import measure_words
from elision import ContextManager
from trace_walk import Walk, trace_prepare, trace_request

ROOT: Final = Path(__file__).parents[1]
LANDED: Final = Path(__file__).with_name("house.json")
#: The call of a session that is counted.
CALL: Final = 50
#: Lines of the body of a short function.
SHORT: Final = 5
#: Calls vary with the order of threads and of sets: that often a coroutine is resumed or a page read. Functions and
#: files do not.
MARGINS: Final = {"rewrite of masking: calls": 1.005, "gateway request: calls": 1.02}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def measure_house() -> dict[str, float]:
    """Return every number of the table by its row."""
    hiding_nothing, rewriting = count_call("raw"), count_call("masking")
    prepared, requested = trace_prepare(), trace_request()
    source = measure_words.measure_folder(ROOT / "src")
    return {
        "prepare that hides nothing: functions": len(hiding_nothing.functions),
        "prepare that hides nothing: files": len(hiding_nothing.files),
        "rewrite of masking: calls": rewriting.functions.total(),
        "rewrite of masking: functions": len(rewriting.functions),
        "rewrite of masking: files": len(rewriting.files),
        "gateway request: calls": requested.functions.total(),
        "gateway request: functions": len(requested.functions),
        "gateway request: files": len(requested.files),
        "path of messages: files": len({file for file, _, _ in prepared.names}),
        "path of messages: names": len(prepared.names),
        "path of a request: files": len({file for file, _, _ in requested.names}),
        "path of a request: names": len(requested.names),
        "source: modules": sum(isinstance(node, ast.Module) for node in source.nodes),
        "source: functions": sum(isinstance(node, _FUNCTIONS) for node in source.nodes),
        "source: classes": sum(isinstance(node, ast.ClassDef) for node in source.nodes),
        "source: tokens": source.tokens,
        "source: short private functions with one caller": count_short_helpers(source.nodes),
        "source: complexity per code line": round(sum(source.complexities) / source.function_lines, 3),
        "source: complexity of the most complex function": max(source.complexities),
        "tests: tokens": count_tokens(ROOT / "tests"),
    }


def count_call(strategy: str) -> Walk:
    """Return what call `CALL` runs of a session that reads a log file of 60 lines in every turn, on one thread."""
    walk = Walk()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Which of the log files show the fault?"}]
    with (
        tempfile.TemporaryDirectory() as folder,
        ContextManager(
            strategy, model="claude-sonnet-4-5", store=f"sqlite:///{folder}/house.db", session="house"
        ) as context,
    ):
        for number in range(1, CALL + 1):
            if number == CALL:
                sys.setprofile(walk.count_call)
            try:
                context.prepare(messages)
            finally:
                sys.setprofile(None)
            call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f"[{number}]"}}
            lines = "\n".join(f"{number}:{line:02} GET /items/{line * number} 200" for line in range(60))
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": lines})
            context.record({"prompt_tokens": 1000 + number, "completion_tokens": 5})
            # What is done while the model thinks is no part of the next call.
            while context._opened.calls.think_time.is_under_way:
                time.sleep(0.001)
    return walk


def count_tokens(folder: Path) -> int:
    """Return how many names, operators, numbers and strings the Python files below `folder` have."""
    count = 0
    for path in sorted(folder.rglob("*.py")):
        with path.open("rb") as file:
            count += measure_words.count_tokens(tokenize.tokenize(file.readline))
    return count


def count_short_helpers(nodes: list[ast.AST]) -> int:
    """Return how many private functions of at most `SHORT` lines are named in one place beside their definition."""
    named: Counter[str] = Counter()
    defined: dict[str, list[int]] = {}
    for node in nodes:
        if isinstance(node, ast.Name):
            named[node.id] += 1
        elif isinstance(node, ast.Attribute):
            named[node.attr] += 1
        elif isinstance(node, ast.alias):
            named[node.name] += 1
        elif isinstance(node, _FUNCTIONS) and node.name.startswith("_") and not node.name.startswith("__"):
            body = node.body[ast.get_docstring(node) is not None :]
            length = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            defined.setdefault(node.name, []).append(length)
    return sum(named[name] == 1 and len(each) == 1 and each[0] <= SHORT for name, each in defined.items())


def find_risen(today: dict[str, float], landed: dict[str, float]) -> list[str]:
    """Return the rows that are above their landed number by more than their margin, or have none."""
    return [row for row, number in today.items() if number > landed.get(row, -1) * MARGINS.get(row, 1)]


def main(arguments: list[str]) -> int:
    """Print the table, and land it with `--land`; return 1 where a number has risen."""
    logging.disable()
    # Nothing is run by a collection in the midst of what is counted, and trees stay cheap to build.
    gc.disable()
    today = measure_house()
    landed: dict[str, float] = json.loads(LANDED.read_text(encoding="utf-8")) if LANDED.exists() else {}
    risen = find_risen(today, landed)
    print(f"{'':48}{'today':>10}{'landed':>10}")
    for row, number in today.items():
        before = f"{landed[row]:,}" if row in landed else "-"
        print(f"{row:48}{number:>10,}{before:>10}{'  has risen' if row in risen else ''}")
    if "--land" in arguments:
        LANDED.write_text(json.dumps(today, indent=2) + "\n", encoding="utf-8")
        return 0
    if risen:
        print("Take as much away elsewhere, or land what has to rise with --land and say why in the commit.")
    return int(bool(risen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
