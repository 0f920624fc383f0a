"""Anthropic's own client, unmodified, through a gateway: plain, streamed and async, with tools, images and thinking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

from elision.testing.builders import call, long_text, result, trajectory, turn
from elision.testing.exchange import Broken, Refused
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from tests.e2e.doors import EAGER, FOLDING, Wire, gateway, recorded
from tests.soak import pair_cases

Json = dict[str, Any]
Ask = Callable[..., Json]
RUN = recorded("openhands")
PI = recorded("pi", 14)
#: Thinks at every step, and makes two calls at every third.
THINKER = trajectory(
    *(
        turn(
            index,
            *[
                (call(id=f"c{index}_{one}", step=index), result(long_text(index, 30), id=f"c{index}_{one}"))
                for one in range(1 + (index % 3 == 0))
            ],
            reasoning=f"I think about step {index}. " * 4,
            text=f"Step {index}.",
        )
        for index in range(1, 11)
    ),
    id="thinker",
    task="Think about the parser, then mend it.",
)
#: Thinks at every step, and sees the same text again at every third.
REREADER = trajectory(
    *(
        turn(
            index,
            (call(id=f"r{index}", step=index), result(long_text(max(1, index - index % 3), 30), id=f"r{index}")),
            reasoning=f"I look again at step {index}. " * 4,
            text=f"Look {index}.",
        )
        for index in range(1, 13)
    ),
    id="rereader",
    task="Read the parser until it is clear.",
)
BASH: Any = {"name": "bash", "input_schema": {"type": "object", "properties": {}}}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
#: Thinks, and does not mind what stands in front of its thinking; and one that does.
FREE, BOUND = "claude-sonnet-5", "claude-opus-5-5"
THINKING: Any = {"type": "adaptive"}
SENT_BACK = {"content": {"__all__": {"type", "text", "id", "name", "input", "thinking", "signature"}}}


@pytest.fixture
def provider() -> Iterator[Playback]:
    with Playback([RUN, PI, THINKER, REREADER], Terms(key="any", bound_thinking=True)) as playing:
        yield playing


@pytest.fixture
def wire() -> Wire:
    return Wire()


# -- ways to ask ------------------------------------------------------------------------------------------------------


def plain(client: anthropic.Anthropic, **request: Any) -> Json:
    return client.messages.create(**request).model_dump(mode="json", include=SENT_BACK)


def helper(client: anthropic.Anthropic, **request: Any) -> Json:
    with client.messages.stream(**request) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_message()
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert answer.usage.output_tokens
    return answer.model_dump(mode="json", include=SENT_BACK)


def events(client: anthropic.Anthropic, **request: Any) -> Json:
    """The raw stream, of which only the order is looked at."""
    kinds = [event.type for event in client.messages.create(stream=True, **request)]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    return plain(client, **request)


WAYS: dict[str, Ask] = {"plain": plain, "helper": helper, "events": events}


def worked_through(client: anthropic.Anthropic, way: str, run: Any, **more: Any) -> None:
    follower = Follower(run, "anthropic")
    while not follower.done:
        request = {"model": FREE, "max_tokens": 5_000, **more, **follower.request}
        follower.take(WAYS[way](client, **request))


# -- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "strategy"), pair_cases(["plain", "helper"], [EAGER, FOLDING]))
def test_a_run(provider: Playback, wire: Wire, way: str, strategy: str) -> None:
    """Every answer is the recorded one, every request that is made of the client's is sound, and it is one session."""
    with gateway(provider.url, strategy=strategy) as door, wire.claude(door.url) as client:
        worked_through(client, way, RUN, tools=[BASH])
    assert provider.violations == []
    assert len(set(wire.sessions)) == 1
    assert wire.sessions[0]
    assert len(provider.requests[-1].raw) < len(wire.bodies[-1])
    assert b"elision_recall" in provider.requests[-1].raw


@pytest.mark.parametrize(("way", "thinking"), pair_cases(WAYS, [None, THINKING]))
def test_nothing_hidden_is_the_client_s_very_bytes(provider: Playback, wire: Wire, way: str, thinking: Any) -> None:
    """Where nothing is hidden the provider gets what the client wrote, byte for byte, and gets nothing marked."""
    more = {} if thinking is None else {"thinking": thinking}
    with gateway(provider.url, strategy="raw") as door, wire.claude(door.url) as client:
        worked_through(client, way, THINKER, **more)
    assert [request.raw for request in provider.requests] == wire.bodies


