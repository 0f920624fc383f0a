"""What `tools="defer"` would have saved in recorded runs that declare tools, by price ratio: an estimate.

Each tool that a run calls is taken to be searched before its first call, in a round of its own: one more request, which
reads the context, and a definition that every later request carries. That is the most that a search costs. What a model
does that finds no tool, or the wrong one, recordings cannot show.

Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from statistics import median
from typing import Final

from benchmarks.recordings import load_recordings
from elision.lab.run_as_recorded import sizer
from elision.manager.deferred_tools import TOOL_BUDGET, count_definition, defer_definitions, list_definitions
from elision.providers.provider_table import DEFAULT_PROVIDER, find_provider
from elision.trajectory.events import Deferral
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory, join_assistant_text

#: Name -> what a token costs that is written to the cache, and that is read from it, in input tokens.
RATIOS: Final = {"0.1 x": (1.25, 0.1), "0.05 x": (1.25, 0.05), "0.025 x": (1.25, 0.025), "uncached": (1.0, 1.0)}
OUTPUT: Final = 5.0
BUDGETS: Final = (500, 1_000, TOOL_BUDGET, 4_000)
#: Tokens of a search.
SEARCH: Final = 40
#: Form -> what a session does: Claude searches tools itself, and any model reads outlines.
FORMS: Final = {
    "native": partial(defer_definitions, provider=find_provider("anthropic"), is_native=True),
    "outline": partial(defer_definitions, provider=DEFAULT_PROVIDER, is_native=False),
}


@dataclass(frozen=True, slots=True)
class Session:
    """One run: tokens of its tools by name; what it defers by budget and form; turns by first call; prompts and
    answers by call."""

    tools: dict[str, int]
    deferrals: dict[tuple[int, str], Deferral]
    first_calls: dict[str, int]
    prompts: Sequence[int]
    answers: Sequence[int]

    def cost(self, write: float, read: float) -> float:
        """Return the bill in input tokens."""
        pairs = zip((0, *self.prompts), self.prompts, strict=False)
        prompts = sum(read * before + write * (now - before) for before, now in pairs)
        return prompts + OUTPUT * sum(self.answers)

    def save(self, budget: int, form: str, write: float, read: float) -> float:
        """Return what deferring takes off the bill; less than 0 where it adds. 0 where the session would not defer."""
        deferral = self.deferrals[budget, form]
        rounds, calls = 0.0, len(self.prompts)
        for name in deferral.tools:
            if turn := self.first_calls.get(name):
                added = SEARCH + self.tools[name]
                rounds += read * self.prompts[turn - 1] + OUTPUT * SEARCH + added * (write + read * (calls - turn))
        return deferral.saved * (write + read * (calls - 1)) - rounds


def read_session(run: Trajectory, count: Sizer) -> Session:
    definitions = [each for tool in run.head.tools for each in list_definitions(dict(tool))]
    tools = {str(each["name"]): count_definition(each, count) for each in definitions}
    deferrals = {
        (budget, form): defer(definitions, count, budget=budget) for budget in BUDGETS for form, defer in FORMS.items()
    }
    first: dict[str, int] = {}
    answers, added = [], []
    for turn in run.turns:
        for action in turn.actions:
            first.setdefault(action.name, turn.index)
        answers.append(count.count(join_assistant_text(turn)))
        added.append(answers[-1] + sum(count.count(each.text) for each in turn.observations))
    head = count.count_tools(run.head) + sum(count.count(str(each.text)) for each in run.head.messages)
    return Session(tools, deferrals, first, [*accumulate(added[:-1], initial=head)], answers)


def main() -> None:
    count = sizer("openai", "o200k")
    runs = [run for run in load_recordings() if run.head.tools and run.turns]
    sessions = [read_session(run, count) for run in runs]
    declared = [sum(each.tools.values()) for each in sessions]
    unused = [sum(size for name, size in each.tools.items() if name not in each.first_calls) for each in sessions]
    print(f"{len(runs)} runs declare tools: {median(declared):,.0f} tokens in the median, at most {max(declared):,};")
    print(f"{sum(unused) / sum(declared):.0%} of the tokens belong to tools that a run never calls")
    print("share of the declarations in the bill:", ", ".join(_list_shares(sessions, declared)))
    print(_describe_together(runs, count))
    print(f"{'reads':9}{'kept whole':>11}  " + "".join(f"{form:>32}" for form in FORMS))
    for name, (write, read) in RATIOS.items():
        for budget in BUDGETS:
            cells = (_describe(sessions, budget, form, write, read) for form in FORMS)
            print(f"{name:9}{budget:11,}  " + "".join(f"{cell:>32}" for cell in cells))


def _describe_together(runs: Sequence[Trajectory], count: Sizer) -> str:
    """Return what a session defers that declares every tool of the runs."""
    tools = [definition for run in runs for tool in run.head.tools for definition in list_definitions(dict(tool))]
    named = list({str(each["name"]): each for each in tools}.values())
    size = sum(count_definition(each, count) for each in named)
    left_out = [f"{form} {defer(named, count, budget=TOOL_BUDGET).saved:,}" for form, defer in FORMS.items()]
    return f"all {len(named)} tools in one session: {size:,} tokens; out of each prompt: {', '.join(left_out)}"


def _list_shares(sessions: Sequence[Session], declared: Sequence[int]) -> Iterator[str]:
    for name, (write, read) in RATIOS.items():
        spent = sum(
            tokens * (write + read * (len(each.prompts) - 1)) for each, tokens in zip(sessions, declared, strict=True)
        )
        yield f"{spent / sum(each.cost(write, read) for each in sessions):.1%} at {name}"


def _describe(sessions: Sequence[Session], budget: int, form: str, write: float, read: float) -> str:
    costs = [each.cost(write, read) for each in sessions]
    saved = [each.save(budget, form, write, read) for each in sessions]
    deferring = [part / cost for part, cost in zip(saved, costs, strict=True) if part]
    if not deferring:
        return "no run defers"
    return f"{sum(saved) / sum(costs):6.1%}, worst {min(deferring):6.1%}, {len(deferring)} runs"
