"""Test runs: totals and the first failing test; durations left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

from elision.strategies.extractors.arguments import words_of
from elision.strategies.extractors.command import command_of, output_of
from elision.strategies.extractors.outcome import Outcome, counted, one_line
from elision.trajectory.turn import Action, Observation

#: Programs whose output may quote a test run without being one.
_QUOTERS = frozenset({"cat", "head", "tail", "sed", "grep", "rg", "git", "gh", "find", "ls", "less"})

#: Reads the lines of an output (each cut to LINE characters): totals and first failing test, or None: no such run.
Summary: TypeAlias = Callable[[list[str]], tuple[str, str] | None]
LINE = 300

_PYTEST = re.compile(
    r"(?:=+ )?(\d+ (?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?)\b.{0,200}?) in \d"
)
_PYTEST_NONE = re.compile(r"(?:=+ )?no tests ran\b|(?:=+ )?\d+ deselected in ")
_PYTEST_COUNT = re.compile(r"(\d+) (failed|errors?|passed|skipped|xfailed|xpassed|deselected)\b")
_PYTEST_FIRST = re.compile(r"(?:FAILED|ERROR) ([^\s:]\S{0,200})")
_PYTEST_TITLE = re.compile(r"_{3,80} ([^_].{0,120}?) _{3,80}\Z")
_UNITTEST = re.compile(r"Ran (\d{1,9}) tests? in ")
_UNITTEST_END = re.compile(r"(OK|FAILED)(?: \((.{0,100})\))?\Z")
_UNITTEST_FIRST = re.compile(r"(?:FAIL|ERROR): (\S{1,120})")
_JEST = re.compile(r"\s{0,10}Tests:?\s{1,12}((?:\d+ (?:failed|passed|skipped|todo|total|pending)\W{0,4})+)")
_JEST_COUNT = re.compile(r"(\d+) (failed|passed|skipped|todo)")
_JEST_FIRST = re.compile(r"\s{0,6}(?:●|✕|×|FAIL)\s{1,3}(\S.{0,120})")
_GO = re.compile(r"(ok|FAIL)\s{1,4}\t?\S{1,200}\s{1,4}(?:\(cached\)|[\d.]{1,12}s|\[)")
_GO_FIRST = re.compile(r"\s{0,12}--- FAIL: (\S{1,120})")
_CARGO = re.compile(r"test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored")
_CARGO_FIRST = re.compile(r"test (\S{1,160}) \.\.\. FAILED")
_MOCHA = re.compile(r"\s{1,8}(\d+) (passing|failing|pending)\b")
_MOCHA_FIRST = re.compile(r"\s{1,8}1\) (\S.{0,120})")
_RSPEC = re.compile(r"(\d+) examples?, (\d+) failures?")
_RSPEC_FIRST = re.compile(r"rspec (\S{1,160})")
_TAP = re.compile(r"(?:#|ℹ) (pass|fail) (\d+)\Z")
_TAP_FIRST = re.compile(r"\s{0,12}(?:not ok \d+ -? ?|✖ )(\S.{0,120})")
_LIBTEST = re.compile(r"(\d{1,3})% tests passed, (\d+) tests? failed out of (\d+)")
_LIBTEST_FIRST = re.compile(r"\s{1,6}\d+ - (\S{1,120}) \(")


def tested(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """Output that ends in a known test summary, unless the command only quoted it."""
    command = command_of(action, observation)
    if command is not None and command.stages and command.stages[0].program in _QUOTERS:
        return None
    envelope = output_of(action, observation)
    found = summary_in(envelope.ends)
    if found is None:
        return None
    totals, first = found
    parts = ([f"exit {envelope.exit}"] if envelope.exit is not None else []) + [totals]
    result = ", ".join(parts) + (f", first: {one_line(first, 60)}" if first else "")
    return Outcome(command.label if command else words_of(action), result)


@lru_cache(maxsize=128)
def summary_in(text: str) -> tuple[str, str] | None:
    """Totals and first failing test of the run that `text` ends with; None if it does with none.

    The small cache serves the digest, which looks again at what placeholders were written for.
    """
    lines = [line[:LINE].rstrip() for line in text.split("\n")]
    asked = (read for read, hints in SUMMARIES.items() if any(hint in text for hint in hints))
    return next((summary for read in asked if (summary := read(lines)) is not None), None)


def _first(pattern: re.Pattern[str], lines: list[str]) -> str:
    return next((found[1].strip() for line in lines if (found := pattern.match(line))), "")


def _last(pattern: re.Pattern[str], lines: list[str]) -> re.Match[str] | None:
    return next((found for line in reversed(lines) if (found := pattern.match(line))), None)


def pytest(lines: list[str]) -> tuple[str, str] | None:
    """pytest: "3 failed, 12 passed"."""
    found = _last(_PYTEST, lines)
    if found is None:
        if _last(_PYTEST_NONE, lines):
            return ("no tests ran", "")
        return None
    counts = [f"{number} {word}" for number, word in _PYTEST_COUNT.findall(found[1])]
    if not counts:
        return "no tests ran", ""
    totals = ", ".join(counts)
    if "failed" not in totals and "error" not in totals:
        return totals, ""
    first = _first(_PYTEST_FIRST, lines) or _first(_PYTEST_TITLE, lines)
    return totals, first.rpartition("::")[2] or first


def unittest(lines: list[str]) -> tuple[str, str] | None:
    """unittest and Django's runner: "3 tests, errors=2"."""
    found = _last(_UNITTEST, lines)
    if found is None:
        return None
    end = _last(_UNITTEST_END, lines)
    if end is None:
        verdict = ""
    elif end[1] == "FAILED":
        verdict = end[2] or end[1]
    else:
        verdict = " ".join(filter(None, end.groups()))
    tests = counted(int(found[1]), "test")
    totals = f"{tests}, {verdict}" if verdict else tests
    return totals, _first(_UNITTEST_FIRST, lines) if end is not None and end[1] == "FAILED" else ""


