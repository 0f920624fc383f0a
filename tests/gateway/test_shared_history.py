"""What two agents with the same first words may read of each other: nothing, or what they share."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from elision.providers.provider import Api
from elision.testing import response_gemini
from elision.testing.exchange import ReplySpec
from elision.testing.recorded_run import RecordedReply
from elision.trajectory.usage import Usage
from tests.gateway.conversation_bytes import (
    APIS,
    LIST_FIELDS,
    MODELS,
    PATHS,
    Json,
    make_history,
    make_reply,
    make_result,
    make_tools,
    render_whole,
)
from tests.gateway.gateway_trial import JSON_HEADER, open_trial
from tests.gateway.loopback_gateway import HttpClient, HttpResponse
from tests.gateway.scripted_upstream import ReceivedRequest, ScriptedUpstream, answer_always, render_response
from tests.soak import pair_cases

ALL_APIS: tuple[Api, ...] = (*APIS, "gemini")
GEMINI_PATH = "/v1beta/models/gemini-2.5-pro:generateContent"
#: Stands in each line of what the other agent reads after the two have parted.
SECRET = "topsecret"
#: Steps after which they part, and that the first agent makes.
SHARED_STEPS, STEPS = 1, 6
#: Makes the header fields and the query of a key.
Place = Callable[[str], tuple[tuple[str, ...], str]]
PLACES: dict[str, Place] = {
    "authorization": lambda key: ((f"authorization: Bearer {key}",), ""),
    "x-goog-api-key": lambda key: ((f"x-goog-api-key: {key}",), ""),
    "key": lambda key: ((), f"?key={key}"),
    "access_token": lambda key: ((), f"?alt=json&access_token={key}"),
    "beside a common header": lambda key: (("x-goog-api-key: common",), f"?$key={key}"),
}


@dataclass(slots=True)
class Provider:
    """Answers as it is told to; a further answer ends the turn. plan: the calls of the next answers."""

    plan: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def answer(self, asked: ReceivedRequest) -> bytes:
        reply = make_reply(calls=[self.plan.pop(0)] if self.plan else ())
        return render_response(_render_reply(asked, reply), "200 OK", JSON_HEADER)


@dataclass(slots=True)
class Agent:
    """An agent that reads a file a step. word: in what it reads after its first steps."""

    api: Api
    fields: tuple[str, ...]
    query: str
    word: str
    client: HttpClient

    async def ask(self, steps: int) -> HttpResponse:
        path = GEMINI_PATH if self.api == "gemini" else PATHS[self.api]
        return await self.client.request(
            "POST", path + self.query, _make_body(self.api, steps, self.word), JSON_HEADER, *self.fields
        )

    async def work(self, first: int = 0) -> str:
        """Make all steps from `first` on, and return the name of the session."""
        for steps in range(first, STEPS + 1):
            response = await self.ask(steps)
            assert response.status == 200
        return response.headers["x-elision-session"]


def _make_body(api: Api, steps: int, word: str) -> bytes:
    if api == "gemini":
        parts = [{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": {"type": "object"}}]}]
        return json.dumps({"contents": _make_contents(steps, word), "tools": parts}).encode()
    shared = make_history(api, min(steps, SHARED_STEPS))
    history = [*shared, *make_history(api, steps, word=word)[len(shared) :]]
    body = {"model": MODELS[api], "max_tokens": 99, LIST_FIELDS[api]: history, "tools": make_tools(api)}
    return json.dumps(body).encode()


def _make_contents(steps: int, word: str) -> list[Json]:
    contents: list[Json] = [{"role": "user", "parts": [{"text": "Mend the parser."}]}]
    for step in range(1, steps + 1):
        result = make_result(step) if step <= SHARED_STEPS else make_result(step, word)
        call = {"name": "bash", "args": {"command": f"cat f{step}.py"}}
        contents += [
            {"role": "model", "parts": [{"functionCall": call}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {"output": result}}}]},
        ]
    return contents


def _render_reply(asked: ReceivedRequest, reply: RecordedReply) -> bytes:
    for api in APIS:
        if PATHS[api] in asked.line:
            return render_whole(api, reply)
    spec = ReplySpec(reply=reply, usage=Usage(input=1_000, output=20), model="gemini-2.5-pro", id="1")
    return json.dumps(response_gemini.build_body(spec)).encode()


async def _recall(agent: Agent, provider: Provider, upstream: ScriptedUpstream, name: str, **given: str) -> str:
    """Have the model call a recall tool; return the last message of the request that carries the answer."""
    provider.plan[:] = [("call_r", name, given)]
    before = len(upstream.requests)
    await agent.ask(STEPS)
    assert len(upstream.requests) == before + 2, "the gateway did not answer the recall"
    body = json.loads(upstream.requests[-1].body)
    return json.dumps(body[LIST_FIELDS.get(agent.api, "contents")][-1])


@pytest.mark.parametrize(("place", "api"), pair_cases(PLACES, ALL_APIS))
async def test_two_credentials_share_no_session_and_no_recall(
    place: str, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever the credential is: by handle, by the other's name and by content; and no log and no store has it."""
    caplog.set_level(logging.DEBUG)
    keys = ("opensesame-of-one", "opensesame-of-two")
    provider = Provider()

    async with open_trial(answer_always(provider.answer), gateway_log="json") as (gateway, upstream, client):
        one, two = (
            Agent(api, *PLACES[place](key), word, client) for key, word in zip(keys, (SECRET, "own"), strict=True)
        )
        theirs = await one.work()
        first = len(upstream.requests)
        assert (await two.work(SHARED_STEPS)).partition("~")[0] != theirs.partition("~")[0]
        for handle in ("t2.1", "t5.1", f"{theirs}:t1.1", f"{theirs}:t2.1", f"{theirs}:t5.1"):
            await _recall(two, provider, upstream, "elision_recall", handle=handle)
        found = await _recall(two, provider, upstream, "elision_search", query=SECRET)
        assert "not found" in found or "nothing" in found
        assert f": {SECRET} " not in b"".join(request.body for request in upstream.requests[first:]).decode()
        await gateway.wait_until_stored()
        infos = gateway.worker.store.sessions()
        stored = [json.dumps(str(event)) for info in infos for event in gateway.worker.store.events(info.key)]
        assert not any(key in text for key in keys for text in (*stored, *map(str, infos)))
    assert "opensesame" not in caplog.text


