"""Observations with the outcome they should have, from tests/data/extractors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elision.strategies.extractors import BUILT_IN, Extractors, Outcome
from elision.trajectory.turn import Action, Observation, Turn, make_content

_DATA = Path(__file__).resolve().parents[2] / "data" / "extractors"


@dataclass(frozen=True, slots=True)
class Case:
    """One observation and what should be said of it."""

    kind: str
    source: str
    tool: str
    arguments: str
    role: Literal["tool", "user"]
    observation: str
    label: str
    result: str

    @property
    def expected(self) -> Outcome:
        return Outcome(self.label, self.result)


def every_case() -> list[Case]:
    """All recorded and hand-made cases."""
    files = (_DATA / "recorded.jsonl", _DATA / "handmade.jsonl")
    lines = [line for file in files for line in file.read_text("utf-8").split("\n") if line]
    return [Case(**json.loads(line)) for line in lines]


def outcome_of(
    tool: str,
    arguments: str,
    text: str,
    *,
    role: Literal["tool", "user"] = "tool",
    error: bool | None = None,
    extractors: Extractors = BUILT_IN,
) -> Outcome:
    """What `extractors` say of one observation."""
    call = Action(id="" if role == "user" else "c1", name=tool, arguments=arguments, implicit=role == "user")
    observation = Observation(action_id=call.id, tool=tool, content=make_content(text), role=role, error=error)
    return extractors.find_outcome(Turn(index=1, actions=(call,), observations=(observation,)), observation)


def outcome_of_case(case: Case) -> Outcome:
    """What the built-in extractors say of `case`."""
    return outcome_of(case.tool, case.arguments, case.observation, role=case.role)
