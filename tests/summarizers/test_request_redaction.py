"""A request without secrets."""

from __future__ import annotations

from elision.summarizers.request_redaction import RequestRedactor
from elision.trajectory.plan import LivePrefix, SummaryRequest
from elision.trajectory.redact import DEFAULT, NO_REDACTION
from tests.summarizers.turns import make_turn

KEY = "sk-" + "proj-Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Dd"
ASKED = SummaryRequest(
    previous=f"was {KEY}",
    task=f"use {KEY}",
    turns=(make_turn(1, f"I use {KEY}", command=f"export K={KEY}", result=f"K={KEY}", user=f"and {KEY}"),),
    max_tokens=100,
    live=LivePrefix(dialect="openai", messages=({"role": "user", "content": KEY},)),
)


def test_every_text_is_clean() -> None:
    """Previous summary, task, words, arguments, results and interjections; the live prefix stays, byte for byte."""
    redactor = RequestRedactor(DEFAULT)
    clean = redactor.redact(ASKED)
    assert KEY not in repr((clean.previous, clean.task, clean.turns))
    assert redactor.hits == 6
    assert clean.live is ASKED.live
    assert clean.turns[0].actions[0].decoded_arguments == {"command": "export K=[redacted: openai-key]"}


def test_no_item_is_a_secret() -> None:
    """Of the items that the view shows, those go to a summarizer that the redacted texts have too."""
    turn = make_turn(1, command="env", result=f"K={KEY} first_name")
    asked = SummaryRequest(
        previous="second_name",
        task="",
        turns=(turn,),
        max_tokens=100,
        shown=frozenset({KEY, "first_name", "second_name"}),
    )
    assert RequestRedactor(DEFAULT).redact(asked).shown == {"first_name", "second_name"}


def test_switched_off() -> None:
    """With no rule in force the request is as it was."""
    assert RequestRedactor(NO_REDACTION).redact(ASKED) == ASKED


def test_what_is_clean_is_not_read_again() -> None:
    """A request that the same rules have cleaned passes; other rules clean it all the same."""
    clean = RequestRedactor(DEFAULT).redact(ASKED)
    again = RequestRedactor(DEFAULT)
    assert again.redact(clean) is clean
    loose = RequestRedactor(NO_REDACTION).redact(ASKED)
    assert KEY not in repr(RequestRedactor(DEFAULT).redact(loose).turns)


def test_a_turn_without_secrets_is_the_same_one() -> None:
    """What holds no secret is not copied."""
    plain = make_turn(1, "I look.", command="ls", result="a.py")
    asked = SummaryRequest(previous="", task="", turns=(plain, *ASKED.turns), max_tokens=100)
    clean = RequestRedactor(DEFAULT).redact(asked)
    assert clean.turns[0] is plain
    assert clean.turns[1] is not ASKED.turns[0]
