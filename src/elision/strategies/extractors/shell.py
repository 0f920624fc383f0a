"""Shell commands and code cells: exit code, then the error or the last line.

Commands of git are told by what changed and which commit; test runs by totals and first failing test, without
durations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from elision.strategies.extractors.command import Command, Stage, find_command, find_output, qualify_count
from elision.strategies.extractors.outcome import (
    Outcome,
    decode_arguments,
    describe_arguments,
    find_text_argument,
    format_count,
    shorten_to_line,
)
from elision.strategies.extractors.result_text import (
    UnwrappedOutput,
    find_crossed_line,
    find_error_line,
    find_exception_line,
    unwrap_output,
)
from elision.trajectory.turn import Action, Observation

#: Names of tools that run code rather than shell commands (globs, any case).
CODE = ("*python*", "*jupyter*", "*ipython*", "*code_interpreter*", "*run_code*", "*notebook*", "*repl*")

_INFORMATIVE = re.compile(r"\w{2}|\d")
#: Lines that say nothing of the outcome: what npm echoes, pip's standing advice, notes on a cut output, the progress of
#: curl.
_CHATTER = re.compile(
    r"> |WARNING: Running pip as |\[notice\] |npm notice|\[Showing lines "
    r"|\s{0,10}\d{1,3}\s{1,4}\S{1,12}\s{1,4}\d{1,3}\s{1,4}\S{1,12}\s"
)


#: Characters of a diff that are counted.
DIFF_CHARS = 2_000_000

_STAT = re.compile(
    r"^ ?(\d{1,7}) files? changed(?:, (\d{1,9}) insertions?\(\+\))?(?:, (\d{1,9}) deletions?\(-\))?", re.MULTILINE
)
_COMMITTED = re.compile(r"^\[([^\]\n]{1,100}) ([0-9a-f]{7,40})\] ([^\n]{0,300})", re.MULTILINE)
_COMMIT = re.compile(r"^(?:\* )?commit ([0-9a-f]{7,40})", re.MULTILINE)
_ONE_LINE_LOG = re.compile(r"^[*|\\/ ]{0,12}([0-9a-f]{7,40})[ \t]+([^\n]{0,200})", re.MULTILINE)
_SUBJECT = re.compile(r"^    (\S[^\n]{0,200})", re.MULTILINE)
_SHORT = re.compile(r"([ MADRCUT?!]{2}) \S")
_LONG = re.compile(r"\t(modified|new file|deleted|renamed|both modified|typechange):")
_STATES = {
    "M": "modified",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "?": "untracked",
    "U": "unmerged",
    "C": "copied",
}

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
_CTEST = re.compile(r"(\d{1,3})% tests passed, (\d+) tests? failed out of (\d+)")
_CTEST_FIRST = re.compile(r"\s{1,6}\d+ - (\S{1,120}) \(")


def describe_shell_command(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """Any shell command."""
    command = find_command(action, observation)
    if command:
        return Outcome(command.label, describe_status(find_output(action, observation)))
    return None


def describe_code_run(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A code cell: its first informative line stands for it."""
    source = find_text_argument(decode_arguments(action), "code", "source", "script", "input")
    if not source and action is not None and action.implicit:
        source = action.arguments
    if not source:
        return None
    lines = [line.strip() for line in source[:4_000].split("\n")]
    own = [line for line in lines if line and not line.startswith(("#", "import ", "from ", "%"))]
    label = next(iter(own or filter(None, lines)), "")
    return Outcome(shorten_to_line(label, 64), describe_status(unwrap_output(observation.text)))


def describe_status(envelope: UnwrappedOutput) -> str:
    """Exit code where it was stated, and what the output comes down to."""
    if not envelope.body.strip():
        return envelope.state_exit("no output")
    # With exit 0 a traceback still tells, since `cmd | head` hides the code, and so does a cross. Other
    # error words may be harmless.
    if envelope.exit_code == 0:
        error = find_exception_line(envelope.body)
    else:
        error = find_error_line(envelope.body)
    return envelope.state_exit(error or find_crossed_line(envelope.body) or _find_last_line(envelope))


def _find_last_line(envelope: UnwrappedOutput) -> str:
    lines = [line for line in envelope.tail.split("\n") if line.strip()]
    informative = [line for line in lines[-30:] if _INFORMATIVE.search(line[:400]) and not _CHATTER.match(line[:100])]
    last = (informative or lines)[-1].strip()
    if len(lines) == 1:
        return last
    return f"last: {last}"


