"""A closed loop: an agent works on a task under a strategy, and what it reads is what the strategy leaves it.

    outcome = run_task("database", seed=1, variant=Variant(strategy="masking"), prices=find_price_set("anthropic"))
    print(outcome.solved, outcome.usd)

Its model has a meter: each prompt is billed as a provider would, independently of Elision's own accounts.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from elision.agent.loop import run_agent
from elision.agent.model import Json, Model, ModelAnswer, ModelError, Prompt, RetryPolicy, Shape
from elision.errors import BudgetError, ElisionError, SettingError
from elision.manager.advanced_options import gather_options
from elision.manager.context import ContextManager
from elision.strategies.guards import Guards
from elision.strategies.spec import parse_strategy
from elision.summarizers.summary_checks import SummaryResult
from elision.testing.billing_simulator import BillingSimulator, PromptPrefix, hash_prefixes
from elision.testing.loop.scripted_agent import ScriptedAgent
from elision.testing.loop.task_plan import Knobs, draw_share
from elision.testing.loop.world import Skill, World
from elision.testing.loop.worlds.code_world import CodeWorld
from elision.testing.loop.worlds.database_world import DatabaseWorld
from elision.testing.loop.worlds.deps_world import DepsWorld
from elision.testing.loop.worlds.logs_world import LogsWorld
from elision.testing.loop.worlds.policy_world import PolicyWorld
from elision.testing.loop.worlds.research_world import ResearchWorld
from elision.testing.parsed_request import PromptBlock, split_into_blocks
from elision.testing.recorded_provider import RESPONSE_FORMATS
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import OURS, TOKENS_PER_CALL, TokenCounter, make_counter
from elision.trajectory.tool_definitions import reads_handles
from elision.trajectory.usage import Usage

FAMILIES: Final[Mapping[str, type[World]]] = MappingProxyType(
    {kind.name: kind for kind in (LogsWorld, CodeWorld, DatabaseWorld, DepsWorld, PolicyWorld, ResearchWorld)}
)
#: Options of a context manager that a variant may set, and how each is read.
_OPTIONS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "cache_ttl": str,
        "cache_control": str,
        "recall": str,
        "thinking": str,
        "token_budget": int,
        "summary_facts": float,
    }
)
#: A run ends at this multiple of the calls that its task takes.
MOST_CALLS: Final = 3


class EndpointError(ElisionError):
    """A model could not be asked, so a run has no outcome."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy, with options of the context manager. In text: `masking(fold=true) + cache_ttl=1h, recall=never`.

    The option `summary_facts` has summaries written by a model that is simulated, which keeps that share of facts.
    """

    strategy: str
    options: Mapping[str, str | int | float] = {}

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Raises SettingError for an option that no variant has, and SpecError for a strategy that does not exist."""
        strategy, _, rest = text.partition(" + ")
        parse_strategy(strategy)
        options: dict[str, str | int | float] = {}
        for pair in filter(None, map(str.strip, rest.split(","))):
            name, _, value = pair.partition("=")
            if name not in _OPTIONS:
                raise SettingError(f"a variant has no option {name!r}; there are: {', '.join(_OPTIONS)}")
            options[name] = _OPTIONS[name](value)
        return cls(strategy=strategy.strip(), options=options)

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.strategy} + {options}" if options else self.strategy


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One task under one variant.

    usd:      as billed by a simulated provider, or by the model's own reports.
    calls:    requests. recalls, rereads: results asked for again, and documents read again.
    wrong:    steps that were rejected, and those that went through with a wrong value.
    hidden, guesses, overlooked, confused: what happened to facts, by the scripted agent.
    peak:     tokens of the largest prompt. ending: why the run ended.
    """

    family: str
    seed: int
    variant: str
    prices: str
    solved: bool
    ending: str
    calls: int
    usd: float
    prompt_tokens: int
    peak: int
    recalls: int
    rereads: int
    wrong: int
    rewrites: int
    hidden: int = 0
    guesses: int = 0
    overlooked: int = 0
    confused: int = 0


def run_task(
    family: str,
    seed: int,
    variant: Variant,
    prices: Prices,
    knobs: Knobs | None = None,
    *,
    model: Model | None = None,
    payer: Payer | None = None,
) -> TaskOutcome:
    """Run one task to its end, and return how it went; with the scripted agent the same each time.

    model: takes the scripted agent's place. payer: pays for its calls, and may refuse to.
    Raises EndpointError where a real model cannot be asked, and what the payer raises.
    Raises SettingError for a family that does not exist, and what the strategy's text may raise.
    """
    if family not in FAMILIES:
        raise SettingError(f"there is no task family {family!r}; there are: {', '.join(FAMILIES)}")
    knobs = knobs or Knobs()
    # A list without a tokenizer: the simulated provider counts as Elision does.
    prices = prices if model else replace(prices, tokenizer=OURS)
    clock = SimulatedClock(seed=seed, pauses=knobs.pauses)
    with tempfile.TemporaryDirectory(prefix="elision-loop-") as folder:
        options: dict[str, Any] = {"guards": Guards(), "clock": clock, **variant.options}
        world = FAMILIES[family](seed, knobs, Path(folder))
        shape: Shape = model.shape if model else "anthropic" if prices.cache.kind == "breakpoints" else "openai"
        if model is not None:
            options["model"] = model.name
        share = options.pop("summary_facts", None)
        if parse_strategy(variant.strategy).make_trigger() is not None:
            options["summarizer"] = "digest" if share is None else SummarizingModel(world.skill, seed, share, prices)
        scripted = ScriptedAgent(world.skill, seed, knobs, shape)
        metered = MeteredModel(model or scripted, prices, make_counter(), clock, prices.window, payer)
        options = gather_options({**options, "dialect": shape})
        context = ContextManager(variant.strategy, store="memory:", prices=prices, **options)
        with context:
            ending = _run(metered, world, context, MOST_CALLS * knobs.calls, is_live=model is not None)
            summaries = context.session.report().summaries.usd
        if model is not None and metered.failure is not None:
            world.close()
            raise EndpointError(str(metered.failure))
        meter = metered.meter
        outcome = TaskOutcome(
            family=family,
            seed=seed,
            variant=str(variant),
            prices=prices.name,
            solved=world.is_solved,
            ending=ending,
            calls=meter.calls,
            usd=meter.usd + summaries,
            prompt_tokens=meter.prompt_tokens,
            peak=meter.peak,
            recalls=meter.recalls,
            rereads=world.rereads,
            wrong=world.rejected + (world.count_wrong_steps() if world.answer is not None else 0),
            rewrites=meter.rewrites,
            **{name: scripted.counts[name] for name in ("hidden", "guesses", "overlooked", "confused")},
        )
        world.close()
    return outcome


class _WithoutOffer:
    """A context whose recall tools are offered by its views, from the first placeholder on, and not from the start."""

    def __init__(self, context: ContextManager) -> None:
        self.prepare = context.prepare
        self.record = context.record
        self.overflowed = context.overflowed
        self.handle_tool_call = context.handle_tool_call
        self.keep = context.keep

    def tool_definitions(self, dialect: str) -> Sequence[Json]:
        return ()


def _run(model: MeteredModel, world: World, context: ContextManager, most_calls: int, *, is_live: bool) -> str:
    """Run the agent, and return why it ended."""
    retry = RetryPolicy() if is_live else RetryPolicy(tries=1)
    try:
        result = run_agent(
            model,
            world,
            world.task,
            _WithoutOffer(context),
            most_calls,
            system=world.system,
            retry=retry,
            watch=lambda step: model.pass_pause(),
        )
    except BudgetError as error:
        return f"budget: {error}"
    return f"{result.ending}: {result.why}"


#: Share of the facts of one summary that the next one keeps.
_KEPT_AGAIN = 0.97


class SummarizingModel:
    """Writes summaries of what it is given. share: of the facts in covered turns that it keeps."""

    def __init__(self, skill: Skill, seed: int, share: float, prices: Prices) -> None:
        self._skill = skill
        self._seed = seed
        self._share = share
        self._prices = prices

    def __call__(self, request: SummaryRequest) -> SummaryResult:
        results = "\n".join(result.text for turn in request.turns for result in turn.observations)
        shown = dict(self._skill.facts.findall(results))
        noted = dict(re.findall(r"(\S+) is `([^`]+)`", request.previous))
        kept = [
            f"{label} is `{shown.get(label, value)}`"
            for label, value in noted.items()
            if draw_share(self._seed, label, "again", len(request.previous)) < _KEPT_AGAIN
        ]
        kept += [
            f"{label} is `{value}`"
            for label, value in shown.items()
            if label not in noted and draw_share(self._seed, label, "summary") < self._share
        ]
        done = re.findall(r"step \d+ accepted", f"{request.previous}\n{results}")[-1:]
        pending = re.findall(r"step \d+: need [^\n\"]+", results)[-1:]
        text = (
            f"COMPLETED: {'; '.join(done) or 'nothing yet'}; all steps before it too.\n"
            f"PENDING: {'; '.join(pending) or 'the next step'}\nCURRENT_STATE: "
            f"{'; '.join(kept) or 'no values are known'}"
        )
        counter = make_counter()
        said = "\n".join(f"{turn.text}\n{''.join(each.arguments for each in turn.actions)}" for turn in request.turns)
        read = counter.count(f"{request.previous}\n{request.task}\n{said}\n") + counter.count(results)
        written = counter.count(text)
        usd = self._prices.cost_usage(Usage(input=read, output=written))
        return SummaryResult(text=text, input=read, output=written, usd=usd)


# -- a model with a meter ---------------------------------------------------------------------------------------------


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
