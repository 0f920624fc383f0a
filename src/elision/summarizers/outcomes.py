"""How a call ended, read from its result: failed or not, its error line, its test totals."""

from __future__ import annotations

import re
from functools import lru_cache

from elision.strategies.extractors import BUILT_IN
from elision.strategies.extractors.failure import (
    find_complaint,
    find_error_line,
    find_exception_line,
    find_informative_line,
)
from elision.strategies.extractors.test_reports import describe_test_run
from elision.strategies.extractors.wrappers import unwrap_output
from elision.summarizers.prose import clip_line
from elision.trajectory.turn import Action, Observation, Turn

#: Characters of an error or result line.
WIDTH = 110

# Refusals of editors and of environments that state neither an exit status nor an error.
_REFUSED = re.compile(
    r"\s*(?:error|invalid|no replacement|string to replace|no match|could not|your (?:proposed )?edit has introduced"
    r"|usage of command|unknown command|permission denied|.{1,60}: command not found)",
    re.I,
)
_FAILING = re.compile(
    r"""
      ^(?:FAILED|ERROR)\ (\S+::\S+|\S+\.py)
    | ^(?:FAIL|ERROR):\ (\w+\ \([\w.]+\))
    | ^\s*---\ FAIL:\ (\S+)
    | ^test\ (\S+)\ \.\.\.\ FAILED
    | ^\s{0,6}(?:●|✕|×)\ +(\S.{0,80})
    """,
    re.MULTILINE | re.VERBOSE,
)


@lru_cache(maxsize=128)
def find_failure(observation: Observation) -> str | None:
    """Return the error line if the call failed ("" if it shows none), None if it did not.

    A traceback or a bare complaint counts even beside exit status 0: `command | head` hides the status. The small cache
    serves the sections of a digest, each of which looks at the same results again.
    """
    envelope = unwrap_output(observation.text)
    if observation.error or envelope.has_failed or _REFUSED.match(envelope.body[:200]):
        return clip_line(find_error_line(envelope.head_and_tail) or find_informative_line(envelope.body), WIDTH)
    if observation.error is False:
        return None
    return clip_line(find_exception_line(envelope.body) or find_complaint(envelope.body), WIDTH) or None


def describe_result(turn: Turn, observation: Observation, width: int = WIDTH) -> str:
    """Return a result in one line; that of a failed call begins with "failed"."""
    error = find_failure(observation)
    if error is not None:
        return clip_line(f"failed: {error}" if error else "failed, no output", width)
    return clip_line(BUILT_IN.find_outcome(turn, observation).result or "no output", width)


@lru_cache(maxsize=128)
def find_test_totals(action: Action, observation: Observation) -> str:
    """Return the totals that a test runner printed last, on one line; "" if there are none."""
    found = describe_test_run(action, observation, "")
    if found:
        return found.result.partition(", first: ")[0]
    return ""


def list_failing_tests(text: str) -> tuple[str, ...]:
    """Return the names of failing tests that `text` lists, each once."""
    names = ("".join(filter(None, match.groups())) for match in _FAILING.finditer(text))
    return tuple(dict.fromkeys(names))
