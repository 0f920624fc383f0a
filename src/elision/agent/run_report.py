"""What a run was: its phases, its turns, what hiding saved and cost, and how it ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from elision.agent.environment import ActionResult
from elision.agent.model import Json, ModelAnswer
from elision.strategies.extractors.files import describe_edit, describe_line_edit, describe_shell_write
from elision.strategies.extractors.shell import describe_test_run
from elision.telemetry.context_report import ContextReport
from elision.telemetry.diagnostics import Costs, Diagnostics
from elision.trajectory.turn import Action, Observation, make_content
from elision.trajectory.usage import Usage

#: What a turn is for: looking around, changing files, running tests, or only saying something.
Phase: TypeAlias = Literal["explore", "edit", "test", "talk"]

#: Why a run ended: the task was handed in, a guard said so, or the model gave no answer.
Ending: TypeAlias = Literal["done", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn of the run. seconds: from the prepared prompt to the last result. calls: each in one line."""

    turn: int
    phase: Phase
    text: str
    calls: tuple[str, ...]
    failed: int
    usage: Usage | None
    diagnostics: Diagnostics
    seconds: float


@dataclass(slots=True)
class RunReport:
    """A run as it goes on; complete when it has ended.

    model: its name. context_report: of the whole session, earlier runs included; None until the run has ended, and
    where the context reports nothing.
    """

    model: str
    steps: list[Step] = field(default_factory=list)
    prepared_calls: int = 0
    newest: Diagnostics | None = None
    masked_results: int = 0
    peak_tokens: int = 0
    summary_calls: list[int] = field(default_factory=list)
    context_report: ContextReport | None = None
    _started: float = 0.0

    def add_prepared(self, diagnostics: Diagnostics) -> None:
        """Add a prompt that was prepared."""
        self.prepared_calls += 1
        self.newest = diagnostics
        self.masked_results += len(diagnostics.masked)
        self.peak_tokens = max(self.peak_tokens, diagnostics.after)
        if diagnostics.summarized is not None:
            self.summary_calls.append(diagnostics.call)
        self._started = time.monotonic()

    def set_final_costs(self, costs: Costs) -> None:
        """Set the costs of the whole session, the last answer included."""
        if self.newest is not None:
            self.newest = replace(self.newest, costs=costs)

    def add_turn(
        self, answer: ModelAnswer, pairs: Sequence[tuple[Action, ActionResult]], diagnostics: Diagnostics
    ) -> Step:
        """Add a turn that is complete, and return it."""
        step = Step(
            turn=len(self.steps) + 1,
            phase=classify_turn(pairs),
            text=answer.text,
            calls=tuple(_describe_call(call) for call, _ in pairs),
            failed=sum(outcome.error for _, outcome in pairs),
            usage=answer.usage,
            diagnostics=diagnostics,
            seconds=time.monotonic() - self._started,
        )
        self.steps.append(step)
        return step

    @property
    def phases(self) -> Counter[Phase]:
        """Turns of each phase."""
        return Counter(step.phase for step in self.steps)

    @property
    def usage(self) -> Usage:
        """Everything the provider reported, added up."""
        return sum((step.usage for step in self.steps if step.usage is not None), Usage())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. result: what was handed in. why: a sentence. messages: the whole history, nothing hidden."""

    ending: Ending
    why: str
    result: str = ""
    report: RunReport
    messages: list[Json]


def classify_turn(pairs: Sequence[tuple[Action, ActionResult]]) -> Phase:
    """Return what a turn was for, by its calls and results: a change counts before a test, a test before a look."""
    found: set[Phase] = {_classify_call(call, outcome) for call, outcome in pairs}
    return next((name for name in ("edit", "test", "explore") if name in found), "talk")


def _classify_call(call: Action, outcome: ActionResult) -> Phase:
    seen = Observation(action_id=call.id, tool=call.name, content=make_content(outcome.text), error=outcome.error)
    if outcome.done:
        return "talk"
    if any(read(call, seen, "") is not None for read in (describe_edit, describe_line_edit, describe_shell_write)):
        return "edit"
    if describe_test_run(call, seen, "") is not None:
        return "test"
    return "explore"


def _describe_call(call: Action) -> str:
    """Return a call in one line: its command where it has one, else the tool and its arguments."""
    command = call.decoded_arguments.get("command")
    text = command if isinstance(command, str) else f"{call.name} {call.arguments}"
    return " ".join(text.split())
