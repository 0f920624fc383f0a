"""The configurations of `examples/scaffolds` at work: the scaffold's own, and the gateway's, strategy by strategy.

mini-swe-agent and the OpenHands SDK run as they are. SWE-agent is on no package index: LiteLLM sends what its model
class sends.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from elision.cli.app import app
from elision.gateway.server import GatewayThread
from elision.gateway.settings import gateway_settings
from elision.testing.builders import call, trajectory
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn, make_content
from tests.clients.environments import ROOT, LiteLLM, Outside, plain_environment, run
from tests.clients.test_mini_swe_agent import AS_IT_IS, agent, outputs, recording, task
from tests.e2e.doors import NOWHERE, recorded
from tests.lab.outcome_files import write_report
from tests.soak import leave_to_soak

SCAFFOLDS = ROOT / "examples" / "scaffolds"
#: Strategy -> calls after which something of all that it does has happened: 10, 21 + 10, 43 + 10, and some.
CALLS = {"raw": 14, "masking": 16, "summarization": 34, "hybrid": 60}
INSTANCE = "marshmallow-code__marshmallow-1343"
Json = dict[str, Any]


@contextmanager
def gateway(scaffold: str, strategy: str, upstream: str, store: str = "memory:") -> Iterator[GatewayThread]:
    """A gateway with the settings of the example; only addresses are the test's, and no model writes summaries."""
    settings = gateway_settings(
        {"AGENT_CONTEXT_CONFIG": str(SCAFFOLDS / scaffold / f"{strategy}.toml")},
        NOWHERE,
        gateway_port=0,
        gateway_upstream_openai=upstream,
        gateway_upstream_anthropic=upstream,
        gateway_log="none",
        store=store,
        summarizer="digest",
    )
    with GatewayThread(settings) as running:
        yield running


def split_results(seen: list[str], printed: list[str]) -> tuple[int, int, int]:
    """Of a last request's results: those that a summary covers, those that became placeholders, those that stayed."""
    covered = len(printed) - len(seen)
    kept = [shown == real for shown, real in zip(seen, printed[covered:], strict=True)]
    return covered, kept.count(False), kept.count(True)


def check_results(strategy: str, seen: list[str], printed: list[str], window: int) -> None:
    """Raw shows all, masking hides what is older than the window, a summary covers the oldest, hybrid does both."""
    covered, hidden, kept = split_results(seen, printed)
    assert (covered > 0) == (strategy in ("summarization", "hybrid"))
    assert (hidden > 0) == (strategy in ("masking", "hybrid"))
    assert seen[-window:] == printed[-window:]
    # Short results are never masked: a placeholder would not be shorter.
    assert kept >= window


# -- mini-swe-agent ---------------------------------------------------------------------------------------------------


def configure_mini(litellm: LiteLLM, url: str) -> Json:
    """The program's own configuration for SWE-bench, merged with the example as the program merges them."""
    merged = litellm.do("mini_config", specs=["swebench.yaml", str(SCAFFOLDS / "mini-swe-agent" / "gateway.yaml")])
    options: Json = merged["model"]
    assert options["model_kwargs"]["api_base"] == "http://127.0.0.1:8377/v1"
    assert "observation_template" in options
    options["model_kwargs"] |= {"api_base": f"{url}/v1", "api_key": "any"}
    return options | AS_IT_IS


def work(litellm: LiteLLM, strategy: str, store: str = "memory:", save: str = "") -> tuple[Playback, list[str]]:
    """The recorded run through the gateway of `strategy`; the provider, and what commands printed."""
    played = recording(CALLS[strategy])
    with Playback(played) as provider, gateway("mini-swe-agent", strategy, provider.url, store) as door:
        options = configure_mini(litellm, door.url)
        got = litellm.do(
            "mini",
            model=options | {"model_name": f"openai/run:{played.id}"},
            agent=agent(played),
            task=task(played),
            outputs=outputs(played),
            save=save,
            instance=INSTANCE,
        )
        assert len(door.worker.gateway.sessions) == 1
    assert got["ending"]["exit_status"] == "Submitted"
    assert got["calls"] == len(played.turns)
    assert provider.violations == []
    return provider, outputs(played)[:-1]


@pytest.mark.parametrize("strategy", leave_to_soak(CALLS, "masking", "summarization"))
def test_mini_swe_agent(litellm: LiteLLM, strategy: str) -> None:
    """The program, unmodified, works to its end under every strategy."""
    provider, printed = work(litellm, strategy)
    seen = [message["content"] for message in provider.requests[-1].body["messages"] if message["role"] == "tool"]
    check_results(strategy, seen, printed, 10)