def jest(lines: list[str]) -> tuple[str, str] | None:
    """jest and vitest: "1 failed, 3 passed"."""
    found = _last(_JEST, lines)
    if found is None or not (counts := _JEST_COUNT.findall(found[1])):
        return None
    failed = any(word == "failed" for _, word in counts)
    return ", ".join(f"{number} {word}" for number, word in counts), _first(_JEST_FIRST, lines) if failed else ""


def go(lines: list[str]) -> tuple[str, str] | None:
    """go test: packages, and failed tests."""
    verdicts = [found[1] for line in lines if (found := _GO.match(line))]
    failures = [found[1] for line in lines if (found := _GO_FIRST.match(line))]
    if not verdicts and not failures:
        return None
    ok = verdicts.count("ok")
    bad = verdicts.count("FAIL")
    counts = [counted(bad, "package") + " failed"] * bool(bad) + [counted(ok, "package") + " ok"] * bool(ok)
    tests = [counted(len(failures), "test") + " failed"] * bool(failures)
    return ", ".join(tests + counts), failures[0] if failures else ""


def cargo(lines: list[str]) -> tuple[str, str] | None:
    """cargo test, its several targets added up."""
    found = [match for line in lines if (match := _CARGO.match(line))]
    if not found:
        return None
    passed, failed, ignored = (sum(int(match[group]) for match in found) for group in (1, 2, 3))
    counts = [(failed, "failed"), (passed, "passed"), (ignored, "ignored")]
    shown = [f"{number} {word}" for number, word in counts if number or word == "passed"]
    return ", ".join(shown), _first(_CARGO_FIRST, lines)


def mocha(lines: list[str]) -> tuple[str, str] | None:
    """mocha: "3 passing, 1 failing"."""
    counts = [found.groups() for line in lines if (found := _MOCHA.match(line))]
    if not any(word == "passing" for _, word in counts):
        return None
    failed = any(word == "failing" for _, word in counts)
    return ", ".join(f"{number} {word}" for number, word in counts), _first(_MOCHA_FIRST, lines) if failed else ""


def rspec(lines: list[str]) -> tuple[str, str] | None:
    """rspec: "5 examples, 1 failure"."""
    found = _last(_RSPEC, lines)
    if found:
        return (found[0], _first(_RSPEC_FIRST, lines) if found[2] != "0" else "")
    return None


def tap(lines: list[str]) -> tuple[str, str] | None:
    """TAP and node --test: "5 pass, 1 fail"."""
    counts = {found[1]: found[2] for line in lines if (found := _TAP.match(line))}
    if "pass" not in counts or "fail" not in counts:
        return None
    return f"{counts['fail']} failed, {counts['pass']} passed", _first(_TAP_FIRST, lines) if counts[
        "fail"
    ] != "0" else ""


def ctest(lines: list[str]) -> tuple[str, str] | None:
    """ctest: "2 of 10 failed"."""
    found = _last(_LIBTEST, lines)
    if found:
        return (f"{found[2]} of {found[3]} failed", _first(_LIBTEST_FIRST, lines))
    return None


#: Readers in the order they are asked, each with words of which one stands in any output that it can read.
SUMMARIES: Mapping[Summary, tuple[str, ...]] = {
    pytest: (" in ", "no tests ran"),
    unittest: ("Ran ",),
    cargo: ("test result: ",),
    jest: ("Tests",),
    go: ("ok ", "ok\t", "FAIL"),
    mocha: ("passing",),
    rspec: ("example",),
    tap: ("pass ",),
    ctest: ("tests passed",),
}
