"""A closed loop: an agent works on a task under a strategy, and what it reads is what the strategy leaves it.

outcome = run_task("database", seed=1, variant=Variant(strategy="masking"), prices=find_price_set("anthropic"))
print(outcome.solved, outcome.usd)
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from elision.agent.loop import run_agent
from elision.agent.model import Json, Model, RetryPolicy, Shape
from elision.errors import BudgetError, ElisionError, SettingError
from elision.manager.advanced_options import gather_options
from elision.manager.context import ContextManager
from elision.strategies.guards import Guards
from elision.strategies.spec import parse_strategy
from elision.summarizers.summary_checks import SummaryResult
from elision.testing.loop.metering import MeteredModel, Payer, SimulatedClock
from elision.testing.loop.scripted_agent import ScriptedAgent
from elision.testing.loop.task_plan import Knobs, draw_share
from elision.testing.loop.world import Skill, World
from elision.testing.loop.worlds.code_world import CodeWorld
from elision.testing.loop.worlds.database_world import DatabaseWorld
from elision.testing.loop.worlds.deps_world import DepsWorld
from elision.testing.loop.worlds.logs_world import LogsWorld
from elision.testing.loop.worlds.policy_world import PolicyWorld
from elision.testing.loop.worlds.research_world import ResearchWorld
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import OURS, make_counter
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
