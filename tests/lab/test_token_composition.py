"""What the tokens of recorded runs are."""

from __future__ import annotations

import pytest

from elision.lab.results import Composition, sum_compositions
from elision.lab.run_loading import load_runs
from elision.lab.study import measure_run
from elision.trajectory.tokens import TOKENS_PER_CALL, TOKENS_PER_MESSAGE, Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Head, Message, Observation, Text, Turn
from tests.corpus import CORPUS, reproduces
from tests.docs.blocks import ROOT

SIZER = Sizer(make_counter("estimate"))
RUNS = ROOT / "examples" / "runs"


def _say(text: str) -> tuple[Text, ...]:
    return (Text(text),)


def test_every_token_is_counted_once() -> None:
    """Four characters are a token; frames are the message's or the call's."""
    turn = Turn(
        index=1,
        content=_say("t" * 40),
        reasoning="r" * 80,
        actions=(Action(id="1", name="n" * 4, arguments="a" * 20),),
        observations=(Observation(action_id="1", tool="n", content=_say("o" * 400)),),
        interjections=(Message(role="user", content=_say("u" * 12)),),
    )
    head = Head(messages=(Message(role="user", content=_say("h" * 8)),), hidden_tokens=7)
    found = measure_run(Trajectory(id="x", head=head, turns=(turn,), format="f"), SIZER)
    assert found == Composition(
        reader="f",
        observations=100 + TOKENS_PER_MESSAGE,
        reasoning=30 + TOKENS_PER_MESSAGE,
        actions=6 + TOKENS_PER_CALL,
        user=3 + TOKENS_PER_MESSAGE,
        head=2 + TOKENS_PER_MESSAGE + 7,
    )
    assert found.turn_tokens == found.observations + found.reasoning + found.actions + found.user


def test_commands_in_text_are_calls() -> None:
    """An agent that acts in plain text: the command counts as call, the rest of the text as reasoning."""
    command = Action(id="1", name="bash", arguments="c" * 40, implicit=True)
    turn = Turn(
        index=1,
        content=_say("t" * 60 + "c" * 40),
        actions=(command,),
        observations=(Observation(action_id="1", tool="bash", role="user", content=_say("o")),),
    )
    found = measure_run(Trajectory(id="x", head=Head(), turns=(turn,)), SIZER)
    assert (found.actions, found.reasoning) == (10, 15 + TOKENS_PER_MESSAGE)


def test_formats_are_apart() -> None:
    """One entry per format, in order of their names."""
    loaded = load_runs([RUNS / "swe-agent-sympy-20801.traj.gz", RUNS / "mini-swe-agent-marshmallow-1343.traj.json.gz"])
    measured = [measure_run(run, SIZER) for run in (*loaded.runs, loaded.runs[0])]
    found = sum_compositions([*measured, None])
    assert [(each.reader, each.runs) for each in found] == [("mini-swe-agent", 1), ("swe-agent", 2)]
    whole = found[0] + found[1]
    assert whole.turn_tokens == sum(each.turn_tokens for each in found)
    assert sum_compositions([]) == ()


@reproduces("tool results are 83 % of the turns' tokens in SWE-agent")
def test_most_tokens_of_swe_agent_are_tool_results() -> None:
    """The paper has 84 %."""
    counting = Sizer(make_counter("o200k"))
    (found,) = sum_compositions(measure_run(run, counting) for run in load_runs([CORPUS / "swe-agent-traj"]).runs)
    assert found.observation_share == pytest.approx(0.83, abs=0.01)
