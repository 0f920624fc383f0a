"""Models behind HTTP, asked over real sockets, and whole runs against recorded ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elision.agent import (
    ActionResult,
    AnthropicModel,
    ModelError,
    OpenAIModel,
    Prompt,
    RetryPolicy,
    Shell,
    Tool,
    run_agent,
)
from elision.agent.model import Model, Shape
from elision.errors import MissingExtra
from elision.testing.builders import commands, step, trajectory, turn
from elision.testing.exchange import Cut, Garbled, Refused, Slow
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.testing.recorded_run import RecordedRun
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action
from tests.agent.pass_through_context import PassThroughContext

SHAPES: list[Shape] = ["openai", "anthropic"]
HI = Prompt(messages=[{"role": "user", "content": "Mend the parser."}])


def model(shape: Shape, server: Playback, name: str = "m", key: str = "a-test-key", seconds: float = 30) -> Model:
    if shape == "openai":
        return OpenAIModel(name, key=key, base_url=f"{server.url}/v1", seconds=seconds)
    return AnthropicModel(name, key=key, base_url=server.url, seconds=seconds)


class Played:
    """An environment that gives every call its recorded result."""

    tools = (Tool(name="bash", description="Run."),)

    def __init__(self, run: Trajectory) -> None:
        self._seen: dict[str, str] = {}
        for reply in RecordedRun(run).replies:
            results = reply.turn.observations if reply.turn else ()
            self._seen.update({call.id: each.text for call, each in zip(reply.calls, results, strict=False)})

    def execute(self, action: Action) -> ActionResult:
        return ActionResult(text=self._seen[action.id])


@pytest.fixture
def server() -> Iterator[Playback]:
    run = trajectory(turn(1, *((step(1).actions[0], step(1).observations[0]),), reasoning="Hm.", text="Look."), id="r")
    with Playback(run, Terms(key="a-test-key")) as playing:
        yield playing


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_is_read(shape: Shape, server: Playback) -> None:
    """Text, calls, usage and why it stopped; the message goes back as it came."""
    answer = model(shape, server).answer(HI)
    assert (answer.text, answer.stop) == ("Look.", "tool")
    assert answer.calls[0].decoded_arguments == {"command": "make step-1"}
    assert answer.usage == server.requests[0].usage
    assert answer.reported
    assert answer.message["role"] == "assistant"


def test_thinking_goes_back_with_its_signature(server: Playback) -> None:
    """An Anthropic answer is handed back block by block; the server finds its own seal unbroken."""
    thinker = AnthropicModel(
        "m", key="a-test-key", base_url=server.url, fields={"thinking": {"type": "enabled", "budget_tokens": 1_024}}
    )
    answer = thinker.answer(HI)
    assert answer.reasoning == "Hm."
    assert answer.message["content"][0]["signature"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("fault", "passing"),
    [
        (Refused(status=429, retry_after=3), True),
        (Refused(status=529), True),
        (Refused(status=500), True),
        (Refused(status=403, message="no"), False),
        (Garbled(), True),
        (Cut(), True),
        (Slow(first=60), True),
    ],
)
def test_what_goes_wrong_is_one_error(shape: Shape, fault: object, passing: bool, server: Playback) -> None:
    """It says whether asking again may help, and how long the server wants to be left alone; no key is in it."""
    server.fail(fault)  # type: ignore[arg-type]
    with pytest.raises(ModelError) as error:
        model(shape, server, key="a-test-key", seconds=0.5).answer(HI)
    assert error.value.is_temporary is passing
    assert error.value.wait_seconds == (3 if fault == Refused(status=429, retry_after=3) else None)
    assert server.url in str(error.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_wrong_key_is_no_passing_error(shape: Shape, server: Playback) -> None:
    """A refused key is told without the key."""
    with pytest.raises(ModelError, match="401") as error:
        model(shape, server, key="sk-wrong-and-secret").answer(HI)
    assert not error.value.is_temporary
    assert "sk-wrong-and-secret" not in f"{error.value!r} {error.value}"


@pytest.mark.parametrize("shape", SHAPES)
def test_the_numbers_of_a_prompt_that_is_too_long_are_read(shape: Shape) -> None:
    """What does not fit, and what does, as the provider says it."""
    with Playback(trajectory(step(1)), Terms(window=3)) as server, pytest.raises(ModelError) as error:
        model(shape, server).answer(HI)
    assert error.value.room_tokens == 3
    assert error.value.sent_tokens is not None
    assert error.value.sent_tokens > 3


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package that sends requests, the extra that brings it is told at once."""
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(MissingExtra, match=r"a model behind HTTP needs an extra: .*\[llm\]"):
        OpenAIModel("m", base_url="http://127.0.0.1:9/v1")


def test_special_headers_are_sent(server: Playback) -> None:
    """Betas of a prompt go out as the header that Anthropic reads; a prompt without any sends none."""
    llm = AnthropicModel("m", key="a-test-key", base_url=f"{server.url}/v1")
    llm.answer(replace(HI, betas=("context-management-2025-06-27", "other-1")))
    llm.answer(HI)
    assert server.requests[0].headers["anthropic-beta"] == "context-management-2025-06-27,other-1"
    assert "anthropic-beta" not in server.requests[1].headers


@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_agent_with_a_real_shell(shape: Shape, tmp_path: Path) -> None:
    """Over HTTP with faults in between, the commands of a run are really run in a folder."""
    run = commands("echo one > a.txt", "cat a.txt; cat missing.txt", "wc -l a.txt", id="r", task="Write one line.")
    patience = RetryPolicy(sleep=lambda _: None)
    with Playback(run, faults=[None, Refused(status=529), None, Refused(status=429, retry_after=1)]) as server:
        ended = run_agent(
            model(shape, server), Shell(tmp_path), "Write one line.", PassThroughContext(), retry=patience
        )
        assert server.violations == []
        assert [request.status for request in server.requests] == [200, 529, 200, 429, 200, 200]
    assert (ended.ending, ended.result) == ("done", "Done.")
    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert [step.failed for step in ended.report.steps] == [0, 1, 0, 0]
