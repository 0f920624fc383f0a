"""Elision's own export: what goes out comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import FormatError
from elision.formats.document import Document
from elision.formats.elision_export import ElisionExportReader, export
from elision.trajectory.run_roles import ROLES
from elision.trajectory.trajectory import Compaction, Problem, PromptChange, Trajectory
from elision.trajectory.turn import Action, Head, Message, Observation, Opaque, Text, Turn
from elision.trajectory.usage import Usage
from tests.formats.found import make_lines

DATA = Path(__file__).parents[1] / "data"

texts = st.text(max_size=20)
counts = st.integers(0, 2**53)
floats = st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, json_values, max_size=3)
contents = st.lists(st.builds(Text, texts) | st.builds(Opaque, texts, counts, st.none() | objects), max_size=3).map(
    tuple
)
messages = st.builds(
    Message, role=st.sampled_from(["system", "developer", "user"]), content=contents, pinned=st.booleans()
)
usages = st.builds(
    Usage, input=counts, cache_read=counts, cache_write=counts, output=counts, usd=st.none() | st.floats(0, 1e6)
)


@st.composite
def turns(draw: st.DrawFn, index: int) -> Turn:
    actions = draw(
        st.lists(
            st.builds(Action, id=texts, name=texts, arguments=texts, implicit=st.booleans()),
            max_size=3,
            unique_by=lambda action: action.id,
        )
    )
    ids = st.sampled_from([action.id for action in actions] or [""])
    observation = st.builds(
        Observation,
        action_id=ids,
        tool=texts,
        content=contents,
        role=st.just("user") if not actions else st.sampled_from(["tool", "user"]),
        error=st.none() | st.booleans(),
        tags=st.frozensets(texts, max_size=2),
        pinned=st.booleans(),
    )
    return Turn(
        index=index,
        content=draw(contents),
        reasoning=draw(texts),
        actions=tuple(actions),
        observations=tuple(draw(st.lists(observation, max_size=3))),
        interjections=tuple(draw(st.lists(messages, max_size=2))),
        usage=draw(st.none() | usages),
        at=draw(st.none() | floats),
        model=draw(texts),
        pinned=draw(st.booleans()),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    heads = st.builds(
        Head,
        messages=st.lists(messages, max_size=2).map(tuple),
        tools=st.lists(objects, max_size=2).map(tuple),
        hidden_tokens=counts,
        warm_tokens=counts,
    )
    compactions = st.builds(Compaction, before=counts, tokens_before=st.none() | counts, summary=texts)
    return Trajectory(
        id=draw(texts),
        head=draw(heads),
        turns=tuple(draw(turns(index)) for index in range(1, draw(st.integers(0, 3)) + 1)),
        file=draw(texts),
        format=draw(texts),
        model=draw(texts),
        parent=draw(st.none() | texts),
        compactions=tuple(draw(st.lists(compactions, max_size=2))),
        changes=tuple(draw(st.lists(st.builds(PromptChange, before=counts, what=texts), max_size=2))),
        recorded_window=draw(st.none() | counts),
        observations=draw(st.sampled_from(["tools", "user"])),
        role=draw(st.sampled_from(["", *ROLES])),
    )


HEAD = {"format": "elision.trajectory/1", "id": "r", "head": {}}


@given(st.lists(trajectories(), max_size=3))
def test_the_round_trip_is_exact(runs: list[Trajectory]) -> None:
    """Runs written one behind the other read back equal, field by field, and write the same lines again.

    There is one line for each run and turn, in ASCII and without a line end in it, whatever the texts hold.
    """
    lines = [line for run in runs for line in export(run)]
    assert len(lines) == sum(1 + len(run.turns) for run in runs)
    assert all(line.isascii() and "\n" not in line and "\r" not in line for line in lines)
    found = list(ElisionExportReader().read(make_lines(*lines)))
    assert found == runs
    assert [line for run in found if isinstance(run, Trajectory) for line in export(run)] == lines


def test_version_1_still_loads() -> None:
    """The pinned file of version 1 keeps its meaning; keys that are not known are passed over."""
    made = Document("two-runs.jsonl", (DATA / "elision_export" / "two-runs.jsonl").read_bytes())
    first, second = ElisionExportReader().read(made)
    assert ElisionExportReader().sniff(made)
    assert isinstance(first, Trajectory)
    assert isinstance(second, Trajectory)
    assert (first.id, first.file, first.format, first.recorded_window) == ("main", "a.json", "openai-chat", 5)
    assert first.compactions == (Compaction(before=2, tokens_before=900, summary="so far"),)
    assert first.head == Head(
        messages=(Message(role="system", content=(Text("sys"),)),),
        tools=({"name": "bash"},),
        hidden_tokens=10,
        warm_tokens=5,
    )
    assert first.turns[0] == Turn(
        index=1,
        content=(Text("hi"),),
        reasoning="why",
        actions=(Action(id="c1", name="bash"),),
        observations=(
            Observation(
                action_id="c1",
                tool="bash",
                content=(Opaque("image", 1200, {"type": "image"}),),
                error=False,
                tags=frozenset({"keep_output"}),
                pinned=True,
            ),
        ),
        interjections=(Message(role="user", content=(Text("go on"),), pinned=True),),
        usage=Usage(input=1, cache_read=2, cache_write=3, output=4, usd=0.5),
        at=1.5,
        model="m",
    )
    assert (second.parent, second.turns[0].actions[0].implicit) == ("main", True)


@pytest.mark.parametrize("version", ["elision.trajectory/2", "elision.trajectory/99"])
def test_a_newer_format_is_refused(version: str) -> None:
    """A newer version is recognised and refused, with what to do about it."""
    made = make_lines({**HEAD, "format": version})
    assert ElisionExportReader().sniff(made)
    with pytest.raises(FormatError, match=rf"{version} is newer .* update elision"):
        list(ElisionExportReader().read(made))


@pytest.mark.parametrize("version", ["elision.trajectory/0", "elision.trajectory/x", "other/1", 7, None])
def test_an_unknown_format_is_refused(version: object) -> None:
    """What is no version of this format is an error that shows what was found."""
    with pytest.raises(FormatError, match="unknown format"):
        list(ElisionExportReader().read(make_lines({**HEAD, "format": version})))


@pytest.mark.parametrize(
    "turn",
    [
        "{broken",
        "5",
        {"content": []},
        {"turn": 1, "content": "text"},
        {"turn": 1, "content": [{"text": 5}]},
        {"turn": 1, "actions": [{"id": None}]},
        {"turn": 1, "observations": [{"action_id": "x", "role": "tool"}]},
        {"turn": 1, "observations": [{"action_id": "x", "role": "ghost"}]},
        {"turn": 1, "usage": {"input": -1}},
        {"turn": 1, "usage": {"input": 1.5}},
        {"turn": 1, "at": "noon"},
        {"turn": 1, "pinned": 1},
        {"turn": 1, "interjections": [{"role": "assistant"}]},
    ],
)
def test_a_broken_turn_is_a_problem_and_the_rest_is_read(turn: Any) -> None:
    """The turn is left out with its line, and later turns move up."""
    problem, run = ElisionExportReader().read(make_lines(HEAD, turn, {"turn": 2, "content": [{"text": "b"}]}))
    assert isinstance(problem, Problem)
    assert isinstance(run, Trajectory)
    assert problem.line == 2
    assert [turn.text for turn in run.turns] == ["b"]


@pytest.mark.parametrize(
    "field",
    [{"id": 5}, {"head": []}, {"head": {"tools": [1]}}, {"compactions": [{"before": "x"}]}, {"recorded_window": True}],
)
def test_a_broken_run_is_a_problem_and_the_next_is_read(field: dict[str, Any]) -> None:
    """A run whose first line is unusable is left out whole."""
    problem, run = ElisionExportReader().read(make_lines({**HEAD, **field}, {"turn": 1}, HEAD))
    assert isinstance(problem, Problem)
    assert problem.line == 1
    assert isinstance(run, Trajectory)


def test_a_turn_before_any_run_is_a_problem() -> None:
    """A turn that belongs to no run is reported."""
    (problem,) = ElisionExportReader().read(make_lines({"turn": 1}))
    assert isinstance(problem, Problem)
