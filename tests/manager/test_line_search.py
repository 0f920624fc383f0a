"""Patterns that a model sends: what they match, what is refused, and what they may cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elision.errors import UnknownHandle
from elision.manager import observation_text
from elision.manager.observation_text import find_matching_lines

LINES = ["def parse(text):", "größe = ١٢", "    naïve(x)", "", "def Parse():", "a]b \\w [c]"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"def \w+\(", [0, 4]),
        (r"(?i)PARSE", [0, 4]),
        (r"^\w+ = \d+$", [1]),
        (r"^\s+\w+\(", [2]),
        (r"\):\Z", [0, 4]),
        (r"\A\Z", [3]),
        (r"(?P<name>[Pp])arse", [0, 4]),
        (r"(?<name>[Pp])arse", [0, 4]),
        (r"[\s\S]ï[\w\W]", [2]),
        (r"[]\w]]", [5]),
        (r"\\w", [5]),
        (r"[[:alpha:]\w]\]b", [5]),
        (r"^[[:digit:]]*$", [3]),
        (r"\bparse\b", [0]),
        (r"r\Sße", [1]),
        (r"[^\D]", [1]),
        # As the module says: inside of a class `\W` and `\S` are ASCII's, and so is `\b`.
        (r"^[^\W_]+ ", [0, 4]),
        (r"\be = ", [1]),
        ("x|", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_patterns_mean_what_they_mean_in_python(pattern: str, found: list[int]) -> None:
    """Classes are Unicode's, case counts, and each line is a text of its own."""
    assert find_matching_lines(LINES, pattern) == found


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)b", "invalid perl operator: (?="),
        ("(?<!a)b", "invalid perl operator: (?<"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("a++", "bad repetition operator: ++"),
        ("(", "missing ): ("),
        ("[", "missing ]: ["),
        ("\\", "trailing \\"),
        ("(?:(?:(?:a{300}){300}){300})", "invalid repetition size: {300}"),
        ("(?:(?:(?:(?:a{99}){99}){99}){99})", "invalid repetition size: {99}"),
        (r"(?:.?\pL?){300}c", "pattern too large"),
        ("a" * 1_001, "it has more than 1,000 characters"),
        ("(" * 5_000 + ")" * 5_000, "it has more than 1,000 characters"),
    ],
)
def test_a_refused_pattern_is_told_in_one_line(pattern: str, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    """With the reason and what to do instead; nothing is printed by the engine."""
    with pytest.raises(UnknownHandle) as told:
        find_matching_lines(LINES, pattern)
    assert reason in str(told.value)
    assert "Give a simpler one or plain words" in str(told.value)
    assert "\n" not in str(told.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("pattern", [r"(a|aa|a.)+$" * 3, r"^(a+)+$", r"(x+x+)+y", "(?:a?){60}" + "a" * 60])
def test_patterns_that_explode_elsewhere_end(pattern: str) -> None:
    """Nested repeats, over which engines that go back take longer than the world lasts."""
    assert find_matching_lines(["a" * 40 + "!", "x" * 10_000], pattern) == []


def test_a_line_that_could_take_seconds_is_not_searched() -> None:
    """No thread can be stopped within a line: instructions × bytes are counted first."""
    with pytest.raises(UnknownHandle, match="takes too long here"):
        find_matching_lines(["ab" * 500_000], "(?:a|b)*a(?:a|b){900}c")
    assert find_matching_lines(["ab" * 500_000], "bb|aa|bab$") == [0]


def test_all_lines_together_have_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is over, no further line is searched."""
    monkeypatch.setattr(observation_text, "SEARCH_SECONDS", 0.0)
    with pytest.raises(UnknownHandle, match="takes too long here"):
        find_matching_lines(LINES, "a")


def test_halves_of_characters_are_searched_like_any_text() -> None:
    """Lone surrogates, which JSON can hold, in a line or in a pattern."""
    assert find_matching_lines(["cut \ud83d here", "whole"], "here|\ud83d") == [0]
    assert find_matching_lines(["cut \ud83d here"], "^cut .+ here$") == [0]


def test_the_engine_is_loaded_when_a_pattern_is_searched() -> None:
    """Whoever never recalls by pattern does not pay for it."""
    code = """
import sys
from elision import ContextManager
from elision.manager.observation_text import find_matching_lines
assert "re2" not in sys.modules
find_matching_lines(["a"], "a")
assert "re2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
