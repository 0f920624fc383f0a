"""A provider that only knows recorded runs: a request in, an answer out. No sockets; `playback.py` brings those.

Every request is held against the provider's types and rules, metered by a prompt cache, and answered with the recorded
turn that belongs behind its history.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from elision.dialects import Json, mapping_in, text_in
from elision.errors import PriceError
from elision.testing import answer_anthropic, answer_openai_chat, answer_openai_responses, thinking
from elision.testing.checks import problems
from elision.testing.exchange import CREDENTIALS, Answer, Received
from elision.testing.faults import Fault, Refused
from elision.testing.meter import Meter, places
from elision.testing.recorded import Reply
from elision.testing.refusal import Refusal, too_long
from elision.testing.request import Api, Asked, Block, asked, blocks, items_of
from elision.testing.shelf import RUN, Found, Shelf
from elision.testing.told import Told
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How the provider behaves.

    key:      the API key it wants; None takes any, and none.
    prices:   cache rules and write price of every model; None looks each model up, the run's own where a run is named.
    window:   tokens of every model's context window; None takes the prices', 0 is no limit.
    check:    whether types and rules are checked.
    usage:    "simulated" from the request as it came; "recorded" where the recording holds one.
    bound_thinking: whether thinking is bound to what stands in front of it (Anthropic only).
    clock:    seconds since the epoch.
    """

    key: str | None = None
    prices: Prices | None = None
    window: int | None = None
    check: bool = True
    usage: Literal["simulated", "recorded"] = "simulated"
    bound_thinking: bool = False
    clock: Callable[[], float] = time.time


class Voice(Protocol):
    """How an API says an answer: whole, or event by event."""

    def whole(self, told: Told) -> dict[str, Any]: ...

    def events(self, told: Told) -> Iterator[dict[str, Any]]: ...


_VOICES: Final[Mapping[Api, Voice]] = {
    "openai": answer_openai_chat,
    "openai-responses": answer_openai_responses,
    "anthropic": answer_anthropic,
}


