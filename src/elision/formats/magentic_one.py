"""Magentic-One conversations as the Who&When data set keeps them: a `history` of what each agent of a team said.

The orchestrator is the agent whose context grows: it thinks (a plan, then a ledger before each step), instructs one of
the others, and reads what that one answers. So an instruction is a call, and the answer is its result. The requests of
the others are not recorded. Read off recordings of mingyin1/Agents_Failure_Attribution.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import ClassVar

from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, peek_value, read_json_value
from elision.formats.source import derive_run_name
from elision.providers.shared.json_reading import Json, list_in, mapping_in, mappings_in, text_in
from elision.trajectory.turn import Action, Text, make_content

_INSTRUCTION = re.compile(r"Orchestrator \(-> (.+)\)")
_THOUGHT = "Orchestrator (thought)"
#: How thoughts begin that a model wrote; the others are notes of the program ("Next speaker ...").
_WRITTEN_BY_MODEL = ("Initial plan", "New plan", "Updated Ledger")


class MagenticOneReader:
    """One run a file."""

    name: ClassVar[str] = "magentic-one"

    def sniff(self, document: Document) -> bool:
        history = mapping_in(peek_value(document, '"history"', '"Orchestrator (')).get("history")
        return any(text_in(each.get("role")).startswith("Orchestrator (") for each in mappings_in(history))

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        value = mapping_in(read_json_value(document))
        assembler = Assembler(document.path, observations="tools")
        waiting: list[tuple[str, str]] = []
        for number, said in enumerate(list_in(value.get("history")), start=1):
            if isinstance(said, dict):
                _add_message(assembler, said, waiting, number)
            else:
                assembler.report_problem("no message; left out", number)
        run = assembler.finish(text_in(value.get("question_ID")) or derive_run_name(document.path), format=self.name)
        yield from yield_run(assembler, run)


def _add_message(assembler: Assembler, message: Json, waiting: list[tuple[str, str]], number: int) -> None:
    """Add the next message. waiting: (agent, call) of instructions without an answer, the newest last."""
    role = text_in(message.get("role"))
    text = text_in(message.get("content"))
    if role == "human":
        assembler.add_user(make_content(text))
    elif role == _THOUGHT:
        if text.startswith(_WRITTEN_BY_MODEL):
            assembler.add_assistant(make_content(text), line=number)
    elif found := _INSTRUCTION.fullmatch(role):
        call = Action(
            id=f"call {number}", name=found[1], arguments=json.dumps({"instruction": text}, ensure_ascii=False)
        )
        waiting.append((call.name, call.id))
        if assembler.is_unanswered:
            assembler.amend_assistant(actions=[call])
        else:
            assembler.add_assistant(actions=[call], line=number)
    elif call_ids := [call_id for agent, call_id in waiting if agent == role]:
        waiting.clear()
        assembler.add_result(call_ids[-1], make_content(text) or (Text(""),), tool=role, line=number)
    elif not role.startswith("Orchestrator"):  # else a note of the program, such as that the rounds are over
        assembler.add_user(make_content(text))