def test_until_something_is_hidden_the_bytes_are_the_client_s(provider: Playback, wire: Wire) -> None:
    """With a strategy that hides nothing yet it is the same; breakpoints come with the first gap."""
    later = "masking(window=6, schedule=every-turn)"
    with gateway(provider.url, strategy=later) as door, wire.claude(door.url) as client:
        worked_through(client, "plain", RUN)
    same = [request.raw == body for request, body in zip(provider.requests, wire.bodies, strict=True)]
    assert same[:7] == [True] * 7
    first = same.index(False)
    assert not any(same[first:])
    assert b"cache_control" not in b"".join(request.raw for request in provider.requests[:first])
    assert b"cache_control" in provider.requests[-1].raw


@pytest.mark.parametrize(("way", "strategy"), pair_cases(["helper", "plain"], [EAGER, FOLDING]))
def test_thinking_that_is_bound_to_nothing(wire: Wire, way: str, strategy: str) -> None:
    """Signed thinking and parallel calls survive beside what is hidden, at a model that does not mind."""
    with (
        Playback([THINKER]) as provider,
        gateway(provider.url, strategy=strategy) as door,
        wire.claude(door.url) as client,
    ):
        worked_through(client, way, THINKER, thinking=THINKING)
    assert provider.violations == []
    assert b'"signature"' in provider.requests[-1].raw
    assert len(provider.requests[-1].raw) < len(wire.bodies[-1])


@pytest.mark.parametrize("way", ["plain", "helper"])
def test_thinking_that_is_bound(provider: Playback, wire: Wire, way: str) -> None:
    """Behind a model that checks what stands in front of its thinking, no message is touched: the server clears."""
    with gateway(provider.url) as door, wire.claude(door.url) as client:
        worked_through(client, way, THINKER, model=BOUND, thinking=THINKING)
    assert provider.violations == []
    last = provider.requests[-1]
    assert last.body["context_management"]["edits"][-1]["type"] == "clear_tool_uses_20250919"
    assert "context-management-2025-06-27" in last.headers["anthropic-beta"]
    assert all(request.body["messages"] for request in provider.requests)
    assert {request.status for request in provider.requests} == {200}


@pytest.mark.parametrize(
    ("way", "strategy"), pair_cases(["plain", "helper"], ["raw(fold=true)", EAGER.replace(")", ", fold=true)")])
)
def test_thinking_that_is_bound_beside_folded_results(provider: Playback, wire: Wire, way: str, strategy: str) -> None:
    """Repeated lines are folded as they arrive, and every later request has them in the same bytes."""
    with gateway(provider.url, strategy=strategy) as door, wire.claude(door.url) as client:
        worked_through(client, way, REREADER, model=BOUND, thinking=THINKING)
    assert provider.violations == []
    assert {request.status for request in provider.requests} == {200}
    sent: list[Any] = []
    for request in provider.requests:
        results = [message for message in request.body["messages"] if message["role"] == "user"][1:]
        assert results[: len(sent)] == sent
        sent = results
    assert sum("[same as " in str(each) for each in sent) >= 4
    assert any("context_management" in request.body for request in provider.requests) == (strategy != "raw(fold=true)")


def test_async_clients_at_once(provider: Playback, wire: Wire) -> None:
    """Async clients that begin with the same words, several at a time, plain and streamed: each is told its run."""

    async def work(client: anthropic.AsyncAnthropic, *, streamed: bool) -> None:
        follower = Follower(RUN, "anthropic")
        while not follower.done:
            request: Any = {"model": FREE, "max_tokens": 5_000, **follower.request}
            if streamed:
                async with client.messages.stream(**request) as stream:
                    answer: Any = await stream.get_final_message()
            else:
                answer = await client.messages.create(**request)
            follower.take(answer.model_dump(mode="json", include=SENT_BACK))

    async def every(url: str) -> None:
        async with wire.async_claude(url) as client:
            await asyncio.gather(*(work(client, streamed=bool(number % 2)) for number in range(4)))

    with gateway(provider.url) as door:
        asyncio.run(every(door.url))
    assert provider.violations == []
    assert len(set(wire.sessions)) == 4


