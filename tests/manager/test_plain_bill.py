"""`saved` against an independent bill: of the agent with Elision, and of the same agent without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from elision import Advanced
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.stores.memory import MemoryStore
from elision.telemetry.diagnostics import Costs
from tests.billed_provider import (
    MODELS,
    BilledProvider,
    Call,
    Json,
    Shape,
    begin_history,
    bill_plain_agent,
    make_answer,
    make_recall,
    make_request,
    make_results,
    make_step,
)
from tests.soak import pair_cases

SHAPES: Final[tuple[Shape, ...]] = ("openai", "anthropic")
STEPS: Final = 60


@dataclass(slots=True)
class Agent:
    """An agent that prepares its requests with the library, and a provider that bills them.

    recalls: steps before which it recalls, in a turn of its own. beside: steps whose calls are beside a recall.
    failing: steps whose request the provider fails once. losing: steps before which it loses its cache entries.
    offers:  whether the caller offers the recall tools itself.
    """

    shape: Shape
    recalls: Sequence[int] = ()
    beside: Sequence[int] = ()
    failing: Sequence[int] = ()
    losing: Sequence[int] = ()
    offers: bool = False
    provider: BilledProvider = field(init=False)
    raw_tokens: int = 0

    def run(self, steps: int = STEPS, strategy: str = "masking(window=6)") -> Costs:
        self.provider = BilledProvider(self.shape)
        options: Json = {"recall": "caller"} if self.offers else {}
        context = ContextManager(
            strategy,
            store=MemoryStore(),
            model=MODELS[self.shape],
            session="s",
            **gather_options({"advanced": Advanced(dialect=self.shape), **options}),
        )
        history = begin_history()
        for number in range(1, steps + 1):
            if number in self.losing:
                self.provider.lose_entries()
            if number in self.failing:
                self._prepare(context, history)
            if number in self.recalls:
                self._answer(context, history, [_recall(context, number)], "I need that once more.")
            calls = [make_step(number)]
            if number in self.beside:
                calls.append(_recall(context, number))
            self._answer(context, history, calls, f"step {number}")
        costs = context.keep(history)
        self.raw_tokens = context.session.report().savings.raw_tokens
        context.close()
        return costs

    def _answer(self, context: ContextManager, history: list[Json], calls: list[Call], text: str) -> None:
        body = self._prepare(context, history)
        answer = make_answer(self.shape, calls, text)
        context.record(self.provider.bill(body, answer))
        history += [answer, *make_results(self.shape, calls)]

    def _prepare(self, context: ContextManager, history: list[Json]) -> Json:
        own: list[Any] = context.tool_definitions() if self.offers else []
        body = make_request(self.shape, history, *own)
        given = {name: body[name] for name in ("system", "tools") if name in body}
        return {**body, **context.prepare(body["messages"], **given).request}


def _recall(context: ContextManager, number: int) -> Call:
    """A recall of the first result, which is long hidden by then."""
    result = context.handle_tool_call("elision_recall", {"handle": "t1.1"})
    assert result is not None
    return make_recall(number, "t1.1", result)


def check(costs: Costs, agent: Agent, plain: BilledProvider) -> None:
    """Both bills and the difference are those of the meters."""
    saved = plain.usd - agent.provider.usd
    assert abs(saved) > 0.05 * plain.usd
    assert costs.ours == pytest.approx(agent.provider.usd, rel=0.002)
    assert costs.raw == pytest.approx(plain.usd, rel=0.005)
    assert costs.saved == pytest.approx(saved, rel=0.01)
    assert agent.raw_tokens == pytest.approx(plain.prompts, rel=0.005)


#: What an agent does that the plain one does not, or that is in neither bill.
HABITS: dict[str, Json] = {
    "none": {},
    # The plain agent makes no such calls, and is never sent what they returned.
    "turns that only recall": {"recalls": range(30, STEPS, 6)},
    # The turn stays, without the call of the recall and without its result.
    "recalls beside other calls": {"beside": range(30, STEPS, 6)},
    # A request that is made again, since the provider failed, is billed once.
    "failed requests": {"failing": range(10, STEPS, 4)},
    # The definitions are there for Elision alone, whoever puts them in.
    "recall tools of the caller": {"offers": True},
}


@pytest.mark.parametrize(("habit", "shape"), pair_cases(HABITS, SHAPES))
def test_saved_is_what_the_plain_agent_pays_more(habit: str, shape: Shape) -> None:
    """Two agents do the same, one without Elision: what it is billed more is what Elision says it saved."""
    agent = Agent(shape, **HABITS[habit])
    check(agent.run(), agent, bill_plain_agent(shape, STEPS))


@pytest.mark.parametrize("shape", SHAPES)
def test_lost_cache_entries_are_lost_to_both(shape: Shape) -> None:
    """Where the provider drops its entries early, the plain agent pays for that as well, and its prompt is longer."""
    losing = (25, 45)
    agent = Agent(shape, losing=losing)
    costs = agent.run()
    plain = bill_plain_agent(shape, STEPS, losing=losing)
    assert costs.ours == pytest.approx(agent.provider.usd, rel=0.002)
    assert costs.raw == pytest.approx(plain.usd, rel=0.005)


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_hidden_is_nothing_saved(shape: Shape) -> None:
    """As long as the requests are the client's own, both bills are one, to the last digit."""
    agent = Agent(shape)
    costs = agent.run(strategy="masking(window=100, fold=false)")
    assert costs.saved == 0
    assert costs.ours == pytest.approx(agent.provider.usd)
