"""mini-swe-agent, unmodified, through a gateway: a recorded run to its end, and a real shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elision.testing.builders import call, trajectory
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.testing.request_checks import find_problems
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn, make_content
from tests.clients.environments import LiteLLM
from tests.e2e.doors import EAGER, gateway, recorded
from tests.soak import SOAK

#: Whole in `make soak`.
CALLS = 1_000 if SOAK else 60
#: Behind such a line the agent's work is handed in.
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
AS_IT_IS = {"observation_template": "{{ output.output }}"}


def recording(calls: int = CALLS) -> Trajectory:
    """The recorded run, up to a call and then the one that hands in, which is its last."""
    run = recorded("mini-swe-agent", 1_000)
    *turns, last = run.turns
    return Trajectory(
        id="mini", head=run.head, turns=(*turns[: calls - 1], renumbered(last, min(calls, len(run.turns))))
    )


def renumbered(turn: Turn, index: int) -> Turn:
    return Turn(index=index, content=turn.content, actions=turn.actions)


def outputs(run: Trajectory) -> list[str]:
    """What each command printed, and at last what hands in."""
    return [each.text for turn in run.turns[:-1] for each in turn.observations] + [f"{SUBMIT}\nThe patch.\n"]


def model(url: str, name: str, **more: Any) -> dict[str, Any]:
    """LiteLLM's options, as `mini` has them in its configuration."""
    base = url if name.startswith("anthropic") else f"{url}/v1"
    return {"model_name": name, "model_kwargs": {"api_base": base, "api_key": "any", "drop_params": True}, **more}


def agent(run: Trajectory) -> dict[str, Any]:
    """The recorded prompts."""
    system, *_ = [message.text for message in run.head.messages if message.role == "system"]
    return {"system_template": system, "instance_template": "{{ task }}", "cost_limit": 0}


def task(run: Trajectory) -> str:
    return next(message.text for message in run.head.messages if message.role == "user")


def test_a_recorded_run(litellm: LiteLLM) -> None:
    """The agent works as it did, to its end; the provider sees each turn once, soundly, and ever less of the rest."""
    run = recording()
    with Playback(run) as provider, gateway(provider.url) as door:
        got = litellm.do(
            "mini",
            model=model(door.url, f"openai/run:{run.id}", **AS_IT_IS),
            agent=agent(run),
            task=task(run),
            outputs=outputs(run),
        )
        assert len(door.worker.gateway.sessions) == 1
        said = sum(len(each) for each in outputs(run))
    assert got["ending"] == {"exit_status": "Submitted", "submission": "The patch.\n"}
    assert got["calls"] == len(run.turns)
    assert provider.violations == []
    assert [request.turn for request in provider.requests] == list(range(1, len(run.turns) + 1))
    seen = [message["content"] for message in provider.requests[-1].body["messages"] if message["role"] == "tool"]
    assert len(seen) == len(outputs(run)) - 1
    assert sum(map(len, seen)) < said / 2


TASK = "Make a.txt."


def shell_run() -> Trajectory:
    """Commands for a real shell, a hidden output recalled, and at last the work handed in."""
    lines = ["seq -f 'line %g of alpha' 60 > a.txt; cat a.txt"]
    lines += [f"echo step {number}; cat a.txt" for number in range(2, 7)]
    made = [call(id=f"c{number}", command=line) for number, line in enumerate(lines, start=1)]
    asked = call("elision_recall", id="r1", handle="t2.1", lines="4-5")
    done = call(id="end", command=f"echo {SUBMIT}; wc -l < a.txt")
    turns = [
        Turn(index=index, content=make_content(f"Step {index}."), actions=(action,))
        for index, action in enumerate([*made, asked, done], start=1)
    ]
    return trajectory(*turns, id="shell", task=TASK)


#: Model of the agent -> its name for LiteLLM. The names are real ones: what is known of a model decides about recall.
MODELS = {"chat": "openai/gpt-5", "responses": "openai/gpt-5", "anthropic": "anthropic/claude-sonnet-4-5"}


def without_nulls(value: Any) -> Any:
    """JSON without fields that are null."""
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return value


@pytest.mark.parametrize("way", MODELS)
def test_a_real_shell(litellm: LiteLLM, tmp_path: Path, way: str) -> None:
    """Commands really run; a recall in their midst is answered by the gateway, and the agent never sees it."""
    run = shell_run()
    # Over Responses the agent sends nulls back that OpenAI's type has no place for: they are its own, and pass.
    terms = Terms(check=way != "responses")
    with Playback(run, terms) as provider, gateway(provider.url, strategy=EAGER) as door:
        got = litellm.do(
            "mini",
            model=model(door.url, MODELS[way]),
            agent={"system_template": "You are an agent.", "instance_template": "{{ task }}", "cost_limit": 0},
            task=TASK,
            environment={"cwd": str(tmp_path)},
            responses=way == "responses",
        )
    assert got["ending"]["exit_status"] == "Submitted"
    assert got["ending"]["submission"].split() == ["60"]
    assert got["calls"] == len(run.turns) - 1
    assert len((tmp_path / "a.txt").read_text(encoding="utf-8").splitlines()) == 60
    assert [request.turn for request in provider.requests] == list(range(1, len(run.turns) + 1))
    assert [
        problem for each in provider.requests for problem in find_problems(each.api, without_nulls(each.body))
    ] == []
    newest = provider.requests[-1].raw
    assert b"elision_recall" in newest
    # In the newest output, and in the two lines that were recalled; nowhere else any more.
    assert newest.count(b"line 1 of alpha") == 2
    assert newest.count(b"line 3 of alpha") == 1
