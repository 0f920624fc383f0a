"""A summarizer's answer on its way into a session: checked, redacted, billed; a failed one changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lacuna.engine import Session, drive
from lacuna.errors import SummaryError
from lacuna.strategies.spec import parse
from lacuna.summarizers.factory import summarizer
from lacuna.trajectory.content import content
from lacuna.trajectory.events import Attempted
from lacuna.trajectory.price_sets import SETS
from lacuna.trajectory.turn import Head, Message

from .runs import turn
from .server import Reply, chat, error, serving

KEY = "gh" + "p_Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Ddabcd"
GOOD = "COMPLETED: read src/parser.py; parse_line fails with ValueError in tests/test_parser.py."
STRATEGY = "summarization(every=3, tail=1, schedule=every-turn)"


def session(turns: int = 4) -> Session:
    """A session whose next pass wants a summary; a key lies in every turn of it."""
    found = Session(parse(STRATEGY), SETS["uncached"])
    found.begin(Head(messages=(Message(role="user", content=content("Mend the parser.")),)))
    for index in range(1, turns + 1):
        command = f"GITHUB_TOKEN={KEY} pytest tests/test_parser.py src/parser.py -k parse_line"
        found.add(turn(index, "I test it.", command=command, result=f"ValueError: {KEY}\n" * 60, error=True))
    return found


def passed(*script: Reply, kind: str = "openai") -> tuple[Session, list[dict[str, Any]]]:
    """A session after one pass with a model at a scripted server, and the requests it got."""
    found = session()
    with serving(*script) as server:
        drive(found.prepare(), summarizer(f"{kind}:m", api_key="k", base_url=server.url))
    return found, server.bodies


def summary_of(found: Session) -> str:
    assert found.newest is not None
    summary = found.newest.decided.summary
    return summary.text if summary else ""


def test_a_secret_reaches_neither_the_model_nor_the_summary() -> None:
    """From raw turn to view: the key is in the turns, and nowhere in the request or the record of them."""
    found, bodies = passed(chat(f"{GOOD} With GITHUB_TOKEN={KEY}."))
    assert KEY not in json.dumps(bodies)
    assert KEY not in summary_of(found)
    assert "GITHUB_TOKEN=[redacted: " in summary_of(found)
    assert KEY in found.state.turns[0].observations[0].text


def test_a_callable_of_ones_own_is_redacted_too() -> None:
    """Whoever wrote it, what stands in the view is clean."""
    found = session()
    drive(found.prepare(), lambda request: f"{GOOD} {KEY}")
    assert summary_of(found).endswith("[redacted: github-token]")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "empty"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("Error code: 500 - internal", "error-text"),
        ("The agent made good progress.", "facts-lost"),
        ("x" * 100_000, "garbage"),
    ],
)
def test_a_failed_candidate_changes_nothing_and_is_seen(text: str, cause: str) -> None:
    """The view goes out as it was; the log says what was asked, why it was not taken, and what it cost."""
    found = session()
    raw = found.state.raw_view().tokens
    view = drive(found.prepare(), lambda request: text)
    assert summary_of(found) == ""
    assert view.tokens == raw
    (event,) = [event for event in found.events if isinstance(event, Attempted)]
    assert (event.cause, event.retry_at > event.call) == (cause, True)
    assert event.reason


def test_what_a_model_failed_at_is_billed() -> None:
    """Two refusals cost what their provider says they did."""
    found, _ = passed(chat("I'm sorry, I can't."), chat("I'm sorry, I can't."))
    (event,) = [event for event in found.events if isinstance(event, Attempted)]
    assert (event.cause, event.input, event.cached, event.output) == ("refusal", 1800, 600, 120)


def test_what_no_model_answered_is_not_billed() -> None:
    """A request that was turned down costs nothing."""
    found, _ = passed(error(401, "no such key"))
    (event,) = [event for event in found.events if isinstance(event, Attempted)]
    assert (event.cause, event.input, event.usd) == ("rejected", 0, 0.0)


def test_a_summary_error_says_why() -> None:
    """Raised without a cause it has one all the same."""
    assert SummaryError("no").cause == "other"
