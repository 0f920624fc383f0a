"""What a terminal does not show is left out; all that it shows stays."""

from __future__ import annotations

import pytest

from elision.strategies.birth_rules.terminal_codes import clean_terminal_text
from tests.work import assert_linear


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31merror\x1b[0m: no", "error: no"),
        ("\x1b[1;38;5;208mbold\x1b[m\x1b[K", "bold"),
        ("\x1b]0;title\x07$ ls", "$ ls"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\"),
        ("N\x08NA\x08AME", "NAME"),
        (" 10%|█  | 1/10\r 50%|█████  | 5/10\r100%|██████████| 10/10\n", "100%|██████████| 10/10\n"),
        (
            "Fetching objects:  10% (1/10)\rFetching objects: 100% (10/10), done.",
            "Fetching objects: 100% (10/10), done.",
        ),
        ("wait\rwaiting\r\n", "waiting\r\n"),
        ("a\r\nb\r\n", "a\r\nb\r\n"),
    ],
)
def test_shown_text(text: str, shown: str) -> None:
    """Colours, titles, overstrikes and overwritten progress go; links and line ends stay."""
    assert clean_terminal_text(text) == shown


@pytest.mark.parametrize("text", ["first\rsecond\rthird", "50% of all\rnothing left", "disk 90% full\rfile 10% read"])
def test_other_words_stay(text: str) -> None:
    """Carriage returns may end lines: a part that says something else is not overwritten."""
    assert clean_terminal_text(text) == text


def test_progress_line_by_line() -> None:
    """The last line of it stays, and what comes before and after."""
    bars = [f"Downloading model {share:3}% [{'=' * (share // 5):20}] {share}.5 MB/s" for share in range(0, 101, 5)]
    text = "\n".join(["start", *bars, "done 100%"])
    assert clean_terminal_text(text, "t4.1").split("\n") == [
        "start",
        "[20 lines of progress left out: t4.1]",
        bars[-1],
        "done 100%",
    ]


def test_lines_that_say_something_are_no_progress() -> None:
    """Shares of different things, as a build or a table names them."""
    build = "\n".join(f"[{share}%] Building CXX object {share}{name}.o" for share, name in enumerate("abcdefgh"))
    table = "\n".join(f"{name:10} {share}%" for share, name in enumerate(["cpu", "memory", "disk", "network", "swap"]))
    assert clean_terminal_text(build) == build
    assert clean_terminal_text(table) == table


@pytest.mark.parametrize("piece", ["\x1b[", "\x1b]0;", "\r50%", "10%\n", "=", "\x08"])
def test_odd_text_takes_linear_time(piece: str) -> None:
    """Sequences that never end, and lines without end."""
    assert_linear(lambda count: clean_terminal_text(piece * count), 4_000)