def describe_git_command(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A command of git alone: status, diff, log, show, commit; any other by its first line."""
    command = find_command(action, observation)
    stage = _find_last_git(command) if command else None
    if command is None or stage is None or stage.redirect_target:
        return None
    envelope = find_output(action, observation)
    result = _describe_git_result(_find_subcommand(stage), stage, envelope)
    return Outcome(command.label, qualify_count(result, envelope.body, command))


def describe_diff(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A unified diff, whatever produced it."""
    command = find_command(action, observation)
    body = find_output(action, observation).body
    if command is None or not body[:1_000].lstrip().startswith(("diff --git ", "--- a/", "Index: ")):
        return None
    return Outcome(command.label, qualify_count(_count_diff_changes(body), body, command))


def _find_last_git(command: Command) -> Stage | None:
    """The git command whose output stands last, if git is all there is, but for pagers."""
    if not all(pipeline[0].program == "git" for pipeline in command.pipelines):
        return None
    piped = [stage for pipeline in command.pipelines for stage in pipeline[1:]]
    if all(stage.program in ("head", "tail", "cat", "less") for stage in piped):
        return command.pipelines[-1][0]
    return None


def _find_subcommand(stage: Stage) -> str:
    words = list(stage.words[1:])
    while words and words[0].startswith("-"):
        # -C and -c take a value.
        if words[0] in ("-C", "-c"):
            words = words[2:]
        else:
            words = words[1:]
    if words:
        return words[0]
    return ""


def _describe_git_result(subcommand: str, stage: Stage, envelope: UnwrappedOutput) -> str:
    if envelope.has_failed or not envelope.body.strip():
        if envelope.has_failed or subcommand != "diff":
            return describe_status(envelope)
        return "no changes"
    read = {"status": _describe_status, "log": _describe_log, "show": _describe_show, "commit": _describe_commit}.get(
        subcommand
    )
    if read is not None:
        return read(envelope)
    if subcommand in ("diff", "stash") and (changes := _count_diff_changes(envelope.body)):
        return changes
    if _COMMITTED.search(envelope.head_and_tail):
        return _describe_commit(envelope)
    if stat := _find_diff_stat(envelope.head):
        return stat
    lines = [line for line in envelope.head.split("\n") if line.strip()]
    if len(lines) == 1:
        return lines[0]
    return describe_status(envelope)


def _describe_status(envelope: UnwrappedOutput) -> str:
    body = envelope.head_and_tail
    if "nothing to commit, working tree clean" in body:
        return "clean"
    long = [found[1] for line in body.split("\n") if (found := _LONG.match(line))]
    short = [found[1].strip()[:1] for line in body.split("\n") if (found := _SHORT.match(line[:100]))]
    counts = Counter(long or (_STATES.get(state, "changed") for state in short))
    if long or "Untracked files:" in body:
        untracked = body.partition("Untracked files:")[2].partition("\n\n")[0]
        counts["untracked"] += sum(line.startswith("\t") for line in untracked.split("\n"))
    shown = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    return shown or body.strip().partition("\n")[0]


def _describe_log(envelope: UnwrappedOutput) -> str:
    body = envelope.head_and_tail
    if full := _COMMIT.findall(body):
        subject = _SUBJECT.search(body)
        return f"{format_count(len(full), 'commit')}, newest {full[0][:8]} {subject[1] if subject else ''}"
    if brief := _ONE_LINE_LOG.findall(body):
        return f"{format_count(len(brief), 'commit')}, newest {brief[0][0][:8]} {brief[0][1]}"
    return describe_status(envelope)


def _describe_show(envelope: UnwrappedOutput) -> str:
    head = envelope.head
    commit = _COMMIT.search(head[:200])
    subject = _SUBJECT.search(head[:4_000])
    if commit is None:
        if envelope.line_count > 1:
            whole = format_count(envelope.line_count, "line")
        else:
            whole = head.strip()
        return _count_diff_changes(envelope.body) or whole
    changes = _find_diff_stat(envelope.head_and_tail) or _count_diff_changes(envelope.body)
    summary_line = f"{commit[1][:8]} {subject[1][:50] if subject else ''}".strip()
    if changes:
        return f"{summary_line}; {changes}"
    return summary_line


def _describe_commit(envelope: UnwrappedOutput) -> str:
    found = _COMMITTED.search(envelope.head_and_tail)
    if found is None:
        return describe_status(envelope)
    stat = _find_diff_stat(envelope.head_and_tail)
    return f"{found[2]} {found[3][:50]}" + (f"; {stat}" if stat else "")


def _find_diff_stat(text: str) -> str:
    found = _STAT.search(text)
    if found is None:
        return ""
    return f"{format_count(int(found[1]), 'file')}, +{found[2] or 0} -{found[3] or 0}"


def _count_diff_changes(body: str) -> str:
    """Files and lines of a unified diff; "" if it is none."""
    if stat := _find_diff_stat(body[-2_000:]):
        return stat
    files = added = removed = 0
    for line in body[:DIFF_CHARS].split("\n"):
        files += line.startswith("+++ ")
        added += line.startswith("+") and not line.startswith("+++ ")
        removed += line.startswith("-") and not line.startswith("--- ")
    if files:
        return f"{format_count(files, 'file')}, +{added} -{removed}"
    return ""


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
    result = envelope.state_exit(totals) + (f", first: {shorten_to_line(first, 60)}" if first else "")
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


def _describe_counts(
    counts: Sequence[tuple[str, ...]], failing: str, first: re.Pattern[str], lines: list[str]
) -> tuple[str, str]:
    """Return `counts` with their words, and the first failing test if one of the words is `failing`."""
    has_failed = any(word == failing for _, word in counts)
    totals = ", ".join(f"{number} {word}" for number, word in counts)
    return totals, _find_first_match(first, lines) if has_failed else ""


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
    return _describe_counts(counts, "failed", _JEST_FIRST, lines)


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
    return _describe_counts(counts, "failing", _MOCHA_FIRST, lines)


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
    first = _find_first_match(_TAP_FIRST, lines) if counts["fail"] != "0" else ""
    return f"{counts['fail']} failed, {counts['pass']} passed", first


def summarize_ctest(lines: list[str]) -> tuple[str, str] | None:
    """ctest: "2 of 10 failed"."""
    found = _find_last_match(_CTEST, lines)
    if found:
        return (f"{found[2]} of {found[3]} failed", _find_first_match(_CTEST_FIRST, lines))
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
