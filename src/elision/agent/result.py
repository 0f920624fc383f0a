"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from elision.agent.model import Json
from elision.agent.run_report import RunReport

#: Why a run ended: the task was handed in, a guard said so, or the model gave no answer.
Ending: TypeAlias = Literal["done", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. result: what was handed in. why: a sentence. messages: the whole history, nothing hidden."""

    ending: Ending
    why: str
    result: str = ""
    report: RunReport
    messages: list[Json]
