"""Coding agents from npm, unmodified, through a gateway: their own tools over many turns, sessions taken up again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elision.testing.builders import call, trajectory
from elision.testing.exchange import ReceivedRequest
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Turn, make_content
from tests.clients import agents
from tests.e2e.doors import EAGER, gateway
from tests.soak import leave_to_soak

TASK = "Look at a.txt and say how long it is."
AGAIN = "And once more, please."
#: Turns of the first prompt; what comes behind it answers the second.
FIRST = 10
LINES = "\n".join(f"line {number}: alpha_{number}" for number in range(1, 61)) + "\n"


def script(kind: str) -> Trajectory:
    """A model that writes a file, reads it many times, recalls what was hidden of it, and says two things.

    kind: whose tools it calls.
    """
    many = [looked(kind, f"c{number}") for number in range(2, 8)]
    both = (looked(kind, "c9"), shell(kind, "c9b", "wc -l a.txt"))
    steps: list[tuple[Action, ...]] = [
        (wrote(kind, "c1"),),
        *((each,) for each in many),
        (call("elision_recall", id="c8", handle="t2.1", pattern="alpha_30"),),
        both,
        (),
        (shell(kind, "c11", "cat a.txt"),),
        (),
    ]
    said = {FIRST: "It has 60 lines.", FIRST + 2: "Still 60."}
    turns = [
        Turn(index=index, content=make_content(said.get(index, f"Step {index}.")), actions=actions)
        for index, actions in enumerate(steps, start=1)
    ]
    return trajectory(*turns, id="agent", task=TASK)


def wrote(kind: str, id: str) -> Action:
    if kind == "pi":
        return call("write", id=id, path="a.txt", content=LINES)
    return shell(kind, id, f"cat > a.txt <<'END'\n{LINES}END")


def looked(kind: str, id: str) -> Action:
    return call("read", id=id, path="a.txt") if kind == "pi" else shell(kind, id, f"echo {id}; cat a.txt")


def shell(kind: str, id: str, line: str) -> Action:
    return call("bash", id=id, command=line) if kind == "pi" else call("exec_command", id=id, cmd=line)


def check(requests: list[ReceivedRequest], turns: range) -> None:
    """Each turn was asked for once, soundly; what was hidden is hidden, and what was recalled is there."""
    assert [request.problems for request in requests] == [()] * len(turns)
    assert [request.turn for request in requests] == list(turns)
    newest = requests[-1].raw.decode()
    assert "elision_recall" in newest
    assert newest.count("tokens hidden") >= 5
    # Said by who wrote the file, and in the newest output, where that is of the file; line 30 was recalled besides.
    assert newest.count("alpha_40") <= 2
    assert newest.count("alpha_30") > newest.count("alpha_40")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


PI: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("openai-completions", {"id": "gpt-5", "compat": {"sendSessionAffinityHeaders": True}}),
    "responses": ("openai-responses", {"id": "gpt-5"}),
    "anthropic": ("anthropic-messages", {"id": "claude-sonnet-4-5"}),
}


@pytest.mark.parametrize("way", leave_to_soak(PI, "chat", "responses"))
def test_pi(pi: Path, tmp_path: Path, work: Path, way: str) -> None:
    """pi works through a task with its own tools; taken up again behind a gateway that begins anew, it goes on."""
    api, model = PI[way]
    options: dict[str, Any] = {"strategy": EAGER, "store": f"sqlite:///{tmp_path / 'elision.db'}"}
    run = script("pi")
    with Playback(run, Terms(key=agents.KEY)) as provider:
        with gateway(provider.url, **options) as door:
            said = agents.pi(pi, tmp_path, work, door.url, api, TASK, **model)
            (live,) = door.worker.gateway.sessions
        assert said.strip() == "It has 60 lines."
        check(provider.requests, range(1, FIRST + 1))
        with gateway(provider.url, **options) as door:
            said = agents.pi(pi, tmp_path, work, door.url, api, AGAIN, "--continue", **model)
            (later,) = door.worker.gateway.sessions
        assert said.strip() == "Still 60."
        check(provider.requests, range(1, len(run.turns) + 1))
    assert (work / "a.txt").read_text(encoding="utf-8") == LINES
    assert live.family == later.family
    assert ("/" in live.family) == (way != "anthropic")
    if "/" in live.family:
        assert live.family.partition("/")[2] == own_session(tmp_path)


def thoughtful() -> Trajectory:
    """The same work without a recall, and a thought before every step."""
    run = script("pi")
    steps = [turn for turn in run.turns if not any(action.name == "elision_recall" for action in turn.actions)]
    turns = [
        msgspec.structs.replace(turn, index=index, reasoning=f"Thought {index}, of some length.")
        for index, turn in enumerate(steps, start=1)
    ]
    return replace(run, turns=tuple(turns))


def test_pi_thinks(pi: Path, tmp_path: Path, work: Path) -> None:
    """Where thinking is bound to its prefix pi's messages stay whole, and the server is told to clear what is old.

    pi begins by writing a file: an answer too short to be hidden, behind which everything else stands.
    """
    model = {"id": "claude-opus-5-5", "reasoning": True}
    terms = Terms(key=agents.KEY, bound_thinking=True)
    with Playback(thoughtful(), terms) as provider, gateway(provider.url, strategy=EAGER) as door:
        said = agents.pi(pi, tmp_path, work, door.url, "anthropic-messages", TASK, "--thinking", "low", **model)
    assert said.strip() == "It has 60 lines."
    assert [request.problems for request in provider.requests] == [()] * (FIRST - 1)
    newest = provider.requests[-1]
    assert newest.raw.count(b'"type":"thinking"') == len(provider.requests) - 1
    assert b"tokens hidden" not in newest.raw
    kept = [edit["keep"]["value"] for edit in newest.body["context_management"]["edits"]]
    # Those of the two newest turns, of which the last made two calls.
    assert kept == [3]
    assert "context-management" in newest.headers["anthropic-beta"]


def own_session(home: Path) -> str:
    """The id that pi gave its session, from its own record."""
    (record,) = home.rglob("*.jsonl")
    return str(json.loads(record.read_text(encoding="utf-8").splitlines()[0])["id"])


def test_codex(codex: Path, tmp_path: Path, work: Path) -> None:
    """Codex works through a task with its own shell and, resumed, goes on in the same session, named by its thread."""
    run = script("codex")
    with Playback(run, Terms(key=agents.KEY)) as provider, gateway(provider.url, strategy=EAGER) as door:
        said = agents.codex(codex, tmp_path, work, door.url, "gpt-5", TASK)
        assert said.strip().endswith("It has 60 lines.")
        check(provider.requests, range(1, FIRST + 1))
        (live,) = door.worker.gateway.sessions
        said = agents.codex(codex, tmp_path, work, door.url, "gpt-5", AGAIN, "resume", "--last")
        assert said.strip().endswith("Still 60.")
        check(provider.requests, range(1, len(run.turns) + 1))
        assert [later.name for later in door.worker.gateway.sessions] == [live.name]
    assert (work / "a.txt").read_text(encoding="utf-8") == LINES
    assert live.family.partition("/")[2] == provider.requests[0].headers["thread-id"]
