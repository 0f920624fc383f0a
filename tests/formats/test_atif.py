"""ATIF trajectories: steps by source, results by call, copied context, sub-agents, and what is broken."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from elision.errors import FormatError
from elision.formats.atif import AtifReader
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.turn import Opaque
from elision.trajectory.usage import Usage
from tests.formats.found import read_by_id

DATA = Path(__file__).parents[1] / "data" / "atif"
read = partial(read_by_id, AtifReader(), "trajectory.json")


def tools() -> tuple[dict[str, Trajectory], list[Problem]]:
    return read((DATA / "tools.json").read_bytes())


def test_the_head_has_prompt_tools_task_and_copied_context() -> None:
    """Steps copied from an earlier segment are no turns: the agent's are told in the head, calls and results too."""
    head = tools()[0]["top"].head
    assert [message.role for message in head.messages] == ["system", "user", "user"]
    assert head.messages[2].text == 'I counted before.\nbash {"command": "ls old"}\nx y'
    assert head.tools[0]["function"]["name"] == "bash"


def test_results_answer_the_call_they_name_or_the_one_left() -> None:
    """A result that names no call answers the call that no other result names."""
    first = tools()[0]["top"].turns[0]
    answers = {result.action_id: result.text for result in first.observations}
    assert (answers["a"], answers["b"]) == ("f1 f2", "seven")
    assert isinstance(first.observations[0].content[1], Opaque)
    assert first.reasoning == "Both are cheap."


def test_usage_includes_what_was_cached() -> None:
    """`prompt_tokens` hold cache reads and writes; the writes stand in `metrics.extra`."""
    assert tools()[0]["top"].turns[0].usage == Usage(input=100, cache_read=600, cache_write=300, output=50, usd=0.02)


def test_a_step_without_a_model_call_belongs_to_the_turn_before() -> None:
    """`llm_call_count` 0 starts no turn: its call and result join the last one."""
    top = tools()[0]["top"]
    assert [action.id for action in top.turns[0].actions] == ["a", "b", "auto"]
    assert [turn.text for turn in top.turns] == ["Two at once.", "Nine in all.", ""]


def test_models_are_the_steps_or_the_agents() -> None:
    """A step's model overrides the agent's."""
    assert [turn.model for turn in tools()[0]["top"].turns] == ["gemini-3-pro", "gemini-3-flash", "gemini-3-pro"]


def test_what_the_system_observed_is_an_interjection() -> None:
    """Results of system steps are kept with their message."""
    assert tools()[0]["top"].turns[0].interjections[0].text == "Context was trimmed.\nkept 3 steps"


def test_embedded_sub_agents_are_runs_of_their_own() -> None:
    """A sub-agent that shares its parent's session id gets a name of its own, and names its parent."""
    runs, _ = tools()
    assert list(runs) == ["top", "run-1"]
    assert runs["run-1"].parent == "top"
    nested = {"schema_version": "ATIF-v1.7", "session_id": "s", "steps": [{"source": "agent", "message": "x"}]}
    runs, _ = read(json.dumps({**nested, "subagent_trajectories": [nested, nested]}).encode())
    assert list(runs) == ["s", "s sub-agent 1", "s sub-agent 2"]


def test_results_without_calls_are_observations_in_text() -> None:
    """An agent that acts in its messages is answered by user messages; a person's message is none."""
    (run,) = read((DATA / "text.json").read_bytes())[0].values()
    assert [[result.text for result in turn.observations] for turn in run.turns] == [
        ["make: *** [all] Error 1"],
        ["nothing\nto do"],
        [],
    ]
    assert {result.role for turn in run.turns for result in turn.observations} == {"user"}
    assert all(action.implicit for turn in run.turns for action in turn.actions)
    assert [message.text for message in run.turns[1].interjections] == ["Are you sure?"]


def test_broken_steps_are_reported_and_the_rest_is_read() -> None:
    """Steps of unknown source or type are problems with their numbers."""
    runs, problems = tools()
    assert [problem.line for problem in problems] == [8, 9]
    assert len(runs["top"].turns) == 3


def test_a_trajectory_without_an_agents_step_is_reported() -> None:
    """Nothing said is a problem, not silence."""
    runs, problems = read(b'{"schema_version": "ATIF-v1.0", "steps": [{"source": "user", "message": "Anyone?"}]}')
    assert runs == {}
    assert len(problems) == 1


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema_version": "ATIF-v1.0"}'])
def test_what_is_no_trajectory_raises(data: bytes) -> None:
    """Where nothing can be read the error names the file."""
    with pytest.raises(FormatError, match=r"trajectory\.json"):
        read(data)
