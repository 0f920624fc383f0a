"""`research`: long research over pages, which are read, searched and compared; the report at the end needs many."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.agent.environment import SUBMIT, ActionResult, Tool
from elision.testing.loop.task_plan import TaskFact
from elision.testing.loop.world import Call, ToolSkill, ToolWorld, make_tool
from elision.trajectory.turn import Action

_TOOLS: Final[Sequence[Tool]] = (
    make_tool("next_question", "Show the open question."),
    make_tool("open_page", "Read a page.", page={"type": "string"}),
    make_tool("search_pages", "List lines of all pages that contain a text.", text={"type": "string"}),
    make_tool(
        "answer",
        "Answer a question with the figures that it needs, by their labels.",
        question={"type": "integer"},
        figures={"type": "object", "additionalProperties": {"type": "string"}},
    ),
    make_tool("list_answers", "Show what was answered."),
    SUBMIT,
)


class ResearchSkill(ToolSkill):
    next_tool = "next_question"
    status_tool = "list_answers"
    step_tool = "answer"
    number_name = "question"
    values_name = "figures"
    facts = re.compile(r"(figure-\d{3}[a-d])\)? (?:came to|=) (\d+\.\d{2})")
    value = re.compile(r"\b\d+\.\d{2}\b")

    def fetch(self, document: str, label: str) -> Call:
        return ("search_pages", {"text": f"({label})"}) if label else ("open_page", {"page": document})

    def list_documents(self, name: str, arguments: Mapping[str, Any]) -> Sequence[str]:
        if name == "search_pages":
            return [f"page-{number}.html" for number in re.findall(r"figure-(\d{3})", str(arguments.get("text")))]
        return (str(arguments.get("page")),) if name == "open_page" else ()


class ResearchWorld(ToolWorld):
    name = "research"
    calls_per_step = 3.0
    skill = ResearchSkill()
    tools = _TOOLS
    system = (
        "You do research over a collection of pages. Quote every figure exactly as its page has it, and never from "
        "memory: "
        "a wrong figure in the report is worse than none."
    )

    def make_document(self, number: int) -> Sequence[TaskFact]:
        draw = self.chance.randrange
        name = f"page-{number + 1:03}.html"
        paragraphs = [
            f"In {draw(1950, 2026)} the {self.pick_word()} of the {self.pick_word()} {self.pick_word()} rose by "
            f"{draw(90)} per "
            f"cent, which observers of the {self.pick_word()} put down to its {self.pick_word()} and to "
            f"{draw(2, 90)} others."
            for _ in range(self.draw_lines())
        ]
        facts = []
        for letter in "abcd":
            label, value = f"figure-{number + 1:03}{letter}", f"{draw(10, 9000)}.{draw(100):02}"
            facts.append(TaskFact(label=label, document=name, value=value))
            sentence = f"Measured throughput of the {self.pick_word()} ({label}) came to {value} units a day."
            paragraphs.insert(draw(len(paragraphs)), sentence)
        (self.folder / name).write_text(
            "\n\n".join([f"# The {self.pick_word()} report", *paragraphs]), encoding="utf-8"
        )
        return facts

    def act(self, action: Action) -> ActionResult:
        arguments = action.decoded_arguments
        if action.name == "next_question":
            return ActionResult(text=self.describe_step())
        if action.name == "open_page":
            return self._open_page(str(arguments.get("page")))
        if action.name == "search_pages":
            return self._search_pages(str(arguments.get("text")))
        if action.name == "answer":
            is_figure = re.compile(r"\d+\.\d{2}").fullmatch
            text = self.judge_step(arguments.get("question"), arguments.get("figures"), is_figure)
            return ActionResult(text=text, error=" accepted" not in text)
        if action.name == "list_answers":
            return ActionResult(text=self.describe_progress())
        return ActionResult(text=f"There is no tool {action.name!r}.", error=True)

    def _open_page(self, name: str) -> ActionResult:
        page = self.folder / name
        if not re.fullmatch(r"page-\d{3}\.html", name) or not page.exists():
            return ActionResult(text=f"there is no page {name!r}", error=True)
        return ActionResult(text=page.read_text(encoding="utf-8"))

    def _search_pages(self, text: str) -> ActionResult:
        hits = [
            f"{page.name}: {line}"
            for page in sorted(self.folder.glob("page-*.html"))
            for line in page.read_text(encoding="utf-8").splitlines()
            if text in line
        ]
        return ActionResult(text="\n".join(hits[:20]) or "nothing found")

    @property
    def task(self) -> str:
        return (
            f"Answer {len(self.needs)} questions in order. `next_question` shows the open one: which figures it "
            f"compares, "
            f"and on which pages they are. {self.ask_for_report()}"
        )