@pytest.mark.parametrize("api", ALL_APIS)
async def test_a_fork_recalls_what_it_shares_and_nothing_later(api: Api) -> None:
    """With one key: the part before the fork by handle and by the parent's name; nothing that the parent did later."""
    provider = Provider()

    async with open_trial(answer_always(provider.answer)) as (_, upstream, client):
        fields = ("authorization: Bearer one",)
        parent = await Agent(api, fields, "", SECRET, client).work()
        fork = Agent(api, fields, "", "own", client)
        first = len(upstream.requests)
        await fork.work(SHARED_STEPS)
        for handle in ("t1.1", f"{parent}:t1.1"):
            assert "line 3: value" in await _recall(fork, provider, upstream, "elision_recall", handle=handle)
        for handle in (f"{parent}:t2.1", f"{parent}:t5.1", f"{parent}:t3"):
            assert "[not found: " in await _recall(fork, provider, upstream, "elision_recall", handle=handle)
        await _recall(fork, provider, upstream, "elision_search", query=SECRET)
        assert f": {SECRET} " not in b"".join(request.body for request in upstream.requests[first:]).decode()


@pytest.mark.parametrize("place", ["x-goog-api-key", "key", "access_token"])
async def test_two_credentials_share_no_limit(place: str) -> None:
    """The first call of a key is not refused for what another one spent."""
    provider = Provider()

    async with open_trial(answer_always(provider.answer), gateway_key_max_turns=2) as (*_, client):
        one, two = (Agent("gemini", *PLACES[place](key), "own", client) for key in ("one", "two"))
        assert [(await one.ask(steps)).status for steps in range(3)] == [200, 200, 429]
        assert (await two.ask(0)).status == 200
