"""Folding at the gateway: agents by chance, streaming or not, over each API, whose results repeat lines."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from elision.providers.provider import Api
from tests.figures import ReportFigures
from tests.gateway.conversation_bytes import LIST_FIELDS, Json
from tests.gateway.random_agents import RandomAgent, RandomAgents
from tests.gateway.random_requests import KEY_SECRETS, RandomRequest, SeenRequest, TrialReport
from tests.properties.followed_references import REFERENCE, follow_reference
from tests.soak import SOAK

AGENTS, STEPS = 4, 16 if SOAK else 12


class RepeatingAgent(RandomAgent):
    """One whose tools return the same lines again and again."""

    def _make_result(self, id: str) -> Json:
        made = super()._make_result(id)
        field = "output" if self.api == "openai-responses" else "content"
        word = f"{KEY_SECRETS[self.key]} of {self.number}"
        first = self.chance.randrange(20)
        same = "\n".join(f"row {line}: {word} is {line * 7919}" for line in range(first, first + 30))
        return made | {field: f"{made[field]}\n{same}\nend {self.said}"}

    def fork_agent(self, number: int) -> RandomAgent:
        return RepeatingAgent(
            number, self.api, self.key, random.Random(number), [*self.history], [*self.hidden], self.said
        )


class RepeatingAgents(RandomAgents):
    """folded: results that were sent folded."""

    folded = 0
    streamed = 0

    def _make_agent(self, number: int) -> RandomAgent:
        plain = super()._make_agent(number)
        return RepeatingAgent(number, plain.api, plain.key, plain.chance, plain.history)

    def _find_misplaced(self, agent: RandomAgent, asked: RandomRequest, heard: SeenRequest) -> list[str]:
        found = super()._find_misplaced(agent, asked, heard)
        own = dict(list_results(agent.api, asked.body))
        for raw in heard.bodies:
            earlier: list[list[str]] = []
            for id, text in list_results(agent.api, raw):
                lines = text.split("\n")
                if any(map(REFERENCE.fullmatch, lines)):
                    self.folded += 1
                    self.streamed += b'"stream": true' in asked.body
                    if id not in own or not is_restored(lines, own[id].split("\n"), earlier):
                        found.append(f"{id} is {text!r} in place of {own.get(id)!r}")
                earlier.append(lines)
        return found


def list_results(api: Api, body: bytes) -> list[tuple[str, str]]:
    """Return call id and text of each result of `body`, in order."""
    messages = json.loads(body)[LIST_FIELDS[api]]
    if api == "openai":
        return [(each["tool_call_id"], each["content"]) for each in messages if each["role"] == "tool"]
    if api == "openai-responses":
        return [(each["call_id"], each["output"]) for each in messages if each.get("type") == "function_call_output"]
    blocks = [block for each in messages if isinstance(each["content"], list) for block in each["content"]]
    return [
        (block["tool_use_id"], block["content"] if isinstance(block["content"], str) else block["content"][0]["text"])
        for block in blocks
        if block["type"] == "tool_result"
    ]


def is_restored(lines: Sequence[str], own: Sequence[str], earlier: Sequence[Sequence[str]]) -> bool:
    """Whether `lines` are `own`, each reference in place of lines that an earlier result shows where it says."""
    place = 0
    for line in lines:
        found = REFERENCE.fullmatch(line)
        if found is None:
            count = 1
            matches = own[place : place + 1] == [line]
        else:
            count = int(found["end"]) - int(found["top"]) + 1
            wanted = list(own[place : place + count])
            matches = any(list(follow_reference(found, shown)) == wanted for shown in earlier)
        if not matches:
            return False
        place += count
    return place == len(own)


async def run_agents(seed: int, store: str, strategy: str) -> tuple[TrialReport, RepeatingAgents]:
    agents = RepeatingAgents(seed, agents=AGENTS, store=store, strategy=strategy, strict="hybrid" not in strategy)
    await agents.wander(STEPS // 2)
    agents.begin_again()
    return await agents.wander(STEPS // 2), agents


@pytest.mark.parametrize(
    "strategy",
    ["masking(window=3, fold=true, schedule=every-turn)", "hybrid(window=3, summarize_at=8, tail=4, fold=true)"],
)
def test_folded_results_can_be_read(strategy: str, tmp_path: Path, report_figures: ReportFigures) -> None:
    """Whatever the agents do, each folded result leads to lines that the same request shows."""
    report, agents = asyncio.run(run_agents(3, f"sqlite:///{tmp_path}/store.db", strategy))
    report_figures(f"folding at the gateway: {agents.folded} folded results, {agents.streamed} in streams: {report}")
    assert report.problems == []
    assert agents.folded > 30
    assert 0 < agents.streamed < agents.folded
