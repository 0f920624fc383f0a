"""The line of an output that tells why something failed."""

from __future__ import annotations

import pytest

from elision.strategies.extractors.result_text import find_crossed_line, find_exception_line
from tests.strategies.extractors.cases import outcome_of

HEADER = "Traceback (most recent call last):\n"
FRAME = '  File "/src/app.py", line 3, in run\n    call()\n    ^^^^^^\n'
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/src/app.py", line 1, in <module>
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/src/app.py", line 2, in run
    | ValueError: first
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/src/app.py", line 3, in run
    | TypeError: second
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{HEADER}{FRAME}ValueError: x\n", "ValueError: x"),
        (f"{HEADER}{FRAME}KeyboardInterrupt\n", "KeyboardInterrupt"),
        (f"{HEADER}{FRAME}django.core.exceptions.AppRegistryNotReady: Apps aren't loaded yet.\n", "django.core.ex"),
        (f"{HEADER}Test 1: Valid nested object\nno errors: {{}}\n{FRAME}TypeError: y\nbye\n", "TypeError: y"),
        (
            f'{HEADER}  File "a.py", line 1, in f\nHeaders sent:\n    f()\n{FRAME}AssertionError: z\n',
            "AssertionError: z",
        ),
        (f"{HEADER}{FRAME}done in 3 s\nzlib.error: Error -3\n", "zlib.error: Error -3"),
        (f"{HEADER}{FRAME}KeyError: 'a'\n\nDuring handling of it\n\n{HEADER}{FRAME}app.Odd: b\n", "app.Odd: b"),
        (f"{HEADER}{FRAME}KeyError: 'a'\n\nDuring handling of it\n\n{HEADER}{FRAME}", "KeyError: 'a'"),
        (f"{HEADER}{FRAME}", "Traceback, cut at app.py:3"),
        (f"    {HEADER}" + "".join(f"    {line}\n" for line in FRAME.splitlines()) + "    OSError: q\n", "OSError: q"),
        ("".join(f"web_1  | {line}\n" for line in f"{HEADER}{FRAME}KeyError: 3\nup".splitlines()), "KeyError: 3"),
        (GROUP, "TypeError: second"),
        ('if "Traceback (most recent call last):" in text:\nfoo: 1\n', ""),
        ("all went well\n", ""),
    ],
)
def test_the_exception_of_a_traceback(text: str, expected: str) -> None:
    """It is the line behind the frames: the last of several, whole or cut, with output of the program in between."""
    found = find_exception_line(text)
    assert found.startswith(expected) if expected else not found


def test_a_script_that_prints_within_its_traceback_does_not_hide_it() -> None:
    """With exit 0 as well: a pipe hides the code."""
    text = f"<returncode>0</returncode>\n<output>\n{HEADER}Test 1: Valid nested object\n{FRAME}TypeError: y\n</output>"
    assert outcome_of("bash", '{"command": "python test_issue.py"}', text).result == "exit 0, TypeError: y"


def test_what_a_script_marks_as_failed_comes_before_its_last_words() -> None:
    """A cross at the beginning of a line; not one within a line."""
    assert find_crossed_line("one\n  ✗ config not loaded\n❌ other\nbye") == "✗ config not loaded"
    assert find_crossed_line("use ❌ for failures") == ""
    text = "<returncode>0</returncode>\n<output>\n❌ ISSUE REPRODUCED\nCleaning up\n</output>"
    assert outcome_of("bash", '{"command": "python x.py"}', text).result == "exit 0, ❌ ISSUE REPRODUCED"
