"""OpenAI's own client, unmodified, through a gateway: chat and Responses, plain, streamed and async."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from elision.providers.provider import Api
from elision.testing.exchange import Refused
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from tests.e2e.doors import EAGER, FOLDING, Wire, gateway, recorded
from tests.soak import pair_cases

Json = dict[str, Any]
Ask = Callable[[openai.OpenAI, Json], Json]
#: A provider that checks every request against its own types; Responses' are checked slowly.
RUN = recorded("openhands")
PI = recorded("pi", 12)
PIXEL = "data:image/png;base64," + (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}


@pytest.fixture
def provider() -> Iterator[Playback]:
    with Playback([RUN, PI], Terms(key="any")) as playing:
        yield playing


@pytest.fixture
def wire() -> Wire:
    return Wire()


# -- ways to ask ------------------------------------------------------------------------------------------------------


def chat(client: openai.OpenAI, request: Json) -> Json:
    return client.chat.completions.create(model="gpt-5", tools=[BASH], **request).model_dump(mode="json")


def chat_helper(client: openai.OpenAI, request: Json) -> Json:
    options = {"include_usage": True}
    with client.chat.completions.stream(model="gpt-5", stream_options=options, **request) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()
    assert "chunk" in kinds
    assert answer.usage is not None
    return answer.model_dump(mode="json")


def chat_chunks(client: openai.OpenAI, request: Json) -> Json:
    """The raw stream, put together by hand as programs do."""
    text, calls = "", list[Json]()
    for chunk in client.chat.completions.create(model="gpt-5", stream=True, **request):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                if call.id:
                    assert call.function is not None
                    named = {"name": call.function.name, "arguments": ""}
                    calls.append({"id": call.id, "type": "function", "function": named})
                calls[call.index]["function"]["arguments"] += (call.function and call.function.arguments) or ""
    message: Json = {"role": "assistant", "content": text or None}
    return {"choices": [{"message": {**message, "tool_calls": calls} if calls else message}]}


def responses(client: openai.OpenAI, request: Json) -> Json:
    return client.responses.create(model="gpt-5", tools=[LOOK], **request).model_dump(mode="json", exclude_none=True)


def responses_helper(client: openai.OpenAI, request: Json) -> Json:
    with client.responses.stream(model="gpt-5", **request) as stream:
        numbers = [event.sequence_number for event in stream]
        answer = stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    return answer.model_dump(mode="json", exclude_none=True)


def responses_events(client: openai.OpenAI, request: Json) -> Json:
    events = list(client.responses.create(model="gpt-5", stream=True, store=False, **request))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    return events[-1].response.model_dump(mode="json", exclude_none=True)


WAYS: dict[str, tuple[Api, Ask]] = {
    "chat": ("openai", chat),
    "chat-helper": ("openai", chat_helper),
    "chat-chunks": ("openai", chat_chunks),
    "responses": ("openai-responses", responses),
    "responses-helper": ("openai-responses", responses_helper),
    "responses-events": ("openai-responses", responses_events),
}


def worked_through(client: openai.OpenAI, way: str, run: Any) -> None:
    """A whole run; what is no recorded answer is an error of the follower's."""
    api, ask = WAYS[way]
    follower = Follower(run, api)
    while not follower.done:
        follower.take(ask(client, follower.request))


# -- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "strategy"), pair_cases(WAYS, [EAGER, FOLDING]))
def test_a_run(provider: Playback, wire: Wire, way: str, strategy: str) -> None:
    """Every answer is the recorded one, every request that is made of the client's is sound, and it is one session."""
    with gateway(provider.url, strategy=strategy) as door, wire.openai(door.url) as client:
        worked_through(client, way, RUN)
    assert provider.violations == []
    assert len(set(wire.sessions)) == 1
    assert wire.sessions[0]
    sizes = [len(request.raw) for request in provider.requests]
    assert sizes[-1] < len(wire.bodies[-1])
    assert b"elision_recall" in provider.requests[-1].raw


@pytest.mark.parametrize("way", ["chat", "responses-helper"])
def test_parallel_tools(provider: Playback, wire: Wire, way: str) -> None:
    """Calls of one breath and their results stay together, whatever of them is hidden."""
    assert max(len(turn.actions) for turn in PI.turns) > 1
    with gateway(provider.url) as door, wire.openai(door.url) as client:
        worked_through(client, way, PI)
    assert provider.violations == []


@pytest.mark.parametrize("way", WAYS)
def test_raw_is_the_client_s_very_bytes(provider: Playback, wire: Wire, way: str) -> None:
    """Where nothing is hidden the provider gets what the client wrote, byte for byte."""
    with gateway(provider.url, strategy="raw") as door, wire.openai(door.url) as client:
        worked_through(client, way, recorded("openhands", 6))
    assert [request.raw for request in provider.requests] == wire.bodies


@pytest.mark.parametrize("off", ["header", "setting"])
def test_off_is_off(provider: Playback, wire: Wire, off: str) -> None:
    """The switch of one request and that of the whole gateway: nothing changes, and no session is named."""
    headers = {"x-elision": "off"} if off == "header" else {}
    with (
        gateway(provider.url, gateway_off=off == "setting") as door,
        wire.openai(door.url, default_headers=headers) as client,
    ):
        worked_through(client, "chat", RUN)
    assert [request.raw for request in provider.requests] == wire.bodies
    assert set(wire.sessions) == {None}
    assert not any("x-elision" in request.headers for request in provider.requests)


