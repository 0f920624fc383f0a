"""Every kind of event comes back from its JSON form as it was, also where several threads decode the first ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import UserDict
from types import MappingProxyType

import pytest

from elision.errors import CorruptError, StoreError
from elision.trajectory.events import (
    RECORD_VERSION,
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
    TurnsDropped,
    UsageReported,
    WindowLearned,
    decode_event,
    encode_event,
)
from elision.trajectory.plan import Edit, FoldedRun, Gutter, Summary
from elision.trajectory.turn import Action, Head, Observation, Text, Turn
from elision.trajectory.usage import ModelUsage, Usage

SUMMARY = Summary(covers=2, text="t", block="b", interjections=(1,), input_tokens=3, output_tokens=4, route="extend")
EVENTS: list[Event] = [
    SessionOpened(strategy="masking", dialect="anthropic", handles=False),
    SessionOpened(strategy="masking", offer="first", tools=({"name": "elision_recall", "input_schema": {}},)),
    HeadSet(Head(hidden_tokens=3)),
    TurnAdded(Turn(index=7), "n"),
    TurnAmended(Turn(index=7)),
    TurnsDropped(through=4),
    TurnsDropped(through=5, edits=(Edit((6, 1), "fold", "f", (FoldedRun(2, 9, (5, 2), 4),)), Edit((7, 1), "whole"))),
    PassDecided(1, "why"),
    PassDecided(2, "why", (Edit((1, 1), "mask", "m", renderer=9), Edit((2, 1), "clip", "c")), SUMMARY),
    PassDecided(3, "why", offers=True),
    PassDecided(3, "held: why", held=True, overtaken=True),
    PassDecided(3, "held: gone", held=True),
    PassDecided(
        4,
        "why",
        edits=(
            Edit((2, 1), "whole"),
            Edit((3, 1), "fold", "f", (FoldedRun(2, 9, (1, 2), 4, Gutter(first=7, last=15, mark=":")),)),
        ),
    ),
    SummaryFailed(call=3, cause="empty", reason="it is empty", input=5, cached=2, output=1, retry_at=8),
    RequestSent(call=3, at=None, model="", tokens=5, unmarked=True, ours="always", hour_turn=0),
    RequestSent(call=1, at=None, model="", tokens=0),
    RequestSent(call=1, at=2.5, model="m", tokens=4),
    RequestSent(call=1, at=2.5, model="m", tokens=4, unmarked=True),
    UsageReported(call=1, usage=Usage(input=1, cache_read=2, cache_write=3, output=4, usd=0.5)),
    UsageReported(
        call=1,
        usage=Usage(
            cache_write=3, cache_write_1h=2, first_prompt=1, others=(ModelUsage("claude-fable-5", Usage(input=9)),)
        ),
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


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_the_version_is_kept_with_every_record(event: Event) -> None:
    """A record of a version before there were numbers has none, and is version 1."""
    value = encode_event(event)
    assert value.pop("v") == RECORD_VERSION
    assert decode_event(value) == event


def test_a_record_of_a_newer_version_is_not_half_read() -> None:
    """The error names the version: nothing is damaged, an update reads it."""
    with pytest.raises(StoreError, match=r"version 7.*update elision") as caught:
        decode_event({**encode_event(EVENTS[0]), "v": 7})
    assert not isinstance(caught.value, CorruptError)


def test_text_of_one_version_is_the_same_everywhere() -> None:
    """Fields have their places, tags are sorted, and what has its default is left out."""
    seen = Observation(action_id="", tool="bash", tags=frozenset({"b", "a"}), content=(Text("x"),), role="user")
    turn = Turn(index=2, actions=(Action(id="", name="bash"),), observations=(seen,), usage=Usage(output=4), at=1.5)
    assert json.dumps(encode_event(TurnAdded(turn, "n"))) == (
        '{"e": "turn", "node": "n", "turn": 2, "actions": [{"id": "", "name": "bash", "arguments": "{}"}], '
        '"observations": [{"action_id": "", "tool": "bash", "role": "user", "content": [{"text": "x"}], '
        '"tags": ["a", "b"]}], "usage": {"input": 0, "cache_read": 0, "cache_write": 0, "output": 4}, '
        '"at": 1.5, "v": 1}'
    )


def test_what_a_client_passes_may_be_of_its_own_kind() -> None:
    """Subclasses of texts and numbers, and any mapping, are kept as the plain ones."""

    class Name(str):
        pass

    tool = MappingProxyType({"name": Name("f"), "limits": UserDict(most=9)})
    opened = SessionOpened(strategy=Name("raw"), tools=(tool,))
    assert json.loads(json.dumps(encode_event(opened)))["tools"] == [{"name": "f", "limits": {"most": 9}}]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"e": "new"},
        {"e": "turn"},
        {"e": "turn", "turn": 0},
        {"e": "turn", "turn": 1, "content": [5], "observations": 3},
        {"e": "decided", "call": "1"},
        {"e": "recalled", "key": [1]},
        {"e": "answered"},
        {"e": "exchanged", "call": 1, "node": "n", "messages": ["text"]},
    ],
)
def test_anything_else_is_a_value_error(value: dict[str, object]) -> None:
    """A record that no event was written as is refused, never half read."""
    with pytest.raises(ValueError):
        decode_event(value)


#: Decodes events in 16 threads as the first thing that a process does, and prints which annotations are read then.
_PROGRAM = """
import sys, threading
from elision.trajectory.events import decode_event, encode_event
from elision.trajectory.events import HeadSet, PassDecided, RequestSent, TurnAdded, UsageReported
from elision.trajectory.turn import make_content
from elision.trajectory.turn import Action, Head, Observation, Turn
from elision.trajectory.usage import Usage

result = Observation(action_id="c", tool="look", content=make_content("a result"))
turn = Turn(index=1, actions=(Action(id="c", name="look"),), observations=(result,))
events = [HeadSet(Head()), TurnAdded(turn, "n"), PassDecided(1, "why"), RequestSent(call=1, tokens=5)]
events.append(UsageReported(call=1, usage=Usage(input=3)))
values = [encode_event(event) for event in events]
late = set()
wrong = []
start = threading.Barrier(16)

def watch(frame, event, argument):
    if event == "call" and frame.f_code.co_name in ("get_class_annotations", "_eval_type", "ForwardRef"):
        late.add(frame.f_code.co_name)

def decode():
    mine = [dict(value) for value in values]
    start.wait()
    if [decode_event(value) for value in mine] != events:
        wrong.append(1)

threading.setprofile(watch)
threads = [threading.Thread(target=decode) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(wrong), sorted(late))
"""


def test_no_annotation_is_read_in_a_thread() -> None:
    """msgspec reads those of a class at its first use. Where several threads did so at once, the process crashed."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "0 []"
