"""LiteLLM, unmodified, through a gateway: its three ways to OpenAI and Anthropic, plain, streamed and async."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from elision.providers.provider import Api
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from elision.trajectory.trajectory import Trajectory
from tests.clients.environments import LiteLLM
from tests.e2e.doors import EAGER, FOLDING, gateway, recorded
from tests.soak import sample_cases

Json = dict[str, Any]
RUN = recorded("openhands", 12)
#: Calls of one breath.
PI = recorded("pi", 12)
BASH = {
    "type": "function",
    "function": {"name": "bash", "description": "Run it.", "parameters": {"type": "object", "properties": {}}},
}
ITEM = {
    "type": "function",
    "name": "bash",
    "description": "Run it.",
    "parameters": {"type": "object", "properties": {}},
}
CLAUDE = {"name": "bash", "description": "Run it.", "input_schema": {"type": "object", "properties": {}}}

#: What is asked of LiteLLM -> (the shape of what goes in and out, function, model, its arguments).
WAYS: dict[str, tuple[Api, str, str, Json]] = {
    "openai": ("openai", "completion", "openai/gpt-5", {"tools": [BASH]}),
    "openai-stream": ("openai", "completion", "openai/gpt-5", {"tools": [BASH], "stream": True}),
    "openai-async": ("openai", "acompletion", "openai/gpt-5", {"stream": True}),
    "anthropic": ("openai", "completion", "anthropic/claude-sonnet-4-5", {"tools": [BASH], "max_tokens": 900}),
    "anthropic-stream": ("openai", "completion", "anthropic/claude-sonnet-4-5", {"tools": [BASH], "stream": True}),
    "anthropic-async": ("openai", "acompletion", "anthropic/claude-sonnet-4-5", {"tools": [BASH], "stream": True}),
    "responses": ("openai-responses", "responses", "openai/gpt-5", {"tools": [ITEM]}),
    "responses-stream": ("openai-responses", "responses", "openai/gpt-5", {"tools": [ITEM], "stream": True}),
    "messages": ("anthropic", "messages", "anthropic/claude-sonnet-4-5", {"tools": [CLAUDE], "max_tokens": 900}),
}


@pytest.fixture
def provider() -> Iterator[Playback]:
    with Playback([RUN, PI]) as playing:
        yield playing


def options(url: str, model: str) -> Json:
    """Where LiteLLM finds the gateway: OpenAI's base URL ends in /v1, Anthropic's does not."""
    return {"model": model, "api_base": url if model.startswith("anthropic") else f"{url}/v1", "api_key": "any"}


def worked_through(litellm: LiteLLM, url: str, way: str, run: Trajectory) -> None:
    """A whole run; what is no recorded answer is an error of the follower's."""
    api, do, model, more = WAYS[way]
    follower = Follower(run, api)
    while not follower.done:
        follower.take(litellm.do(do, **options(url, model), **more, **follower.request))


@pytest.mark.parametrize("way", sample_cases(WAYS, 4))
def test_a_run(litellm: LiteLLM, provider: Playback, way: str) -> None:
    """Every answer is the recorded one, every request upstream is sound, much is hidden, and it is one session."""
    with gateway(provider.url, strategy=FOLDING if way.endswith("stream") else EAGER) as door:
        worked_through(litellm, door.url, way, RUN)
        assert len(door.worker.gateway.sessions) == 1
    assert provider.violations == []
    assert [request.turn for request in provider.requests] == list(range(1, len(RUN.turns) + 1))
    assert b"elision_recall" in provider.requests[-1].raw


@pytest.mark.parametrize("way", sample_cases(["anthropic-stream", "openai-stream"], 2))
def test_parallel_tools(litellm: LiteLLM, provider: Playback, way: str) -> None:
    """Calls of one breath come as one, in streams too, and their results stay together."""
    assert max(len(turn.actions) for turn in PI.turns) > 1
    with gateway(provider.url) as door:
        worked_through(litellm, door.url, way, PI)
    assert provider.violations == []


def test_raw_is_nothing_at_all(litellm: LiteLLM, provider: Playback) -> None:
    """Where nothing is hidden the provider gets the bodies that it gets without a gateway."""
    short = recorded("openhands", 3)
    with gateway(provider.url, strategy="raw") as door:
        for url in (door.url, provider.url):
            for way in ("openai", "anthropic", "responses"):
                worked_through(litellm, url, way, short)
    # Its answers are numbered, and clients send the numbers back.
    bodies = [re.sub(rb"playback\d+", b"", request.raw) for request in provider.requests]
    assert len(bodies) == 18
    assert bodies[:9] == bodies[9:]


def test_agents_at_once(litellm: LiteLLM, provider: Playback) -> None:
    """Async agents that begin with the same words, at both providers, each in a session of its own."""
    models = ["openai/gpt-5"] * 3 + ["anthropic/claude-sonnet-4-5"]
    followers = [Follower(RUN, "openai") for _ in models]
    with gateway(provider.url) as door:
        while not followers[0].done:
            jobs = [
                {**options(door.url, model), "stream": place % 2 == 0, "tools": [BASH], **follower.request}
                for place, (model, follower) in enumerate(zip(models, followers, strict=True))
            ]
            for follower, answer in zip(followers, litellm.do("at_once", jobs=jobs), strict=True):
                follower.take(answer)
        assert len(door.worker.gateway.sessions) == len(models)
    assert provider.violations == []


def test_nothing_went_elsewhere(litellm: LiteLLM, provider: Playback) -> None:
    """Nobody beyond this machine was looked up or called."""
    with gateway(provider.url) as door:
        worked_through(litellm, door.url, "openai", recorded("openhands", 1))
    assert litellm.do("left") == []
