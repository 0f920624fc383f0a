"""A provider that knows only recorded runs: a request in, an answer out. No sockets; `playback.py` has those.

Every request is checked against the provider's types and rules, billed by a simulated prompt cache, and answered with
the recorded turn that follows its history.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

import msgspec

from elision.errors import PriceError
from elision.providers.provider import Api, Target
from elision.providers.shared.json_reading import Json, list_in, mapping_in, text_in
from elision.testing import (
    billing_simulator,
    response_anthropic,
    response_gemini,
    response_openai_chat,
    response_openai_responses,
)
from elision.testing.billing_simulator import BillingSimulator, hash_prefixes
from elision.testing.exchange import (
    CREDENTIALS,
    Fault,
    ProviderResponse,
    ReceivedRequest,
    Refusal,
    Refused,
    ReplySpec,
    refuse_long_prompt,
)
from elision.testing.parsed_request import ParsedRequest, PromptBlock, list_items, parse_request, split_into_blocks
from elision.testing.recorded_run import RUN_PREFIX, MatchedReply, RecordedReply, RunIndex
from elision.testing.request_checks import find_problems
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How the provider behaves.

    key:      the API key it wants; None takes any, and none.
    prices:   cache rules and write price of every model; None looks each model up, the run's own where a run is named.
    window:   tokens of every model's context window; None takes the prices', 0 is no limit.
    check:    whether types and rules are checked.
    usage:    "simulated" from the request; "recorded" where the recording holds one.
    played:   whether usage states that nobody was billed.
    bound_thinking: whether thinking is bound to the messages before it (Anthropic only).
    clock:    seconds since the epoch.
    """

    key: str | None = None
    prices: Prices | None = None
    window: int | None = None
    check: bool = True
    usage: Literal["simulated", "recorded"] = "simulated"
    bound_thinking: bool = False
    played: bool = False
    clock: Callable[[], float] = time.time


class ResponseFormat(Protocol):
    """How an API says an answer: whole, or event by event."""

    def build_body(self, spec: ReplySpec) -> dict[str, Any]: ...

    def build_events(self, spec: ReplySpec) -> Iterator[dict[str, Any]]: ...

    def dump_usage(self, usage: Usage) -> dict[str, Any]: ...


#: API -> how its responses are written: the APIs that are played.
RESPONSE_FORMATS: Final[Mapping[Api, ResponseFormat]] = {
    "openai": response_openai_chat,
    "openai-responses": response_openai_responses,
    "anthropic": response_anthropic,
    "gemini": response_gemini,
}


