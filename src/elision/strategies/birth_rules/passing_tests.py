"""Tests that passed, in the report of a test run: failures, output and totals stay."""

from __future__ import annotations

import re
from typing import Final

from elision.strategies.birth_rules.left_out_lines import leave_out_lines
from elision.strategies.extractors.test_reports import find_test_summary

_PASSED: Final = re.compile(
    r"\S.{0,300} PASSED(?:\s+\[\s*\d{1,3}%\])?$"  # pytest -v, Gradle
    r"|(?:\[gw\d+\] )?\[\s*\d{1,3}%\] PASSED \S"  # pytest -n
    r"|\S{1,200}\.py \.+(?:\s+\[\s*\d{1,3}%\])?$"  # pytest, a file
    r"|\S.{0,300} \.\.\. ok$"  # unittest, Django, cargo
    r"|\s{0,20}--- PASS: |=== (?:PAUSE|CONT) "  # go test -v
    r"|\s{0,20}[✓✔√] "  # Jest, Vitest, Mocha, node --test
    r"|\s{0,20}ok \d+\b(?!.*# (?:TODO|SKIP))"  # TAP
    r"|\s{0,20}\d+/\d+ Test\s+#\d+: .{1,200} \.*\s+Passed "  # CTest
)
_STARTED: Final = re.compile(r"=== RUN\s+(\S+)")
_FAILED: Final = re.compile(r"\s*--- FAIL: (\S+)")


def drop_passing_tests(text: str, handle: str = "") -> str:
    """Return the report without its passing tests; any other text unchanged."""
    if find_test_summary(text) is None:
        return text
    failed = {found[1] for line in text.split("\n") if (found := _FAILED.match(line))}

    def is_passing(line: str) -> bool:
        started = _STARTED.match(line)
        if started is not None:
            # What a failing test prints follows this line.
            return started[1] not in failed
        return _PASSED.match(line) is not None

    return leave_out_lines(text, is_passing, "passing tests", handle)
