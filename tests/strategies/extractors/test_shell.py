"""Shell commands and code cells."""

from __future__ import annotations

import pytest

from tests.strategies.extractors.cases import Case, cases, outcome_of, outcome_of_case


@pytest.mark.parametrize("case", cases("shell"))
def test_outcome(case: Case) -> None:
    """A command is told by its exit code and its error or last line."""
    assert outcome_of_case(case) == case.expected


@pytest.mark.parametrize(
    "text",
    [
        "<returncode>3</returncode>\n<output>\nout\n</output>",
        "out\n[The command completed with exit code 3.]",
        "out\n[The command completed with exit code 3.]\n[Current working directory: /w]\n"
        "[Python interpreter: /p]\n[Command finished with exit code 3]",
        "out\n\nCommand exited with code 3",
        "Exit code 3\nout",
        "Error: Exit code: 3\nout",
        "out\n[exit code: 3]",
        '{"output": "out", "exit_code": 3}',
        '{"output": "out", "metadata": {"exit_code": 3}}',
        '{"stdout": "out", "stderr": "", "returncode": 3}',
        "Chunk ID: a1\nWall time: 0.1 seconds\nProcess exited with code 3\nOutput:\nout",
    ],
)
def test_exit_code_forms(text: str) -> None:
    """Every usual way of stating an exit code is understood and taken off the output."""
    assert outcome_of("bash", '{"command": "./x"}', text).result == "exit 3, out"


def test_exit_code_in_the_middle_of_an_output_is_not_believed() -> None:
    """A program that prints about exit codes does not set its own."""
    assert outcome_of("bash", '{"command": "./x"}', "first\nExit code 3\nlast words").result == "last: last words"


def test_error_words_of_a_successful_command_are_no_error() -> None:
    """With exit 0 only a traceback counts as an error."""
    text = "<returncode>0</returncode>\n<output>\nerror: none found\nall good\n</output>"
    assert outcome_of("bash", '{"command": "./x"}', text).result == "exit 0, last: all good"


def test_echo_of_the_command_is_left_out() -> None:
    """A terminal that records what was typed does not make it part of the output."""
    assert outcome_of("bash", '{"command": "./long_name.sh"}', "./long_name.sh\n42").result == "42"
