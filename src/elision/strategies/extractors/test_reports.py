"""Test runs: totals and the first failing test; durations left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

from elision.strategies.extractors.command import find_command, find_output
from elision.strategies.extractors.outcome import Outcome, describe_arguments, format_count, shorten_to_line
from elision.trajectory.turn import Action, Observation

#: Programs whose output may quote a test run without being one.
_QUOTERS = frozenset({"cat", "head", "tail", "sed", "grep", "rg", "git", "gh", "find", "ls", "less"})

#: Reads the lines of an output (each cut to LINE characters): totals and first failing test, or None: no such run.
SummaryReader: TypeAlias = Callable[[list[str]], tuple[str, str] | None]
LONGEST_LINE = 300

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


def describe_test_run(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """Output that ends in a known test summary, unless the command only quoted it."""
    command = find_command(action, observation)
    if command is not None and command.stages and command.stages[0].program in _QUOTERS:
        return None
    envelope = find_output(action, observation)
    found = find_test_summary(envelope.head_and_tail)
    if found is None:
        return None
    totals, first = found
    parts = ([f"exit {envelope.exit_code}"] if envelope.exit_code is not None else []) + [totals]
    result = ", ".join(parts) + (f", first: {shorten_to_line(first, 60)}" if first else "")
    return Outcome(command.label if command else describe_arguments(action), result)


@lru_cache(maxsize=128)
def find_test_summary(text: str) -> tuple[str, str] | None:
    """Totals and first failing test of the run that `text` ends with; None if it does with none.

    The small cache serves the digest, which looks again at what placeholders were written for.
    """
    lines = [line[:LONGEST_LINE].rstrip() for line in text.split("\n")]
    asked = (read for read, hints in SUMMARY_READERS.items() if any(hint in text for hint in hints))
    return next((summary for read in asked if (summary := read(lines)) is not None), None)


def _find_first_match(pattern: re.Pattern[str], lines: list[str]) -> str:
    return next((found[1].strip() for line in lines if (found := pattern.match(line))), "")


def _find_last_match(pattern: re.Pattern[str], lines: list[str]) -> re.Match[str] | None:
    return next((found for line in reversed(lines) if (found := pattern.match(line))), None)


def summarize_pytest(lines: list[str]) -> tuple[str, str] | None:
    """pytest: "3 failed, 12 passed"."""
    found = _find_last_match(_PYTEST, lines)
    if found is None:
        if _find_last_match(_PYTEST_NONE, lines):
            return ("no tests ran", "")
        return None
    counts = [f"{number} {word}" for number, word in _PYTEST_COUNT.findall(found[1])]
    if not counts:
        return "no tests ran", ""
    totals = ", ".join(counts)
    if "failed" not in totals and "error" not in totals:
        return totals, ""
    first = _find_first_match(_PYTEST_FIRST, lines) or _find_first_match(_PYTEST_TITLE, lines)
    return totals, first.rpartition("::")[2] or first


def summarize_unittest(lines: list[str]) -> tuple[str, str] | None:
    """unittest and Django's runner: "3 tests, errors=2"."""
    found = _find_last_match(_UNITTEST, lines)
    if found is None:
        return None
    end = _find_last_match(_UNITTEST_END, lines)
    if end is None:
        verdict = ""
    elif end[1] == "FAILED":
        verdict = end[2] or end[1]
    else:
        verdict = " ".join(filter(None, end.groups()))
    tests = format_count(int(found[1]), "test")
    totals = f"{tests}, {verdict}" if verdict else tests
    return totals, _find_first_match(_UNITTEST_FIRST, lines) if end is not None and end[1] == "FAILED" else ""


def summarize_jest(lines: list[str]) -> tuple[str, str] | None:
    """jest and vitest: "1 failed, 3 passed"."""
    found = _find_last_match(_JEST, lines)
    if found is None or not (counts := _JEST_COUNT.findall(found[1])):
        return None
    failed = any(word == "failed" for _, word in counts)
    return ", ".join(f"{number} {word}" for number, word in counts), _find_first_match(
        _JEST_FIRST, lines
    ) if failed else ""


def summarize_go(lines: list[str]) -> tuple[str, str] | None:
    """go test: packages, and failed tests."""
    verdicts = [found[1] for line in lines if (found := _GO.match(line))]
    failures = [found[1] for line in lines if (found := _GO_FIRST.match(line))]
    if not verdicts and not failures:
        return None
    ok = verdicts.count("ok")
    bad = verdicts.count("FAIL")
    counts = [format_count(bad, "package") + " failed"] * bool(bad) + [format_count(ok, "package") + " ok"] * bool(ok)
    tests = [format_count(len(failures), "test") + " failed"] * bool(failures)
    return ", ".join(tests + counts), failures[0] if failures else ""


def summarize_cargo(lines: list[str]) -> tuple[str, str] | None:
    """cargo test, its several targets added up."""
    found = [match for line in lines if (match := _CARGO.match(line))]
    if not found:
        return None
    passed, failed, ignored = (sum(int(match[group]) for match in found) for group in (1, 2, 3))
    counts = [(failed, "failed"), (passed, "passed"), (ignored, "ignored")]
    shown = [f"{number} {word}" for number, word in counts if number or word == "passed"]
    return ", ".join(shown), _find_first_match(_CARGO_FIRST, lines)


def summarize_mocha(lines: list[str]) -> tuple[str, str] | None:
    """mocha: "3 passing, 1 failing"."""
    counts = [found.groups() for line in lines if (found := _MOCHA.match(line))]
    if not any(word == "passing" for _, word in counts):
        return None
    failed = any(word == "failing" for _, word in counts)
    return ", ".join(f"{number} {word}" for number, word in counts), _find_first_match(
        _MOCHA_FIRST, lines
    ) if failed else ""


def summarize_rspec(lines: list[str]) -> tuple[str, str] | None:
    """rspec: "5 examples, 1 failure"."""
    found = _find_last_match(_RSPEC, lines)
    if found:
        return (found[0], _find_first_match(_RSPEC_FIRST, lines) if found[2] != "0" else "")
    return None


def summarize_tap(lines: list[str]) -> tuple[str, str] | None:
    """TAP and node --test: "5 pass, 1 fail"."""
    counts = {found[1]: found[2] for line in lines if (found := _TAP.match(line))}
    if "pass" not in counts or "fail" not in counts:
        return None
    return f"{counts['fail']} failed, {counts['pass']} passed", _find_first_match(_TAP_FIRST, lines) if counts[
        "fail"
    ] != "0" else ""


def summarize_ctest(lines: list[str]) -> tuple[str, str] | None:
    """ctest: "2 of 10 failed"."""
    found = _find_last_match(_LIBTEST, lines)
    if found:
        return (f"{found[2]} of {found[3]} failed", _find_first_match(_LIBTEST_FIRST, lines))
    return None


#: Readers in the order they are asked, each with words of which one stands in any output that it can read.
SUMMARY_READERS: Mapping[SummaryReader, tuple[str, ...]] = {
    summarize_pytest: (" in ", "no tests ran"),
    summarize_unittest: ("Ran ",),
    summarize_cargo: ("test result: ",),
    summarize_jest: ("Tests",),
    summarize_go: ("ok ", "ok\t", "FAIL"),
    summarize_mocha: ("passing",),
    summarize_rspec: ("example",),
    summarize_tap: ("pass ",),
    summarize_ctest: ("tests passed",),
}
