"""When a strategy is to be expected to act: the live engine over a typical coding session, at given prices.

The session's sizes are medians of 30 recorded coding runs of 20 turns or more (SWE-agent, mini-swe-agent, OpenHands,
Claude Code, pi, trae-agent; counted as o200k). Its median length is 88 calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Final

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.strategies.policy import PolicyOptions
from elision.strategies.schedules import EveryTurnSchedule
from elision.strategies.selectors import Selector, SummaryTrigger
from elision.strategies.strategy import Masking, Strategy
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Action, Head, Message, Observation, Text, Turn

#: Tokens of system prompt, tools and task; of a turn's results; of a turn's text and calls.
HEAD_TOKENS: Final = 2_060
RESULT_TOKENS: Final = 370
SPOKEN_TOKENS: Final = 170
#: Of a placeholder's account of what happened; its gist takes half of its budget on average.
ACCOUNT_TOKENS: Final = 32
#: As the estimating counter has it.
CHARS_PER_TOKEN: Final = 4
#: A line of the summaries that are written here has so many, by our count.
SUMMARY_LINE_TOKENS: Final = 16
#: Calls that are looked at.
CALLS: Final = 150
#: Calls of the median run.
MEDIAN_CALLS: Final = 88


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is to be expected within `CALLS` calls.

    first_placeholder, first_summary: calls whose request has the first one; None for none. largest_tokens: of any
    request of the first `MEDIAN_CALLS` calls. raw_tokens: of the last of them, had nothing been hidden.
    """

    first_placeholder: int | None
    first_summary: int | None
    largest_tokens: int
    raw_tokens: int


def forecast_session(strategy: Strategy, prices: Prices) -> Forecast:
    """Run `strategy` over the typical session. Raises BudgetError where its head and newest turn do not fit."""
    shared = {option.name: getattr(strategy, option.name) for option in fields(Strategy)}
    if not strategy.placeholder:
        # One text for all placeholders, as long as they are on average: nobody reads them here.
        shared |= {"gist": 0, "placeholder": _fill("hidden ", ACCOUNT_TOKENS + strategy.gist // 2)}
    estimated = _EstimatedStrategy(of=strategy, **shared)
    session = Log.fold((), LogSetup(estimated, prices, Sizer(make_counter("estimate"))))
    task = Message(role="user", content=(Text("Find out why the tests fail, and mend it."),))
    session.set_head(Head(messages=(task,), hidden_tokens=HEAD_TOKENS - CHARS_PER_TOKEN * 3))
    first_placeholder = first_summary = None
    largest = raw = 0
    for number in range(1, CALLS + 1):
        view = run_pass(decide(session, make_plain_terms()), _write_summary)
        newest = session.newest_call
        assert newest is not None
        if first_placeholder is None and newest.decided.masks:
            first_placeholder = number
        if newest.decided.summary is not None and first_summary is None:
            first_summary = number
        if number <= MEDIAN_CALLS:
            largest = max(largest, view.tokens)
            raw = newest.raw_view.tokens
        elif first_placeholder and (first_summary or strategy.make_trigger() is None):
            break
        session.add_turn(_build_turn(number))
    return Forecast(
        first_placeholder=first_placeholder, first_summary=first_summary, largest_tokens=largest, raw_tokens=raw
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EstimatedStrategy(Strategy):
    """`of`, with placeholders that are weighed by estimate: the exact vocabulary takes longer to load."""

    of: Strategy = field(default_factory=Masking)

    def make_selector(self) -> Selector | None:
        return self.of.make_selector()

    def make_trigger(self) -> SummaryTrigger | None:
        return self.of.make_trigger()

    def make_policy_options(self) -> PolicyOptions:
        return replace(Strategy.make_policy_options(self), counter="estimate")


def is_due_by_turns(strategy: Strategy) -> bool:
    """Whether its acts come at the same calls in every run, whatever the sizes and prices."""
    rhythm = strategy.rhythm
    if rhythm is None or rhythm.counts_tokens:
        return False
    return isinstance(strategy.schedule, EveryTurnSchedule) and strategy.budget is None and not strategy.rules


def _write_summary(request: SummaryRequest) -> str:
    # No line is written twice: a summary that repeats itself is not accepted.
    lines = range(request.max_tokens // SUMMARY_LINE_TOKENS)
    return "".join(f"- src/part_{number}/handler.py: case_{number} fails there\n" for number in lines)


def _build_turn(number: int) -> Turn:
    """Turn `number`: it reads a part of a file that no other turn has read."""
    path = f"src/part_{number}/handler.py"
    thought = _fill(f"The failure of case_{number} may come from {path}; I read it first. ", SPOKEN_TOKENS - 20)
    listing = _fill(f"    value_{number} = compute_{number % 7}(case_{number}, limit={number * 37})\n", RESULT_TOKENS)
    action = Action(id="a", name="bash", arguments=f'{{"command": "cat {path}"}}')
    result = Observation(action_id="a", tool="bash", content=(Text(listing),))
    return Turn(index=number, content=(Text(thought),), actions=(action,), observations=(result,))


def _fill(text: str, tokens: int) -> str:
    """`text`, again and again, up to `tokens` as the estimating counter counts them."""
    characters = tokens * CHARS_PER_TOKEN
    return (text * (characters // len(text) + 1))[:characters]