class Provider:
    """Answers requests out of recorded runs; one of them at a time."""

    def __init__(self, runs: Iterable[Trajectory], terms: Terms | None = None) -> None:
        self.shelf = Shelf(runs)
        self.terms = terms or Terms()
        self.requests: list[Received] = []
        self.faults: deque[Fault | None] = deque()
        #: Told of every request once it is decided how it is answered.
        self.watch: Callable[[Received], None] = lambda received: None
        self._meter = Meter()
        self._counter = counter()
        self._prices: dict[tuple[Api, str], Prices] = {}
        #: Responses by id, as items: what `previous_response_id` goes on from.
        self._stored: dict[str, list[Json]] = {}

    def answer(self, api: Api, headers: Mapping[str, str], raw: bytes) -> tuple[Received, Answer]:
        """The answer to one request for a completion, which is recorded in `requests`."""
        received = self._received(api, headers, raw)
        self.requests.append(received)
        if self.faults:
            received.fault = self.faults.popleft()
        else:
            received.fault = None
        outcome = self._outcome(received, headers)
        if isinstance(outcome, Refusal):
            outcome = Answer(status=outcome.status, body=outcome.body(api, self._id()), headers=outcome.headers)
        received.status = outcome.status
        self.watch(received)
        return received, outcome

    def count(self, headers: Mapping[str, str], raw: bytes) -> Answer:
        """The answer of `/v1/messages/count_tokens`; such requests are checked, and not recorded."""
        received = self._received("anthropic", headers, raw)
        body = {"max_tokens": 1, **received.body}
        refusal = self._unwelcome(headers) or self._unsound(replace(received, body=body))
        if refusal is not None:
            return Answer(status=refusal.status, body=refusal.body("anthropic", self._id()))
        return Answer(body={"input_tokens": sum(block.tokens for block in blocks("anthropic", body, self._counter))})

    def models(self, *, anthropic: bool) -> Json:
        """The answer of `/v1/models`, in either shape."""
        names = self.shelf.names
        if anthropic:
            made = {"created_at": "2025-01-01T00:00:00Z", "type": "model"}
            data = [{**made, "id": name, "display_name": name.removeprefix(RUN)} for name in names]
            return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}
        return {
            "object": "list",
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "recording"} for name in names],
        }

    # -- from a request to its outcome ------------------------------------------------------------------------------

    def _received(self, api: Api, headers: Mapping[str, str], raw: bytes) -> Received:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        kept = {name.lower(): value for name, value in headers.items() if name.lower() not in CREDENTIALS}
        sound = isinstance(body, dict)
        return Received(
            api=api,
            raw=raw,
            body=body if isinstance(body, dict) else {},
            headers=kept,
            key=_hashed(_key(headers)),
            problems=() if sound else ("the body is no JSON object",),
        )

    def _outcome(self, received: Received, headers: Mapping[str, str]) -> Answer | Refusal:
        fault = received.fault
        if isinstance(fault, Refused):
            return Refusal(status=fault.status, message=fault.message, retry_after=fault.retry_after)
        refusal = self._unwelcome(headers) or self._unsound(received)
        if refusal is not None:
            return refusal
        body = self._continued(received.api, received.body)
        question = asked(received.api, body)
        found = self.shelf.find(question)
        if found is None:
            return self._unknown(question)
        received.run = found.recorded.run.id
        received.turn = found.reply.number
        received.stream = question.stream
        return self._said(received, body, question, found)

    def _unwelcome(self, headers: Mapping[str, str]) -> Refusal | None:
        wrong = self.terms.key is not None and _key(headers) != self.terms.key
        if wrong:
            return Refusal(status=401)
        return None

    def _unsound(self, received: Received) -> Refusal | None:
        if not received.problems and self.terms.check:
            body = self._continued(received.api, received.body)
            received.problems = tuple(problems(received.api, body))
        if not received.problems:
            return None
        return Refusal(status=400, message=received.problems[0])

    def _unknown(self, question: Asked) -> Refusal:
        names = ", ".join(self.shelf.names)
        if question.model.startswith(RUN) and question.model not in self.shelf.names:
            return Refusal(status=404, message=f"model: {question.model}; there are: {names}")
        return Refusal(status=404, message=f"no recorded run fits this history; there are: {names}")

    def _said(self, received: Received, body: Json, question: Asked, found: Found) -> Answer | Refusal:
        """The recorded answer, metered."""
        api = received.api
        reply = found.reply
        prices = self._priced(api, question.model, found)
        prompt = [*blocks(api, body, self._counter)]
        if api == "anthropic" and "cache_control" in body and prompt:
            # Automatic caching: the marker stands on the last block.
            prompt[-1] = replace(prompt[-1], mark=True)
        if self.terms.bound_thinking and api == "anthropic":
            unfit = thinking.unfit(prompt)
        else:
            unfit = []
        if unfit and not thinking.drops(body):
            received.problems = tuple(map(thinking.refused, unfit))
            return Refusal(status=400, message=received.problems[0])
        prompt = [block for block in prompt if block.place not in unfit]
        tokens = sum(block.tokens for block in prompt)
        if self.terms.window is None:
            window = prices.window
        else:
            window = self.terms.window
        if window and tokens > window:
            return too_long(api, tokens, window)
        received.usage = self._metered(received, question, reply, prompt, prices)
        return self._told(received, body, question, reply, prompt, unfit)

    def _metered(
        self, received: Received, question: Asked, reply: Reply, prompt: Sequence[Block], prices: Prices
    ) -> Usage:
        if reply.turn is not None:
            recorded = reply.turn.usage
        else:
            recorded = None
        if recorded is not None and recorded.output:
            output = recorded.output
        else:
            output = self._output(reply)
        owner = f"{received.key} {question.model}"
        usage = self._meter.read(places(owner, prompt), prices, self.terms.clock(), output=output)
        if self.terms.usage == "recorded" and recorded is not None and recorded.prompt:
            return recorded
        return usage

    def _output(self, reply: Reply) -> int:
        called = sum(self._counter.count(call.name) + self._counter.count(call.arguments) for call in reply.calls)
        return max(1, self._counter.count(reply.text) + self._counter.count(reply.reasoning) + called)

    def _priced(self, api: Api, model: str, found: Found) -> Prices:
        """The model's own price list; a typical one of the API where the model is not known."""
        if self.terms.prices is not None:
            return self.terms.prices
        if model.startswith(RUN):
            name = found.recorded.run.model
        else:
            name = model
        if (api, name) not in self._prices:
            try:
                self._prices[api, name] = find_prices(name)
            except PriceError:
                self._prices[api, name] = find_price_set("anthropic" if api == "anthropic" else "openai")
        return self._prices[api, name]

    # -- the answer itself ------------------------------------------------------------------------------------------

    def _id(self) -> str:
        return f"playback{len(self.requests):08d}"

    def _told(
        self, received: Received, body: Json, question: Asked, reply: Reply, prompt: Sequence[Block], unfit: list[str]
    ) -> Answer:
        id = self._id()
        if received.api == "anthropic" and not _thinks(body):
            reply = replace(reply, reasoning="")
        if received.api == "openai-responses":
            self._stored[f"resp_{id}"] = [*items_of(body), *answer_openai_responses.items(reply, id)]
        tools = body.get("tools")
        told = Told(
            reply=reply,
            usage=received.usage or Usage(),
            model=question.model,
            id=id,
            created=int(self.terms.clock()),
            tools=tools if isinstance(tools, list) else (),
            include_usage=mapping_in(body.get("stream_options")).get("include_usage") is True,
            signature=thinking.sealed(reply.reasoning, prompt) if reply.reasoning else "",
            dropped=[*map(thinking.dropped, unfit)],
        )
        voice = _VOICES[received.api]
        if question.stream:
            return Answer(events=_framed(received.api, voice.events(told)))
        return Answer(body=voice.whole(told))

    def _continued(self, api: Api, body: Json) -> Json:
        """A Responses request with what its `previous_response_id` stands for in front of its input."""
        before = self._stored.get(text_in(body.get("previous_response_id")))
        if api != "openai-responses" or before is None:
            return body
        return {**body, "input": [*before, *items_of(body)]}


def _key(headers: Mapping[str, str]) -> str:
    """The API key that a request carries, however it does; "" if it carries none."""
    found = {name.lower(): value for name, value in headers.items()}
    return found.get("x-api-key") or found.get("authorization", "").removeprefix("Bearer ")


def _hashed(key: str) -> str:
    if key:
        return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return ""


def _thinks(body: Json) -> bool:
    return mapping_in(body.get("thinking")).get("type") in ("enabled", "adaptive")


def _framed(api: Api, events: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """(name, data) of every event; chat chunks have no names, and a last one that is no JSON."""
    for event in events:
        yield ("" if api == "openai" else event["type"]), json.dumps(event)
    if api == "openai":
        yield "", "[DONE]"
