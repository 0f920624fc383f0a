"""Reports of test runs lose what passed, and nothing else."""

from __future__ import annotations

import pytest

from elision.strategies.birth_rules.passing_tests import drop_passing_tests

#: By runner: a test that passed, one that failed, and the totals.
REPORTS = {
    "pytest": (
        "tests/test_a.py::test_{} PASSED [ 10%]",
        "tests/test_a.py::test_bad FAILED [ 90%]",
        "=== 1 failed, 6 passed in 0.1s ===",
    ),
    "xdist": (
        "[gw1] [ 10%] PASSED tests/test_a.py::test_{}",
        "[gw0] [ 20%] FAILED tests/test_a.py::test_bad",
        "= 1 failed, 6 passed in 1s =",
    ),
    "files": ("tests/test_{}.py ..... [ 12%]", "tests/test_bad.py ..F. [ 50%]", "= 1 failed, 6 passed in 1s ="),
    "unittest": (
        "test_{0} (a.B.test_{0}) ... ok",
        "test_bad (a.B.test_bad) ... FAIL",
        "Ran 7 tests in 0.1s\n\nFAILED (failures=1)",
    ),
    "cargo": ("test a::test_{} ... ok", "test a::bad ... FAILED", "test result: FAILED. 6 passed; 1 failed; 0 ignored"),
    "go": ("--- PASS: Test{} (0.00s)", "--- FAIL: TestBad (0.00s)", "FAIL\texample.org/a\t0.1s"),
    "jest": ("  ✓ does {} (2 ms)", "  ✕ does bad (2 ms)", "Tests:       1 failed, 6 passed, 7 total"),
    "tap": ("ok {} - does", "not ok 7 - bad", "# pass 6\n# fail 1"),
    "ctest": (
        " 1/7 Test  #{}: a ........   Passed    0.01 sec",
        " 7/7 Test #7: bad .....***Failed  0.01 sec",
        "86% tests passed, 1 tests failed out of 7",
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_failures_and_totals_stay(name: str) -> None:
    """Three lines or more that passed are one note; what failed and the totals are there word for word."""
    passed, failed, totals = REPORTS[name]
    six = [passed.format(number) for number in range(1, 7)]
    text = "\n".join(["$ run", *six, failed, "  expected 1, got 2", totals])
    assert drop_passing_tests(text, "t7.1").split("\n") == [
        "$ run",
        "[6 lines of passing tests left out: t7.1]",
        failed,
        "  expected 1, got 2",
        *totals.split("\n"),
    ]


def test_the_start_of_a_failing_test_stays() -> None:
    """Go prints what a test logs after the line that says which one runs."""
    passing = [f"=== RUN   Test{name}\n--- PASS: Test{name} (0.00s)" for name in "ABC"]
    failing = ["=== RUN   TestBad", "    a_test.go:7: no", "--- FAIL: TestBad (0.00s)", "FAIL\texample.org/a\t0.1s"]
    text = "\n".join([*passing, *failing])
    assert drop_passing_tests(text).split("\n") == ["[6 lines of passing tests left out]", *failing]


def test_no_report_is_unchanged() -> None:
    """A log without totals may be cut off, or a file: it stays."""
    text = "\n".join(f"tests/test_a.py::test_{number} PASSED" for number in range(9))
    assert drop_passing_tests(text) == text


def test_two_lines_stay() -> None:
    """A note would be hardly shorter."""
    text = "a::test_1 PASSED\na::test_2 PASSED\n== 2 passed in 0.1s =="
    assert drop_passing_tests(text) == text
