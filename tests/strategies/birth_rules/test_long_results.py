"""Head and tail of long results."""

from __future__ import annotations

from elision.strategies.birth_rules.long_results import keep_ends
from elision.trajectory.tokens import make_counter

count_tokens = make_counter().count


def test_lines_are_cut_between() -> None:
    """Head and tail are whole lines, and have about as many tokens as the limit says."""
    lines = [f"{number:04} GET /items/{number} 200" for number in range(2_000)]
    text = "\n".join(lines)
    shown = keep_ends(text, 1_000, count_tokens, "t9.1").split("\n")
    place = next(index for index, line in enumerate(shown) if line.startswith("["))
    left_out = len(lines) - len(shown) + 1
    assert shown[place] == f"[{left_out:,} lines left out: t9.1]"
    assert shown[:place] == lines[:place]
    assert shown[place + 1 :] == lines[place + left_out :]
    assert 900 < count_tokens("\n".join(shown)) < 1_050


def test_one_long_line_is_cut_within() -> None:
    """Even if a line end follows it."""
    text = "abc, " * 20_000 + "\n"
    shown = keep_ends(text, 1_000, count_tokens)
    head, note, tail = shown.removesuffix("\n").split("\n")
    assert text.startswith(head)
    assert text.endswith(tail + "\n")
    assert note == f"[{len(text) - len(head) - len(tail) - 1:,} characters left out]"
    assert count_tokens(shown) < 1_100


def test_short_results_stay() -> None:
    """At the limit nothing is left out."""
    text = "some words\n" * 50
    assert keep_ends(text, count_tokens(text), count_tokens) is text
