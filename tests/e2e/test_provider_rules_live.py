"""What a provider takes and refuses, on its way through a gateway: breakpoints, clearing, windows, refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anthropic
import openai
import pytest

from elision.providers.anthropic.breakpoints import MAX_BREAKPOINTS, find_breakpoints, has_automatic_breakpoint
from elision.providers.provider import Api
from elision.testing.builders import long_text, step, trajectory
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from tests.e2e.agents import APIS, Agent
from tests.e2e.doors import EAGER, Wire, gateway, recorded
from tests.e2e.scripted_model import Asked, ResponsePart, bash, model, text
from tests.soak import pair_cases

Json = dict[str, Any]
MARK: Any = {"type": "ephemeral"}
RUN = recorded("openhands")


def bare(request: Json, name: str) -> int:
    return json.dumps(request).count(name)


@pytest.mark.parametrize("own", [0, 1, 2, 4])
def test_breakpoints_are_four_and_the_client_s_own_stay(own: int) -> None:
    """Ours fill what the client left of the four, behind the first gap; its own stay where they are."""
    follower = Follower(RUN, "anthropic")
    wire = Wire()
    with Playback(RUN) as provider, gateway(provider.url) as door, wire.claude(door.url) as client:
        while not follower.done:
            request: Any = {"model": "claude-sonnet-5", "max_tokens": 500, **follower.request}
            request["system"] = [{"type": "text", "text": request["system"]}]
            if own:
                request["system"][0]["cache_control"] = MARK
            _mark(request["messages"], own - 1)
            answer = client.messages.create(**request)
            fields = {"content": {"__all__": {"type", "text", "id", "name", "input"}}}
            follower.take(answer.model_dump(mode="json", include=fields))
    assert provider.violations == []
    for request, raw in zip(provider.requests, wire.bodies, strict=True):
        mine = find_breakpoints(json.loads(raw))
        marks = [mark.path for mark in find_breakpoints(request.body)]
        assert len(marks) <= MAX_BREAKPOINTS
        assert {mark.path for mark in mine} <= set(marks)
    assert len(find_breakpoints(provider.requests[-1].body)) > min(own, 3)
    # Breakpoints that move along with the newest message are no change of the history.
    assert len(set(wire.sessions)) == 1
    hidden = [request.raw.count(b"tokens hidden") for request in provider.requests]
    assert hidden == sorted(hidden)


def _mark(messages: list[Any], count: int) -> None:
    """Breakpoints on the newest messages of the user, as agents move them."""
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    for place in users[-count:] if count > 0 else ():
        content = messages[place]["content"]
        messages[place] = {**messages[place], "content": [*content[:-1], {**content[-1], "cache_control": MARK}]}


def test_automatic_caching_counts_as_one() -> None:
    """A request that is cached as a whole keeps its field, and has three more breakpoints at most."""
    follower = Follower(RUN, "anthropic")
    with Playback(RUN) as provider, gateway(provider.url) as door, Wire().claude(door.url) as client:
        while not follower.done:
            answer = client.messages.create(
                model="claude-sonnet-5",
                max_tokens=500,
                cache_control=MARK,
                **follower.request,  # type: ignore[arg-type]
            )
            fields = {"content": {"__all__": {"type", "text", "id", "name", "input"}}}
            follower.take(answer.model_dump(mode="json", include=fields))
    assert provider.violations == []
    for request in provider.requests:
        assert request.body["cache_control"] == MARK
        assert len(find_breakpoints(request.body)) + has_automatic_breakpoint(request.body) <= MAX_BREAKPOINTS


def test_clearing_by_the_server_joins_what_the_client_asks() -> None:
    """Behind bound thinking our edit stands behind the client's own, and our beta beside its."""
    edits: Any = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    betas = ["interleaved-thinking-2025-05-14", "context-management-2025-06-27"]
    run = trajectory(*(step(n, reasoning=f"I think of {n}.") for n in range(1, 7)), id="bound")
    follower = Follower(run, "anthropic")
    fields = {"content": {"__all__": {"type", "text", "id", "name", "input", "thinking", "signature"}}}
    terms = Terms(bound_thinking=True, check=False)
    with Playback(run, terms) as provider, gateway(provider.url) as door, Wire().claude(door.url) as client:
        while not follower.done:
            request: Any = follower.request
            answer = client.beta.messages.create(
                model="claude-opus-5-5",
                max_tokens=5_000,
                thinking={"type": "adaptive"},
                context_management=edits,
                betas=betas[:1] if follower.turn < 5 else betas,
                **request,
            )
            follower.take(answer.model_dump(mode="json", include=fields))
    assert {request.status for request in provider.requests} == {200}
    assert [request.body["context_management"] for request in provider.requests[:3]] == [edits] * 3
    for request in provider.requests[3:]:
        told = request.body["context_management"]["edits"]
        assert told[:1] == edits["edits"]
        assert told[1]["type"] == "clear_tool_uses_20250919"
        assert sorted(request.headers["anthropic-beta"].replace(" ", "").split(",")) == sorted(betas)


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "streamed"), pair_cases(APIS, [False, True]))
def test_a_prompt_that_was_too_long_is_sent_shorter_once(api: Api, streamed: bool) -> None:
    """The window that the refusal names is kept to from then on; the client only sees the good answer."""
    window, bytes_a_token = 3_000, 3 if streamed else 4

    def tokens(asked: Asked) -> int:
        return len(asked.raw) // bytes_a_token

    def line(asked: Asked) -> Sequence[ResponsePart] | tuple[int, Json]:
        if tokens(asked) > window:
            told = f"prompt is too long: {tokens(asked)} tokens > {window} maximum"
            if api != "anthropic":
                told = (
                    f"This model's maximum context length is {window} tokens. However, your messages resulted in "
                    f"{tokens(asked)} tokens. Please reduce the length of the messages."
                )
            error = {"type": "invalid_request_error", "message": told, "code": "context_length_exceeded"}
            return 400, {"type": "error", "error": error, "request_id": "r"}
        return [text("On.", str(len(upstream.asked))), bash(len(upstream.asked) + 1)]

    with model(line) as upstream, gateway(upstream.url, strategy="masking(window=30)") as door:
        upstream.tokens = tokens
        client: Any = Wire().claude(door.url) if api == "anthropic" else Wire().openai(door.url)
        with client:
            agent = Agent(api=api, client=client, streamed=streamed)
            agent.run(20)
    assert upstream.problems == []
    assert len([asked for asked in upstream.asked if tokens(asked) > window]) == 1
    assert len(upstream.asked) == 21
    assert len(agent.answers) == 20


