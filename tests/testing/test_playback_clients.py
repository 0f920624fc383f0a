"""The providers' own clients, unmodified, against the playback server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from elision.providers.provider import Api
from elision.testing.builders import step, trajectory, turn
from elision.testing.exchange import Broken, Cut, Refused
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.trajectory.trajectory import Trajectory
from tests.providers.streaming.provider_responses import ProviderClients

CALLS = 12
RUN = trajectory(
    turn(1, text="Let me look around first, then decide.", reasoning="The user wants the parser mended. " * 3),
    step(2),
    step(3),
    id="small",
)


def cut(run: Trajectory) -> Trajectory:
    """The first turns of a run, for tests that stream them one delta at a time."""
    return Trajectory(id=run.id, head=run.head, turns=run.turns[:CALLS], model=run.model)


@pytest.fixture
def server(runs: dict[str, Trajectory]) -> Iterator[Playback]:
    with Playback([cut(runs["openhands-pylint"]), RUN], Terms(key="any")) as playing:
        yield playing


@pytest.fixture
def openai_client(server: Playback) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(server: Playback) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_gemini(server: Playback, runs: dict[str, Trajectory], streamed: bool) -> None:
    """Google's client works through a recorded run; what it parsed is what was recorded."""
    follower = Follower(cut(runs["openhands-pylint"]), "gemini")
    options = types.HttpOptions(base_url=server.url)
    with genai.Client(api_key="any", http_options=options) as client:
        while not follower.done:
            request = follower.request
            config = types.GenerateContentConfig(system_instruction=request.get("systemInstruction"))
            parts = []
            asked: dict[str, Any] = {"model": "gemini-3-pro", "contents": request["contents"], "config": config}
            if streamed:
                for chunk in client.models.generate_content_stream(**asked):
                    piece = chunk.model_dump(mode="json", by_alias=True, exclude_none=True)
                    parts += piece["candidates"][0]["content"]["parts"]
                texts = "".join(part.get("text", "") for part in parts if not part.get("thought"))
                parts = [{"text": texts}] * bool(texts) + [part for part in parts if "text" not in part]
                answer: dict[str, Any] = {"candidates": [{"content": {"role": "model", "parts": parts}}]}
            else:
                whole = client.models.generate_content(**asked)
                answer = whole.model_dump(mode="json", by_alias=True, exclude_none=True)
            follower.take(answer)
        counted = client.models.count_tokens(model="gemini-3-pro", contents="Hi.")
    assert server.violations == []
    assert server.requests[-1].headers.get("x-goog-api-key") is None
    assert server.requests[-1].stream is streamed
    assert (counted.total_tokens or 0) > 1


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["openai", "openai-responses", "anthropic"])
def test_a_recorded_run(
    api: Api,
    streamed: bool,
    openai_client: openai.OpenAI,
    claude: anthropic.Anthropic,
    server: Playback,
    runs: dict[str, Trajectory],
) -> None:
    """The provider's client works through a run: what it parsed, or made of deltas, is what was recorded."""
    clients = ProviderClients(openai_client, claude)
    follower = Follower(cut(runs["openhands-pylint"]), api)
    caching = {"cache_control": {"type": "ephemeral"}} if api == "anthropic" else {}
    while not follower.done:
        answer = clients.ask(api, streamed=streamed, **follower.request, **caching)
        if api == "anthropic":
            kept = ("type", "text", "id", "name", "input")
            answer["content"] = [{name: block[name] for name in kept if name in block} for block in answer["content"]]
        follower.take(answer)
    assert server.violations == []
    usage = server.requests[-1].usage
    assert usage is not None
    assert usage.cache_read > 1_000


def test_thinking_is_streamed_and_signed(claude: anthropic.Anthropic) -> None:
    """Where a request thinks, the recorded reasoning comes as a thinking block with a signature; else it does not."""
    hi = {"model": "run:small", "max_tokens": 2_000, "messages": [{"role": "user", "content": "Mend the parser."}]}
    with claude.messages.stream(thinking={"type": "enabled", "budget_tokens": 1_024}, **hi) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_message()
    first = answer.content[0]
    assert first.type == "thinking"
    assert first.thinking == RUN.turns[0].reasoning
    assert first.signature
    assert {"thinking", "signature"} <= kinds
    assert [block.type for block in claude.messages.create(**hi).content] == ["text"]


def test_async_clients_at_once(server: Playback, runs: dict[str, Trajectory]) -> None:
    """Async clients of both kinds, ten at a time in one loop, are each told their run."""
    run = cut(runs["openhands-pylint"])

    async def chat(client: openai.AsyncOpenAI) -> int:
        follower = Follower(run, "openai")
        while not follower.done:
            answer = await client.chat.completions.create(model="gpt-5", **follower.request)
            follower.take(answer.model_dump(mode="json"))
        return follower.turn

    async def message(client: anthropic.AsyncAnthropic) -> int:
        request = Follower(run, "anthropic").request
        async with client.messages.stream(model="claude-sonnet-5", max_tokens=500, **request) as stream:
            return len([event async for event in stream])

    async def every() -> list[int]:
        ours = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
        theirs = anthropic.AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0)
        async with ours, theirs:
            return await asyncio.gather(*(chat(ours) for _ in range(3)), *(message(theirs) for _ in range(7)))

    turns = asyncio.run(every())
    assert turns[:3] == [CALLS + 1] * 3
    assert min(turns[3:]) > 3
    assert server.violations == []


def test_async_server(runs: dict[str, Trajectory]) -> None:
    """`async with` starts and stops the server beside the loop that uses it."""

    async def ask() -> str:
        async with Playback(RUN) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k") as client:
            answer = await client.chat.completions.create(
                model="run:small", messages=[{"role": "user", "content": "Mend the parser."}]
            )
            return answer.choices[0].message.content or ""

    assert asyncio.run(ask()) == RUN.turns[0].text


def test_clients_raise_their_own_errors(
    openai_client: openai.OpenAI, claude: anthropic.Anthropic, server: Playback
) -> None:
    """Status and words reach each client as the error that it has for them."""
    hi = {"model": "m", "messages": [{"role": "user", "content": "Mend the parser."}]}
    server.fail(Refused(status=429), Refused(status=529), Refused(status=500))
    with pytest.raises(openai.RateLimitError):
        openai_client.chat.completions.create(**hi)
    with pytest.raises(anthropic.InternalServerError) as overloaded:
        claude.messages.create(max_tokens=5, **hi)
    assert overloaded.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
    with pytest.raises(openai.InternalServerError):
        openai_client.responses.create(model="m", input="Hi")
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model="m", max_tokens=5, messages=[])


def test_clients_see_cut_and_broken_streams(claude: anthropic.Anthropic, server: Playback) -> None:
    """A stream that ends too early is an error for the client, and so is one that says so."""
    hi = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Mend the parser."}]}
    for fault in (Cut(after=3), Broken(after=3)):
        server.fail(fault)
        with (
            pytest.raises(Exception, match=r"(?i)peer closed|incomplete|overloaded"),
            claude.messages.stream(**hi) as stream,
        ):
            stream.until_done()


def test_a_client_that_retries_gets_through(server: Playback) -> None:
    """The client's own retries end when the scripted errors do, and the same turn answers."""
    server.fail(Refused(status=429, retry_after=0.01), Refused(status=500, retry_after=0.01))
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=2) as client:
        client.chat.completions.create(model="run:small", messages=[{"role": "user", "content": "Mend the parser."}])
    assert [(request.status, request.turn) for request in server.requests] == [(429, 0), (500, 0), (200, 1)]
