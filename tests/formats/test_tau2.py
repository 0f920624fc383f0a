"""tau2-bench results files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from elision.errors import FormatError
from elision.formats.document import Document
from elision.formats.tau2 import Tau2Reader
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.usage import Usage
from tests.corpus import CORPUS, needs_corpus
from tests.formats.found import separate

DATA = Path(__file__).parents[1] / "data"


def results(*simulations: Any, **environment: Any) -> Document:
    info = {
        "environment_info": {"domain_name": "airline", "policy": "Be kind.", **environment},
        "agent_info": {"llm": "m"},
    }
    return Document("x.json", json.dumps({"info": info, "simulations": list(simulations)}).encode())


def simulation(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"task_id": "13", "trial": 0, "messages": list(messages), **more}


def call(requestor: str = "assistant", id: str = "c") -> dict[str, Any]:
    return {"id": id, "name": "look", "arguments": {"at": 1}, "requestor": requestor}


def read(document: Document) -> tuple[list[Trajectory], list[Problem]]:
    return separate(Tau2Reader().read(document))


def excerpt() -> Document:
    return Document("telecom.json", (DATA / "tau2" / "telecom-excerpt.json").read_bytes())


def test_each_simulation_is_a_run() -> None:
    """Runs are named by domain, task and trial; a repeated name gets its number."""
    said = simulation({"role": "assistant", "content": "hi"})
    runs, _ = read(results(said, {**said, "trial": 1}, said))
    assert [run.id for run in runs] == [
        "airline task 13 trial 0",
        "airline task 13 trial 1",
        "airline task 13 trial 0 simulation 3",
    ]
    assert {(run.model, run.format) for run in runs} == {("m", "tau2-bench")}


def test_the_policy_and_the_tools_are_the_head() -> None:
    """The agent sees the policy as its system prompt, and the tools where they were recorded."""
    made = results(simulation({"role": "assistant", "content": "hi"}), tool_defs={"look": {"name": "look"}})
    (run,), _ = read(made)
    assert [(message.role, message.text) for message in run.head.messages] == [("system", "Be kind.")]
    assert run.head.tools == ({"name": "look"},)


def test_the_users_own_tools_are_not_in_the_agents_context() -> None:
    """Calls of the simulated user and their results are left out; what it then says is an interjection."""
    (run,), problems = read(
        results(
            simulation(
                {"role": "assistant", "content": "Look at your phone."},
                {"role": "user", "content": None, "tool_calls": [call("user", "u")]},
                {"role": "tool", "id": "u", "content": "SECRET", "requestor": "user"},
                {"role": "user", "content": "It shows no bars."},
                {"role": "assistant", "content": None, "tool_calls": [call()]},
                {"role": "tool", "id": "c", "content": "ok", "requestor": "assistant", "error": False},
            )
        )
    )
    assert not problems
    assert "SECRET" not in repr(run)
    assert [message.text for message in run.turns[0].interjections] == ["It shows no bars."]
    assert [(o.tool, o.text, o.error) for o in run.turns[1].observations] == [("look", "ok", False)]


def test_usage_cost_and_time() -> None:
    """Usage is per message; 0 USD means no price was known; a request starts when the message before it was there."""
    usage = {"prompt_tokens": 100, "completion_tokens": 9}
    (run,), _ = read(
        results(
            simulation(
                {"role": "user", "content": "hi", "timestamp": "2025-08-01T00:00:00"},
                {"role": "assistant", "content": "a", "usage": usage, "cost": 0.25, "timestamp": "2025-08-01T00:00:09"},
                {"role": "assistant", "content": "b", "usage": usage, "cost": 0.0, "timestamp": "2025-08-01T00:00:19"},
            )
        )
    )
    first, second = run.turns
    assert first.usage is not None
    assert second.usage is not None
    assert (first.usage.input, first.usage.output, first.usage.usd, second.usage.usd) == (100, 9, 0.25, None)
    assert (second.at or 0) - (first.at or 0) == 9


def test_the_providers_own_usage_counts_the_cache() -> None:
    """Where the provider's answer is kept, its usage is read: the benchmark's own leaves out what the cache served."""
    own = {"prompt_tokens": 100, "completion_tokens": 9}
    raw = {"usage": {**own, "prompt_tokens_details": {"cached_tokens": 60}}, "model": "m"}
    (run,), _ = read(results(simulation({"role": "assistant", "content": "a", "usage": own, "raw_data": raw})))
    assert run.turns[0].usage == Usage(input=40, cache_read=60, output=9)


def test_several_results_in_one_message() -> None:
    """A message that bundles results is read as its results."""
    bundle = {"role": "tool", "tool_messages": [{"id": "a", "content": "1"}, {"id": "b", "content": "2"}]}
    calls = {"role": "assistant", "tool_calls": [call(id="a"), call(id="b")]}
    (run,), problems = read(results(simulation(calls, bundle)))
    assert not problems
    assert [o.text for o in run.turns[0].observations] == ["1", "2"]


def test_a_submission_without_its_environment() -> None:
    """A submission to the leaderboard may leave out the environment; domain and model stand beside the simulations."""
    said = simulation({"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"})
    value = {"domain": "airline", "agent": "a", "model": "m", "total_tasks": 1, "simulations": [said]}
    document = Document("x.json", json.dumps(value).encode())
    assert Tau2Reader().sniff(document)
    (run,), problems = read(document)
    assert (run.id, run.model, problems) == ("airline task 13 trial 0", "m", [])


def test_broken_simulations_are_problems_and_the_rest_is_read() -> None:
    """A simulation without messages, a message that is none: a Problem each, with the simulation's number."""
    runs, problems = read(
        results(5, {"task_id": 1}, simulation({"role": "assistant", "content": "hi"}, "junk", {"role": 3}))
    )
    assert len(runs) == 1
    assert [problem.line for problem in problems] == [1, 2, 3, 3]


def test_what_is_no_results_file_raises() -> None:
    """Without simulations there is nothing to read, and the error says what is missing."""
    with pytest.raises(FormatError, match="simulations"):
        list(Tau2Reader().read(Document("x.json", b'{"info": {}}')))


def test_the_excerpt_of_the_corpus_is_read() -> None:
    """A recorded simulation in which the user has tools of its own."""
    (run,), problems = read(excerpt())
    assert Tau2Reader().sniff(excerpt())
    assert not problems
    assert run.tool_turns == 4
    assert all(turn.usage for turn in run.turns[1:])


@needs_corpus("recordings of tau2-bench")
@pytest.mark.parametrize(("domain", "count", "turns"), [("airline", 20, 26), ("telecom", 40, 99)])
def test_the_corpus_is_read_whole(domain: str, count: int, turns: int) -> None:
    """The tool turns of the largest run agree with the manifest, and nothing is lost."""
    path = CORPUS / "tau2-bench" / f"tau2-ft41-{domain}_.json.gz"
    runs, problems = read(Document(str(path), gzip.decompress(path.read_bytes())))
    assert (len(runs), max(run.tool_turns for run in runs), problems) == (count, turns, [])