# -- what else a client does ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["raw", EAGER])
def test_images(provider: Playback, wire: Wire, strategy: str) -> None:
    """Pictures, as data and by address, beside the task and in results, reach the provider as they were sent."""
    task = next(message.text for message in RUN.head.messages if message.role == "user")
    by_data = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    by_address = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    follower = Follower(recorded("openhands", 5), "anthropic")
    with gateway(provider.url, strategy=strategy) as door, wire.claude(door.url) as client:
        while not follower.done:
            messages: Any = follower.request["messages"]
            messages[0] = {"role": "user", "content": [{"type": "text", "text": task}, by_data, by_address]}
            if len(messages) > 2:
                first = messages[2]["content"][0]
                shown = [{"type": "text", "text": first["content"]}, by_data]
                messages[2] = {"role": "user", "content": [{**first, "content": shown}, *messages[2]["content"][1:]]}
            request: Any = {**follower.request, "messages": messages}
            follower.take(plain(client, model=FREE, max_tokens=500, **request))
    assert provider.violations == []
    assert all(PIXEL.encode() in request.raw for request in provider.requests)
    assert all(b"https://example.org/a.png" in request.raw for request in provider.requests)
    if strategy == "raw":
        assert [request.raw for request in provider.requests] == wire.bodies


def test_counting_models_and_prefixes(provider: Playback, wire: Wire) -> None:
    """Tokens are counted and models listed by the provider, by either address; other routes are its to refuse."""
    request: Any = Follower(RUN, "anthropic").request
    with gateway(provider.url) as door, wire.claude(door.url) as client:
        counted = client.messages.count_tokens(model=FREE, **request).input_tokens
        assert counted > 100
        assert [model.id for model in client.models.list()] == provider.provider.runs.names
        with wire.claude(f"{door.url}/anthropic") as other:
            assert other.messages.count_tokens(model=FREE, **request).input_tokens == counted
            assert [model.id for model in other.models.list()] == provider.provider.runs.names
            worked_through(other, "helper", recorded("openhands", 4))
        with pytest.raises(anthropic.NotFoundError):
            client.messages.batches.retrieve("none")
    assert provider.violations == []


def test_errors_are_the_client_s_own(provider: Playback, wire: Wire) -> None:
    """Every refusal is raised as the class that the client has for it, with the provider's words."""
    hi: Any = {"model": FREE, "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    with gateway(provider.url) as door, wire.claude(door.url) as client:
        for status, kind in (
            (429, anthropic.RateLimitError),
            (529, anthropic.InternalServerError),
            (401, anthropic.AuthenticationError),
        ):
            provider.fail(Refused(status=status, message="words of the provider", retry_after=7))
            with pytest.raises(kind, match="words of the provider") as refused:
                client.messages.create(**hi)
            assert refused.value.response.headers["retry-after"] == "7"
        with pytest.raises(anthropic.BadRequestError, match="messages"):
            client.messages.create(model=FREE, max_tokens=5, messages=[])
        provider.fail(Broken(after=3, message="words of the provider"))
        request: Any = Follower(RUN, "anthropic").request
        with (
            pytest.raises(anthropic.APIStatusError, match="words of the provider"),
            client.messages.stream(model=FREE, max_tokens=500, **request) as stream,
        ):
            stream.until_done()


def test_headers_of_the_answer(provider: Playback, wire: Wire) -> None:
    """The raw response has the provider's headers and the session's name; its body is parsed by the client."""
    request: Any = {"model": FREE, "max_tokens": 500, **Follower(RUN, "anthropic").request}
    with gateway(provider.url) as door, wire.claude(door.url) as client:
        raw = client.messages.with_raw_response.create(**request)
        assert raw.headers["x-elision-session"]
        assert raw.parse().role == "assistant"
        with client.messages.stream(**request) as stream:
            assert stream.response.headers["x-elision-session"]
            assert stream.response.headers["content-type"].startswith("text/event-stream")
            assert stream.get_final_text()