@pytest.mark.parametrize("streamed", [False, True])
def test_a_first_prompt_that_was_too_long(streamed: bool) -> None:
    """A long history that is new to the gateway, which the provider counts as far more: it is cut as well."""
    agent = Agent(api="anthropic", client=None, streamed=streamed)

    def line(asked: Asked) -> Sequence[ResponsePart] | tuple[int, Json]:
        # Twice as many as they are by our count.
        tokens = len(asked.raw) // 2
        if tokens > 8_000:
            told = {"type": "invalid_request_error", "message": f"prompt is too long: {tokens} tokens > 8000 maximum"}
            return 400, {"type": "error", "error": told}
        return [bash(len(upstream.asked))]

    with model(line) as upstream:
        agent.client = Wire().claude(upstream.url)
        agent.run(12)
        agent.client.close()
        before = len(upstream.asked)
        with gateway(upstream.url, strategy="masking(window=30)") as door, Wire().claude(door.url) as agent.client:
            agent.say(long_text(99, 200))
            agent.run(1)
    assert upstream.problems == []
    assert len(upstream.asked) == before + 2


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "hidden"), pair_cases(APIS, [False, True]))
def test_what_the_client_was_refused_for_it_hears_word_for_word(api: Api, hidden: bool) -> None:
    """A request that is refused as it came as well is the client's to mend, and it is told what the provider said."""
    error: Json = {"type": "invalid_request_error", "message": "temperature: no such thing", "code": None}
    body: Json = {"type": "error", "error": error, "request_id": "req_1"}

    def line(asked: Asked) -> Sequence[ResponsePart] | tuple[int, Json]:
        if "temperature" in asked.body:
            return 400, body
        return [text("On.", str(len(upstream.asked))), bash(len(upstream.asked) + 1)]

    with model(line) as upstream, gateway(upstream.url, strategy=EAGER) as door:
        client: Any = Wire().claude(door.url) if api == "anthropic" else Wire().openai(door.url)
        kind = anthropic.BadRequestError if api == "anthropic" else openai.BadRequestError
        with client:
            agent = Agent(api=api, client=client, streamed=False)
            agent.run(6 if hidden else 1)
            agent.more = {"extra_body": {"temperature": 0.5}}
            with pytest.raises(kind, match="temperature: no such thing") as refused:
                agent.step()
            assert refused.value.response.json() == body
            agent.more = {}
            agent.run(2)
    assert bool(upstream.asked[-1].handles) is hidden or not hidden
    assert upstream.problems == []