def test_from_runs_to_a_table(litellm: LiteLLM, tmp_path: Path) -> None:
    """What the page tells a reader to do: two gateways, the scaffold's trajectories, the harness's reports, a table."""
    arguments = ["lab", "outcomes", "--tasks", str(tmp_path / "runs"), "--json"]
    for strategy, solved in (("raw", True), ("masking", False)):
        store = f"sqlite:////{str(tmp_path / strategy).lstrip('/')}.db"
        work(litellm, strategy, store, str(tmp_path / "runs" / strategy / INSTANCE / f"{INSTANCE}.traj.json"))
        report = write_report(tmp_path / f"{strategy}.report.json", {INSTANCE: solved})
        arguments += [f"{strategy}={store}", "--outcomes", f"{strategy}={report}"]
    done = CliRunner().invoke(app, [*arguments, "--model", "gpt-5"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    raw, masking = found["strategies"]
    assert (raw["solved"], masking["solved"]) == (1, 0)
    assert [row["mean_turns"] for row in (raw, masking)] == [CALLS["raw"], CALLS["masking"]]
    assert masking["mean_usd"] > 0
    assert found["runs_without_outcome"] == found["outcomes_without_run"] == []


# -- SWE-agent --------------------------------------------------------------------------------------------------------

#: What its model class gives to `litellm.completion` beside messages and tools (`sweagent/agent/models.py`, 1.1).
OWN: Json = {"fallbacks": [], "api_version": None, "n": None, "extra_headers": {"User-Agent": "swe-agent/1.1.0"}}


def lengthen(short: Trajectory, turns: int) -> Trajectory:
    """A run of so many turns out of a shorter recording, every turn with ids of its own."""
    made = []
    for index in range(1, turns + 1):
        old = short.turns[(index - 1) % len(short.turns)]
        (action,) = old.actions
        (observation,) = old.observations
        action = type(action)(id=f"c{index}", name=action.name, arguments=action.arguments)
        made.append(
            Turn(
                index=index,
                content=old.content,
                actions=(action,),
                observations=(
                    type(observation)(
                        action_id=action.id, tool=observation.tool, content=make_content(f"{index}\n{observation.text}")
                    ),
                ),
            )
        )
    return Trajectory(id="swe-agent", head=short.head, turns=tuple(made), model=short.model)


@pytest.mark.parametrize("strategy", leave_to_soak(["masking", "summarization"], "summarization"))
def test_what_swe_agent_sends(litellm: LiteLLM, strategy: str) -> None:
    """A run whose requests are LiteLLM's, with the arguments that SWE-agent gives it, under every strategy."""
    played = lengthen(recorded("openhands", 12), CALLS[strategy])
    config = yaml.safe_load((SCAFFOLDS / "swe-agent" / "gateway.yaml").read_text(encoding="utf-8"))["agent"]["model"]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]
    with Playback(played) as provider, gateway("swe-agent", strategy, provider.url) as door:
        sampling = {"temperature": config["temperature"], "top_p": config["top_p"]}
        where = {"model": config["name"], "api_base": f"{door.url}/v1", "api_key": "any"}
        follower = Follower(played, "openai")
        while not follower.done:
            follower.take(litellm.do("completion", **where, **sampling, **OWN, tools=tools, **follower.request))
        assert len(door.worker.gateway.sessions) == 1
    assert provider.violations == []
    printed = [turn.observations[0].text for turn in played.turns[:-1]]
    seen = [message["content"] for message in provider.requests[-1].body["messages"] if message["role"] == "tool"]
    check_results(strategy, seen, printed, 10)


# -- OpenHands --------------------------------------------------------------------------------------------------------

#: Turns: enough for its window of 29, and for a summary after 31.
TURNS = 36


def shell_run() -> Trajectory:
    """Commands for a real shell, then an answer."""
    lines = ["seq -f 'line %g of alpha' 60 > a.txt; cat a.txt"]
    lines += [f"echo step {number}; cat a.txt" for number in range(2, TURNS)]
    turns = [
        Turn(
            index=index,
            content=make_content(f"Step {index}."),
            actions=(call("terminal", id=f"c{index}", command=line),),
        )
        for index, line in enumerate(lines, start=1)
    ]
    return trajectory(*turns, Turn(index=TURNS, content=make_content("Done.")), id="shell", task="Make a.txt.")


@pytest.mark.parametrize(
    ("strategy", "model"),
    [("raw", "openai/gpt-4o"), ("masking", "anthropic/claude-sonnet-4-5"), ("summarization", "openai/gpt-5")],
)
def test_openhands(openhands: Path, tmp_path: Path, strategy: str, model: str) -> None:
    """The example's program with the SDK and its terminal, over chat, Anthropic's API and Responses."""
    folder = tmp_path / "openhands"
    shutil.copytree(SCAFFOLDS / "openhands", folder)
    work = tmp_path / "work"
    work.mkdir()
    # Over Responses the SDK sends items back without fields that OpenAI's type requires: they are its own, and pass.
    terms = Terms(check=model != "openai/gpt-5")
    with Playback(shell_run(), terms) as provider, gateway("openhands", strategy, provider.url) as door:
        options = json.loads((folder / "llm.json").read_text(encoding="utf-8"))
        base = door.url if model.startswith("anthropic") else f"{door.url}/v1"
        (folder / "llm.json").write_text(json.dumps(options | {"model": model, "base_url": base}), encoding="utf-8")
        with Outside() as outside:
            environment = plain_environment(
                tmp_path / "home",
                OPENAI_API_KEY="any",
                LITELLM_LOCAL_MODEL_COST_MAP="True",
                LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS="True",
                OPENHANDS_SUPPRESS_BANNER="1",
                LOG_LEVEL="ERROR",
                **outside.environment(),
            )
            run([openhands, folder / "agent.py", work, "Make a.txt."], environment, work)
        assert len(door.worker.gateway.sessions) == 1
    assert outside.asked == []
    assert provider.violations == []
    assert [request.turn for request in provider.requests] == list(range(1, TURNS + 1))
    newest = provider.requests[-1].raw
    shown = newest.count(b"line 60 of alpha")
    assert len((work / "a.txt").read_text(encoding="utf-8").splitlines()) == 60
    if strategy == "raw":
        assert shown == TURNS - 1
    elif strategy == "masking":
        assert 29 <= shown < TURNS - 1
    else:
        assert shown < TURNS - 1
        assert b"elision" in newest.lower() or b"summary" in newest.lower()
