"""Which tools are worth a rule of their own: those whose results are most of what masking hides.

A tool whose hidden results are missed more often, for their size, than those of all tools stays visible for longer;
one that is missed less goes sooner. Where one tool runs everything (a shell), its programs stand for tools.
"""

from __future__ import annotations

import glob
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from elision.engine import Log
from elision.lab.evidence import collect_evidence
from elision.lab.replay import replay_run
from elision.lab.study_settings import StudySettings
from elision.lab.tuning.search_space import ToolRule
from elision.strategies.masking import Masking
from elision.strategies.schedules import EveryTurnSchedule
from elision.trajectory.assistant_text import join_argument_text
from elision.trajectory.plan import Key
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Observation, Turn

#: Tools that get a rule at most: each doubles what can be tried.
MOST_RULES: Final = 3
#: A tool with less of the hidden tokens than this gets none.
LEAST_SHARE: Final = 0.08
#: A tool with more of them than this is divided by program.
DIVIDED_SHARE: Final = 0.8
#: Hidden as by age alone, so that what a schedule waits for does not decide which tools matter.
MEASURED_WITH: Final = Masking(window=10, schedule=EveryTurnSchedule())

#: A shell command's program, after a change of folder if there is one.
_PROGRAM: Final = re.compile(r"(?P<folder>cd [^\s&|;]+ && )?(?P<program>[A-Za-z][\w.+-]*)(?=\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """What masking by age hides of one tool, or of one program of a shell.

    tool, args: glob patterns that match it. hidden_tokens: of its hidden results, each counted once.
    missed: facts that a turn used while the result that held them was hidden.
    runs: in which it occurs.
    """

    tool: str
    args: str = "*"
    hidden_tokens: int = 0
    missed: int = 0
    runs: int = 0


def measure_tools(runs: Sequence[Trajectory], settings: StudySettings) -> list[ToolUse]:
    """Return the tools of `runs`, those with the most hidden tokens first; programs where one tool runs everything."""
    tallies = [_tally_run(run, settings.find_prices(run), settings.size_run(run)) for run in runs]
    by_tool = _sum_tallies(tallies)
    whole = sum(use.hidden_tokens for use in by_tool)
    if by_tool and by_tool[0].hidden_tokens > DIVIDED_SHARE * whole:
        return _sum_tallies(tallies, divided=by_tool[0].tool)
    return by_tool


def choose_tool_rules(uses: Sequence[ToolUse], runs: int) -> tuple[ToolRule, ...]:
    """Return a rule for each tool that matters: longer visible if its results are missed more often than the average
    of all, for their size.

    runs: how many were measured. A program that occurs in one of several says nothing about the next run.
    """
    whole = sum(use.hidden_tokens for use in uses)
    missed = sum(use.missed for use in uses)
    divided = {use.tool for use in uses if use.args != "*"}
    usable = [use for use in uses if use.runs >= min(2, runs) if use.args != "*" or use.tool not in divided]
    # Names come from the recordings: what a settings file or a terminal could not show gets no rule.
    large = [use for use in usable if use.hidden_tokens > LEAST_SHARE * whole and f"{use.tool}{use.args}".isprintable()]
    if len(uses) < 2:
        return ()
    return tuple(
        ToolRule(tool=use.tool, args=use.args, longer=use.missed * whole > missed * use.hidden_tokens)
        for use in large[:MOST_RULES]
    )


#: Of one run, by the patterns of tool and arguments: hidden tokens, and missed facts.
_Tally: TypeAlias = dict[tuple[str, str], list[int]]


def _tally_run(run: Trajectory, prices: Prices, sizer: Sizer) -> _Tally:
    known = collect_evidence(run)
    tally: _Tally = defaultdict(lambda: [0, 0])
    counted: set[Key] = set()

    def watch(session: Log) -> None:
        state = session.state
        hidden = state.hidden
        for key in hidden.keys() - counted:
            counted.add(key)
            tally[_describe_source(run, key)][0] += state.sizer.count_observation(state.find_observation(key))
        for use in known.uses.get(len(state.turns) + 1, ()):
            if all(use.item not in hidden.get(key, use.item) for key in use.seen):
                # The newest result that held a fact is the one that should have stayed.
                tally[_describe_source(run, max(use.seen))][1] += 1

    # No window: which tools matter does not depend on what fits.
    replay_run(run, MEASURED_WITH, replace(prices, window=None), sizer, watch=watch)
    return tally


def _describe_source(run: Trajectory, key: Key) -> tuple[str, str]:
    turn = run.turns[key[0] - 1]
    observation = turn.observations[key[1] - 1]
    return glob.escape(observation.tool), _describe_program(turn, observation)


def _describe_program(turn: Turn, observation: Observation) -> str:
    """Return a pattern on the arguments for the program that a shell command runs; "*" if it runs none."""
    action = turn.find_action(observation)
    found = _PROGRAM.match(join_argument_text(action)) if action is not None else None
    if found is None:
        return "*"
    folder = "cd * && " if found["folder"] else ""
    return f"{folder}{found['program']} *"


def _sum_tallies(tallies: Iterable[_Tally], divided: str | None = None) -> list[ToolUse]:
    """Return the sums by tool, the largest first; of the tool `divided` by program."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for tally in tallies:
        occurring = set()
        for (tool, args), (hidden, missed) in tally.items():
            key = tool, args if tool == divided else "*"
            sums[key][0] += hidden
            sums[key][1] += missed
            occurring.add(key)
        for key in occurring:
            sums[key][2] += 1
    uses = [
        ToolUse(tool=tool, args=args, hidden_tokens=hidden, missed=missed, runs=runs)
        for (tool, args), (hidden, missed, runs) in sums.items()
    ]
    return sorted(uses, key=lambda use: (-use.hidden_tokens, use.tool, use.args))