class RecordedProvider:
    """Answers requests out of recorded runs; one of them at a time."""

    def __init__(self, runs: Iterable[Trajectory], terms: Terms | None = None) -> None:
        self.runs = RunIndex(runs)
        self.terms = terms or Terms()
        self.requests: list[ReceivedRequest] = []
        self.faults: deque[Fault | None] = deque()
        #: Told of every request once it is decided how it is answered.
        self.on_request: Callable[[ReceivedRequest], None] = lambda received: None
        self._billing = BillingSimulator()
        self._counter = make_counter()
        self._prices: dict[tuple[Api, str], Prices] = {}
        #: Responses by id, as items: what `previous_response_id` continues.
        self._stored_items: dict[str, list[Json]] = {}

    def answer_request(
        self, api: Api, headers: Mapping[str, str], raw: bytes, target: Target | None = None
    ) -> tuple[ReceivedRequest, ProviderResponse]:
        """Answer one request for a completion, and record it in `requests`. target: what its path says of it."""
        received = self._parse_received(api, headers, raw)
        if target is not None:
            received.body = {**received.body, "model": target.model, "stream": target.stream}
        self.requests.append(received)
        if self.faults:
            received.fault = self.faults.popleft()
        else:
            received.fault = None
        outcome = self._decide_outcome(received, headers)
        if isinstance(outcome, Refusal):
            outcome = ProviderResponse(
                status=outcome.status, body=outcome.build_body(api, self._make_id()), headers=outcome.headers
            )
        received.status = outcome.status
        self.on_request(received)
        return received, outcome

    def count_tokens(self, headers: Mapping[str, str], raw: bytes, api: Api = "anthropic") -> ProviderResponse:
        """Answer a request to count tokens, of Anthropic or Gemini. Such requests are checked, and not recorded."""
        received = self._parse_received(api, headers, raw)
        body = {"max_tokens": 1, **received.body}
        refusal = self._check_key(headers) or self._check_request(replace(received, body=body))
        if refusal is not None:
            return ProviderResponse(status=refusal.status, body=refusal.build_body(api, self._make_id()))
        tokens = sum(block.tokens for block in split_into_blocks(api, body, self._counter))
        return ProviderResponse(body={"totalTokens" if api == "gemini" else "input_tokens": tokens})

    def list_models(self, *, anthropic: bool) -> Json:
        """Return the body of `/v1/models`, in either shape."""
        names = self.runs.names
        if anthropic:
            made = {"created_at": "2025-01-01T00:00:00Z", "type": "model"}
            data = [{**made, "id": name, "display_name": name.removeprefix(RUN_PREFIX)} for name in names]
            return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}
        return {
            "object": "list",
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "recording"} for name in names],
        }

    # -- from a request to its outcome ------------------------------------------------------------------------------

    def _parse_received(self, api: Api, headers: Mapping[str, str], raw: bytes) -> ReceivedRequest:
        body = parse_object(raw)
        problems = ("the body is no JSON object",) if body is None else ()
        kept = {name.lower(): value for name, value in headers.items() if name.lower() not in CREDENTIALS}
        key = _read_key(headers)
        return ReceivedRequest(
            api=api,
            raw=raw,
            body=body or {},
            headers=kept,
            key=hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8] if key else "",
            problems=problems,
        )

    def _decide_outcome(self, received: ReceivedRequest, headers: Mapping[str, str]) -> ProviderResponse | Refusal:
        fault = received.fault
        if isinstance(fault, Refused):
            return Refusal(status=fault.status, message=fault.message, retry_after=fault.retry_after)
        refusal = self._check_key(headers) or self._check_request(received)
        if refusal is not None:
            return refusal
        body = self._expand_previous(received.api, received.body)
        question = parse_request(received.api, body)
        found = self.runs.find_reply(question)
        if found is None:
            names = ", ".join(self.runs.names)
            if question.model.startswith(RUN_PREFIX) and question.model not in self.runs.names:
                return Refusal(status=404, message=f"model: {question.model}; there are: {names}")
            return Refusal(status=404, message=f"no recorded run fits this history; there are: {names}")
        received.run = found.recorded.run.id
        received.turn = found.reply.number
        received.stream = question.stream
        return self._respond(received, body, question, found)

    def _check_key(self, headers: Mapping[str, str]) -> Refusal | None:
        wrong = self.terms.key is not None and _read_key(headers) != self.terms.key
        if wrong:
            return Refusal(status=401)
        return None

    def _check_request(self, received: ReceivedRequest) -> Refusal | None:
        if not received.problems and self.terms.check:
            body = self._expand_previous(received.api, received.body)
            received.problems = tuple(find_problems(received.api, body))
        if not received.problems:
            return None
        return Refusal(status=400, message=received.problems[0])

    def _respond(
        self, received: ReceivedRequest, body: Json, request: ParsedRequest, matched: MatchedReply
    ) -> ProviderResponse | Refusal:
        """Answer with the recorded turn, and bill it."""
        api = received.api
        reply = matched.reply
        prices = self._find_prices(api, request.model, matched)
        prompt = [*split_into_blocks(api, body, self._counter)]
        if api == "anthropic" and "cache_control" in body and prompt:
            # Automatic caching: the marker is on the last block.
            ttl = text_in(mapping_in(body.get("cache_control")).get("ttl"))
            prompt[-1] = replace(prompt[-1], has_breakpoint=True, ttl=ttl)
        if self.terms.bound_thinking and api == "anthropic":
            unfit = billing_simulator.find_unfit(prompt)
        else:
            unfit = []
        if unfit and not billing_simulator.asks_to_drop(body):
            received.problems = tuple(map(billing_simulator.describe_refusal, unfit))
            return Refusal(status=400, message=received.problems[0])
        prompt = [block for block in prompt if block.place not in unfit]
        tokens = sum(block.tokens for block in prompt)
        if self.terms.window is None:
            window = prices.window
        else:
            window = self.terms.window
        if window and tokens > window:
            return refuse_long_prompt(api, tokens, window)
        received.usage = self._bill_request(received, request, reply, prompt, prices)
        return self._build_response(received, body, request, reply, prompt, unfit)

    def _bill_request(
        self,
        received: ReceivedRequest,
        request: ParsedRequest,
        reply: RecordedReply,
        prompt: Sequence[PromptBlock],
        prices: Prices,
    ) -> Usage:
        if reply.turn is not None:
            recorded = reply.turn.usage
        else:
            recorded = None
        if recorded is not None and recorded.output:
            output = recorded.output
        else:
            output = self._count_output(reply)
        owner = f"{received.key} {request.model}"
        usage = self._billing.bill_request(hash_prefixes(owner, prompt), prices, self.terms.clock(), output=output)
        if self.terms.usage == "recorded" and recorded is not None and recorded.prompt:
            return recorded
        return usage

    def _count_output(self, reply: RecordedReply) -> int:
        called = sum(self._counter.count(call.name) + self._counter.count(call.arguments) for call in reply.calls)
        return max(1, self._counter.count(reply.text) + self._counter.count(reply.reasoning) + called)

    def _find_prices(self, api: Api, model: str, matched: MatchedReply) -> Prices:
        """Return the model's own price list, or a typical one of the API for an unknown model."""
        if self.terms.prices is not None:
            return self.terms.prices
        if model.startswith(RUN_PREFIX):
            name = matched.recorded.run.model
        else:
            name = model
        if (api, name) not in self._prices:
            try:
                self._prices[api, name] = find_prices(name)
            except PriceError:
                self._prices[api, name] = find_price_set("anthropic" if api == "anthropic" else "openai")
        return self._prices[api, name]

    # -- the answer itself ------------------------------------------------------------------------------------------

    def _make_id(self) -> str:
        return f"playback{len(self.requests):08d}"

    def _build_response(
        self,
        received: ReceivedRequest,
        body: Json,
        request: ParsedRequest,
        reply: RecordedReply,
        prompt: Sequence[PromptBlock],
        unfit: list[str],
    ) -> ProviderResponse:
        id = self._make_id()
        if received.api == "anthropic" and not _has_thinking(body):
            reply = replace(reply, reasoning="")
        if received.api == "openai-responses":
            self._stored_items[f"resp_{id}"] = [*list_items(body), *response_openai_responses.build_items(reply, id)]
        spec = ReplySpec(
            reply=reply,
            usage=msgspec.structs.replace(received.usage or Usage(), played=self.terms.played),
            model=request.model,
            id=id,
            created=int(self.terms.clock()),
            tools=list_in(body.get("tools")),
            include_usage=mapping_in(body.get("stream_options")).get("include_usage") is True,
            signature=billing_simulator.seal_thinking(reply.reasoning, prompt) if reply.reasoning else "",
            dropped=[*map(billing_simulator.describe_drop, unfit)],
        )
        response_format = RESPONSE_FORMATS[received.api]
        if request.stream:
            return ProviderResponse(events=_frame_events(received.api, response_format.build_events(spec)))
        return ProviderResponse(body=response_format.build_body(spec))

    def _expand_previous(self, api: Api, body: Json) -> Json:
        """Put what `previous_response_id` stands for before the input of a Responses request."""
        before = self._stored_items.get(text_in(body.get("previous_response_id")))
        if api != "openai-responses" or before is None:
            return body
        return {**body, "input": [*before, *list_items(body)]}


def _read_key(headers: Mapping[str, str]) -> str:
    """Return the API key of a request, from whichever header has it; "" if none has."""
    found = {name.lower(): value for name, value in headers.items()}
    key = found.get("x-api-key") or found.get("x-goog-api-key")
    return key or found.get("authorization", "").removeprefix("Bearer ")


def _has_thinking(body: Json) -> bool:
    return mapping_in(body.get("thinking")).get("type") in ("enabled", "adaptive")


def _frame_events(api: Api, events: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (name, data) of every event. Chunks have no names; those of chat end with one that is no JSON."""
    for event in events:
        yield event.get("type", ""), json.dumps(event)
    if api == "openai":
        yield "", "[DONE]"