def test_async_clients_at_once(provider: Playback, wire: Wire) -> None:
    """Async clients of one run, one API after the other in each, several at a time: no request is another's."""

    async def work(client: openai.AsyncOpenAI, api: Api) -> None:
        follower = Follower(RUN, api)
        while not follower.done:
            if api == "openai":
                async with client.chat.completions.stream(model="gpt-5", **follower.request) as stream:
                    chatted = await stream.get_final_completion()
                follower.take(chatted.model_dump(mode="json"))
            else:
                answer = await client.responses.create(model="gpt-5", **follower.request)
                follower.take(answer.model_dump(mode="json", exclude_none=True))

    async def every(url: str) -> None:
        async with wire.async_openai(url) as client:
            await asyncio.gather(*(work(client, "openai") for _ in range(3)), work(client, "openai-responses"))

    with gateway(provider.url) as door:
        asyncio.run(every(door.url))
    assert provider.violations == []
    assert len(set(wire.sessions)) == 4


# -- what else a client does ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["raw", EAGER])
def test_images(provider: Playback, wire: Wire, strategy: str) -> None:
    """Pictures, as data and by address, reach the provider as they were sent."""
    task = next(message.text for message in RUN.head.messages if message.role == "user")
    parts = [
        {"type": "text", "text": task},
        {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
    ]
    inputs = [
        {"type": "input_text", "text": task},
        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
    ]
    with gateway(provider.url, strategy=strategy) as door, wire.openai(door.url) as client:
        worked_through_with(client, chat, "openai", parts, "messages")
        worked_through_with(client, responses, "openai-responses", inputs, "input")
    assert provider.violations == []
    for request in provider.requests:
        assert PIXEL.encode() in request.raw
        assert b"https://example.org/a.png" in request.raw
    if strategy == "raw":
        assert [request.raw for request in provider.requests] == wire.bodies


def worked_through_with(client: openai.OpenAI, ask: Ask, api: Api, parts: list[Json], name: str) -> None:
    """The beginning of the run, with a task of several parts."""
    follower = Follower(recorded("openhands", 5), api)
    while not follower.done:
        request = follower.request
        task = next(each for each in request[name] if each.get("role") == "user")
        request[name][request[name].index(task)] = {**task, "content": parts}
        follower.take(ask(client, request))


def test_models_and_other_routes(provider: Playback, wire: Wire) -> None:
    """What is none of ours passes: lists by either prefix, and the provider's 404 for what it does not have."""
    with gateway(provider.url) as door, wire.openai(door.url) as client:
        assert [model.id for model in client.models.list()] == provider.provider.runs.names
        with openai.OpenAI(base_url=f"{door.url}/openai/v1", api_key="any", max_retries=0) as other:
            assert [model.id for model in other.models.list()] == provider.provider.runs.names
            worked_through(other, "chat", recorded("openhands", 4))
        with openai.OpenAI(base_url=f"{door.url}/openai", api_key="any", max_retries=0) as bare:
            worked_through(bare, "responses", recorded("openhands", 2))
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="m", input="a word")
    assert provider.violations == []


def test_compressed_requests(provider: Playback, wire: Wire) -> None:
    """A body that comes compressed is read, and what is made of it goes out in the plain."""
    follower = Follower(RUN, "openai")
    with gateway(provider.url) as door, wire.openai(door.url) as client:
        while not follower.done:
            body = gzip.compress(json.dumps({"model": "gpt-5", **follower.request}).encode())
            answer = client._client.post(
                f"{door.url}/v1/chat/completions",
                content=body,
                headers={
                    "content-encoding": "gzip",
                    "content-type": "application/json",
                    "authorization": "Bearer any",
                },
            )
            if b"elision_recall" not in provider.requests[-1].raw:
                # Nothing was hidden: compressed as it came, which this provider does not read.
                assert answer.status_code == 400
                assert provider.requests[-1].raw == body
                plain = chat(client, follower.request)
                follower.take(plain)
                continue
            follower.take(answer.json())
            assert "content-encoding" not in provider.requests[-1].headers
    assert b"elision_recall" in provider.requests[-1].raw


def test_errors_are_the_client_s_own(provider: Playback, wire: Wire) -> None:
    """Every refusal is raised as the class that the client has for it, with the provider's words."""
    hi: Json = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi"}]}
    with gateway(provider.url) as door, wire.openai(door.url) as client:
        for status, kind in ((429, openai.RateLimitError), (500, openai.InternalServerError)):
            provider.fail(Refused(status=status, message="words of the provider", retry_after=7))
            with pytest.raises(kind, match="words of the provider") as refused:
                client.chat.completions.create(**hi)
            assert refused.value.response.headers["retry-after"] == "7"
        with pytest.raises(openai.NotFoundError, match="there are"):
            client.responses.create(model="run:none", input="Hi")
        with pytest.raises(openai.BadRequestError, match="messages"):
            client.chat.completions.create(model="gpt-5", messages="none")  # type: ignore[arg-type]
        with wire.openai(door.url, key="wrong") as other, pytest.raises(openai.AuthenticationError):
            other.chat.completions.create(**hi)


def test_headers_of_the_answer(provider: Playback, wire: Wire) -> None:
    """The raw response has the provider's headers and the session's name; its body is parsed by the client."""
    with gateway(provider.url) as door, wire.openai(door.url) as client:
        raw = client.chat.completions.with_raw_response.create(model="gpt-5", **Follower(RUN, "openai").request)
        assert raw.headers["x-elision-session"]
        assert raw.headers["content-type"] == "application/json"
        assert raw.parse().choices[0].message.role == "assistant"
        with client.chat.completions.with_streaming_response.create(
            model="gpt-5", stream=True, **Follower(RUN, "openai").request
        ) as stream:
            assert stream.headers["x-elision-session"]
            assert "data: [DONE]" in list(stream.iter_lines())
