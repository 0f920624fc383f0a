"""Every kind of event comes back from its JSON form as it was."""

from __future__ import annotations

import json

import pytest

from elision.trajectory.event_json import decode_event, encode_event
from elision.trajectory.events import (
    Event,
    HeadSet,
    ObservationRecalled,
    PassDecided,
    RecallExchanged,
    RequestSent,
    SessionOpened,
    SummaryFailed,
    TurnAdded,
    TurnAmended,
    UsageReported,
    WindowLearned,
)
from elision.trajectory.plan import Clip, Mask, Summary
from elision.trajectory.turn import Head, Turn
from elision.trajectory.usage import Usage

SUMMARY = Summary(covers=2, text="t", block="b", interjections=(1,), input_tokens=3, output_tokens=4, route="extend")
EVENTS: list[Event] = [
    SessionOpened(strategy="masking", dialect="anthropic", handles=False),
    SessionOpened(strategy="masking", offer="first", tools=({"name": "elision_recall", "input_schema": {}},)),
    HeadSet(Head(hidden_tokens=3)),
    TurnAdded(Turn(index=7), "n"),
    TurnAmended(Turn(index=7)),
    PassDecided(1, "why"),
    PassDecided(2, "why", (Mask((1, 1), "m", 9),), (Clip((2, 1), "c"),), SUMMARY),
    PassDecided(3, "why", offers=True),
    PassDecided(3, "held: gone", held=True),
    SummaryFailed(call=3, cause="empty", reason="it is empty", input=5, cached=2, output=1, retry_at=8),
    RequestSent(call=3, at=None, model="", tokens=5, unmarked=True, ours="always", hour_turn=0),
    RequestSent(call=1, at=None, model="", tokens=0),
    RequestSent(call=1, at=2.5, model="m", tokens=4),
    RequestSent(call=1, at=2.5, model="m", tokens=4, unmarked=True),
    UsageReported(call=1, usage=Usage(input=1, cache_read=2, cache_write=3, output=4, usd=0.5)),
    UsageReported(
        call=1,
        usage=Usage(cache_write=3, cache_write_1h=2, first_prompt=1, others=(("claude-fable-5", Usage(input=9)),)),
    ),
    ObservationRecalled(call=4, key=(1, 2), tokens=9, by="user"),
    WindowLearned(call=4, window=200_000),
    WindowLearned(call=2, window=8_000, tokens=9_000),
    RecallExchanged(
        call=5, node="n", messages=('{"role":"assistant"}', '{"role":"tool","content":"\\ud800 é"}'), results=("{}",)
    ),
    RecallExchanged(call=5, node="n", messages=()),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_come_back(event: Event) -> None:
    """Out, through JSON text, and in again is the same value."""
    assert decode_event(json.loads(json.dumps(encode_event(event)))) == event


@pytest.mark.parametrize(
    "value",
    [{}, {"e": "new"}, {"e": "turn"}, {"e": "decided", "call": "1"}, {"e": "recalled", "key": [1]}, {"e": "answered"}],
)
def test_anything_else_is_a_value_error(value: dict[str, object]) -> None:
    """A record that no event was written as is refused, never half read."""
    with pytest.raises(ValueError):
        decode_event(value)


def test_an_older_held_decision_is_read_as_held() -> None:
    """Older records say it by their reason alone; a strategy's own reason may begin with the same letters."""
    old = {"e": "decided", "call": 3, "reason": "held: nothing more is hidden while the store fails"}
    assert decode_event(old) == PassDecided(3, old["reason"], held=True)  # type: ignore[arg-type]
    assert encode_event(decode_event(old)) == {**old, "held": True}
    assert decode_event({**old, "reason": "held back"}) == PassDecided(3, "held back")
