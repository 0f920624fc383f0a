"""Sessions and events for tests of stores."""

from __future__ import annotations

from collections.abc import Sequence

from elision.stores.store import NewSession, Store
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
)
from elision.trajectory.plan import Edit, Summary
from elision.trajectory.turn import Action, Head, Message, Observation, Turn, make_content
from elision.trajectory.usage import Usage

#: Keys that trip what is careless with quotes, patterns, paths, encodings or lengths.
ODD_KEYS = (
    "",
    " ",
    "a b",
    "../../etc/passwd",
    "/absolute\\and/back",
    "50%_of[it]*?",
    "'; DROP TABLE sessions; --",
    '"quoted"',
    "nul\0inside",
    "nul\0other",
    "line\nbreak",
    "Größe-大小-🗿",
    "e\u0301",
    "é",
    "lone \ud800 surrogate",
    "k" * 3_000,
    "k" * 3_001,
    "大" * 2_000,
)


def new_session(key: str, *, family: str = "f", at: float = 1.0, parent: str = "", shared: int = 0) -> NewSession:
    return NewSession(key=key, family=family, at=at, parent=parent, shared=shared, relation="fork" if parent else "")


def make_turn(index: int, *results: str, said: str = "", tool: str = "bash") -> Turn:
    """Return a turn with one call and one result for each of `results`."""
    ids = [f"call{position}" for position in range(len(results))]
    return Turn(
        index=index,
        content=make_content(said),
        actions=tuple(Action(id=each, name=tool) for each in ids),
        observations=tuple(
            Observation(action_id=each, tool=tool, content=make_content(text))
            for each, text in zip(ids, results, strict=True)
        ),
    )


def add_turn(index: int, *results: str, said: str = "", node: str = "") -> TurnAdded:
    return TurnAdded(make_turn(index, *results, said=said), node)


def amend_turn(index: int, *results: str, said: str = "", node: str = "") -> TurnAmended:
    return TurnAmended(make_turn(index, *results, said=said), node)


def hide_results(*keys: tuple[int, int], call: int, covers: int = 0) -> PassDecided:
    """Return a pass that masks the results `keys`. covers: turns that its summary covers; 0 for no summary."""
    summary = Summary(covers=covers, text="all", block="[all]") if covers else None
    return PassDecided(
        call=call,
        reason="due",
        edits=tuple(Edit(key, "mask", f"[t{key[0]}.{key[1]}]") for key in keys),
        summary=summary,
    )


def list_every_event() -> tuple[Event, ...]:
    """Return an event of each kind, with all its fields set."""
    said = (
        Message(role="system", content=make_content("be brief")),
        Message(role="user", content=make_content("go"), pinned=True),
    )
    key = (1, 1)
    summary = Summary(
        covers=1, text="all well", block="[summary] all well", interjections=(1,), input_tokens=5, output_tokens=2
    )
    return (
        SessionOpened(
            strategy="masking(window=10)",
            dialect="anthropic",
            offer="first",
            tools=({"name": "elision_recall", "description": "Reads again. " * 50, "input_schema": {}},),
        ),
        HeadSet(Head(messages=said, tools=({"name": "bash", "input_schema": {"type": "object"}},), hidden_tokens=3)),
        add_turn(1, "out " * 400, said="I look", node="n1"),
        amend_turn(1, "out " * 401, "more", said="I look", node="n1b"),
        RequestSent(call=2, at=2.5, model="m", tokens=99),
        UsageReported(call=2, usage=Usage(input=9, cache_read=90, output=4, usd=0.01)),
        PassDecided(
            call=2,
            reason="due",
            edits=(Edit(key, "mask", "[t1.1]"), Edit((1, 2), "clip", "mo…")),
            summary=summary,
        ),
        SummaryFailed(call=3, cause="timeout", reason="no answer in 60 s", input=7, retry_at=5),
        ObservationRecalled(call=3, key=key, tokens=50, by="user"),
        RecallExchanged(
            call=3, node="n2", messages=('{"role": "assistant"}', '"' + "read " * 400 + '"'), results=("{}",)
        ),
    )


def begin_session(store: Store, key: str = "s", *events: Event, family: str = "f", at: float = 1.0) -> str:
    """Begin a session with `events` in it; return its key."""
    store.create(new_session(key, family=family, at=at))
    if events:
        store.append(key, events, after=0, at=at)
    return key


def read_log(store: Store, key: str = "s") -> Sequence[Event]:
    return list(store.events(key))
