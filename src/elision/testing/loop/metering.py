"""A model with a meter: each prompt is billed as a provider would, independently of Elision's own accounts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from elision.agent.model import Json, Model, ModelAnswer, ModelError, Prompt
from elision.testing.billing_simulator import BillingSimulator, PromptPrefix, hash_prefixes
from elision.testing.loop.task_plan import draw_share
from elision.testing.parsed_request import PromptBlock, split_into_blocks
from elision.testing.recorded_provider import RESPONSE_FORMATS
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import TOKENS_PER_CALL, TokenCounter
from elision.trajectory.tool_definitions import reads_handles
from elision.trajectory.usage import Usage

#: Seconds that an answer and the tools behind it take.
ANSWER_SECONDS: Final = 8.0
#: Seconds of the shortest and of the longest pause; short ones are more frequent.
PAUSE_SECONDS: Final = (330.0, 4_000.0)


@dataclass(slots=True)
class SimulatedClock:
    """Seconds, which pass with each call, and in pauses. pauses: share of calls before which the user pauses."""

    seed: int = 0
    pauses: float = 0.0
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def draw_pause(self, call: int) -> float:
        """Return the seconds that the user pauses before a call."""
        if draw_share(self.seed, "pause", call) >= self.pauses:
            return 0.0
        shortest, longest = PAUSE_SECONDS
        return shortest + (longest - shortest) * draw_share(self.seed, "long", call) ** 2


@dataclass(slots=True)
class Meter:
    """What a run used. peak: tokens of its largest prompt. rewrites: prompts that did not begin with the one before."""

    usd: float = 0.0
    calls: int = 0
    prompt_tokens: int = 0
    peak: int = 0
    recalls: int = 0
    rewrites: int = 0


class Payer(Protocol):
    """Who pays for the calls of a real model."""

    def check_next(self, usd: float) -> None:
        """Raise an error where a call of `usd` must not be made."""

    def add_call(self, usd: float) -> None: ...


class MeteredModel:
    """Passes prompts on to a model, and bills them.

    A model that reports its usage is billed by that; any other as the simulated provider counts it. A prompt beyond
    `window` tokens is refused, as providers do.
    """

    def __init__(
        self,
        model: Model,
        prices: Prices,
        counter: TokenCounter,
        clock: SimulatedClock,
        window: int | None = None,
        payer: Payer | None = None,
    ) -> None:
        self.shape = model.shape
        self.name = model.name
        self.meter = Meter()
        self._model = model
        self._prices = prices
        self._counter = counter
        self._clock = clock
        self._window = window
        self._payer = payer
        #: The error after which the model was not asked again, if it was none of the prompt's size.
        self.failure: ModelError | None = None
        self._provider = BillingSimulator()
        self._prefixes: Sequence[PromptPrefix] = ()
        self._known: dict[int, tuple[Json, tuple[PromptBlock, ...]]] = {}

    def answer(self, prompt: Prompt) -> ModelAnswer:
        prefixes = hash_prefixes(self.name, list(self._split(prompt)))
        tokens = prefixes[-1].tokens
        if self._window is not None and tokens > self._window:
            raise ModelError(
                f"prompt is too long: {tokens} tokens > {self._window} maximum",
                sent_tokens=tokens,
                room_tokens=self._window,
            )
        if self._payer is not None:
            self._payer.check_next(self._prices.cost_prompt(tokens, 0))
        self.failure = None
        try:
            answer = self._model.answer(prompt)
        except ModelError as error:
            self.failure = error if error.room_tokens is None else None
            raise
        usage = answer.usage
        if usage is None:
            output = self._counter.count(answer.text) + sum(
                TOKENS_PER_CALL + self._counter.count(call.name) + self._counter.count(call.arguments)
                for call in answer.calls
            )
            usage = self._provider.bill_request(prefixes, self._prices, self._clock.now, output=output)
            answer = replace(answer, usage=usage, reported=RESPONSE_FORMATS[self.shape].dump_usage(usage))
        self._add(answer, usage, prefixes)
        if self._payer is not None:
            self._payer.add_call(self._prices.cost_usage(usage))
        self._clock.now += ANSWER_SECONDS
        return answer

    def pass_pause(self) -> None:
        """Let the user pause."""
        self._clock.now += self._clock.draw_pause(self.meter.calls)

    def _add(self, answer: ModelAnswer, usage: Usage, prefixes: Sequence[PromptPrefix]) -> None:
        before, self._prefixes = self._prefixes, prefixes
        is_longer = len(prefixes) >= len(before) and (not before or prefixes[len(before) - 1].key == before[-1].key)
        meter = self.meter
        meter.usd += self._prices.cost_usage(usage)
        meter.calls += 1
        meter.prompt_tokens += usage.prompt
        meter.peak = max(meter.peak, usage.prompt)
        meter.recalls += sum(reads_handles(call.name) for call in answer.calls)
        meter.rewrites += not is_longer

    def _split(self, prompt: Prompt) -> Iterator[PromptBlock]:
        head = {"tools": list(prompt.tools), "system": prompt.system, "messages": []}
        yield from split_into_blocks(self.shape, head, self._counter)
        for message in prompt.messages:
            known = self._known.get(id(message))
            if known is None or known[0] is not message:
                # The message is kept, so that no other gets its id.
                # Each prompt is hashed whole: the hash of a long text does as well as the text.
                blocks = tuple(
                    replace(block, text=hashlib.blake2b(block.text.encode("utf-8", "surrogatepass")).hexdigest())
                    for block in split_into_blocks(self.shape, {"messages": [message]}, self._counter)
                )
                known = self._known[id(message)] = (message, blocks)
            yield from known[1]
