"""A request without secrets."""

from __future__ import annotations

from elision.summarizers.redacted import Redactor
from elision.trajectory.plan import LivePrefix, SummaryRequest
from elision.trajectory.redact import DEFAULT, NOTHING
from tests.summarizers.runs import turn

KEY = "sk-" + "proj-Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Dd"
ASKED = SummaryRequest(
    previous=f"was {KEY}",
    task=f"use {KEY}",
    turns=(turn(1, f"I use {KEY}", command=f"export K={KEY}", result=f"K={KEY}", user=f"and {KEY}"),),
    max_tokens=100,
    live=LivePrefix(dialect="openai", messages=({"role": "user", "content": KEY},)),
)


def test_every_text_is_clean() -> None:
    """Previous summary, task, words, arguments, results and interjections; the live prefix stays, byte for byte."""
    redactor = Redactor(DEFAULT)
    clean = redactor.request(ASKED)
    assert KEY not in repr((clean.previous, clean.task, clean.turns))
    assert redactor.hits == 6
    assert clean.live is ASKED.live
    assert clean.turns[0].actions[0].decoded == {"command": "export K=[redacted: openai-key]"}


def test_switched_off() -> None:
    """With no rule in force the request is as it was."""
    assert Redactor(NOTHING).request(ASKED) == ASKED


def test_what_is_clean_is_not_read_again() -> None:
    """A request that the same rules have cleaned passes; other rules clean it all the same."""
    clean = Redactor(DEFAULT).request(ASKED)
    again = Redactor(DEFAULT)
    assert again.request(clean) is clean
    loose = Redactor(NOTHING).request(ASKED)
    assert KEY not in repr(Redactor(DEFAULT).request(loose).turns)


def test_a_turn_without_secrets_is_the_same_one() -> None:
    """What holds no secret is not copied."""
    plain = turn(1, "I look.", command="ls", result="a.py")
    asked = SummaryRequest(previous="", task="", turns=(plain, *ASKED.turns), max_tokens=100)
    clean = Redactor(DEFAULT).request(asked)
    assert clean.turns[0] is plain
    assert clean.turns[1] is not ASKED.turns[0]
