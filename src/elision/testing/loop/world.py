"""What all task families share: a world that the agent acts on, and the skill that reads its texts and acts.

A world knows the truth. A skill knows how its family writes, and nothing of the task: an agent has only the skill.
"""

from __future__ import annotations

import json
import random
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

from elision.agent.environment import BASH, SUBMIT, ActionResult, Shell, Tool
from elision.testing.loop.task_plan import Knobs, TaskFact, TaskPlan, draw_share, make_plan
from elision.trajectory.turn import Action

#: A tool call that a skill wants: the tool's name and its arguments.
Call: TypeAlias = tuple[str, dict[str, Any]]
#: Finds a pattern in what the prompt shows, the newest text first.
Find: TypeAlias = Callable[[str], re.Match[str] | None]

#: Words from which names in documents are made.
_WORDS: Final = (
    "batch beacon broker buffer cache cursor digest filter gate index ingest journal lease ledger merge mirror probe "
    "queue quota relay replica router sample shard socket spool token vault worker"
)
WORDS: Final = tuple(_WORDS.split())
#: Characters of a command's output that are shown.
_OUTPUT = 80_000


def make_tool(name: str, description: str, **parameters: Mapping[str, Any]) -> Tool:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return Tool(name=name, description=description, parameters=schema)


class Skill:
    """How an agent of one family reads and acts.

    facts: pattern of a fact in a text, with its label and its value. value: pattern of a value alone.
    states: pattern of labels whose value changes, so that what was read before may be out of date.
    """

    facts: ClassVar[re.Pattern[str]]
    value: ClassVar[re.Pattern[str]]
    states: ClassVar[re.Pattern[str]] = re.compile(r"(?!)")

    def open_step(self, number: int, find: Find) -> Call:
        """Return the call that shows what step `number` needs."""
        raise NotImplementedError

    def fetch(self, document: str, label: str) -> Call:
        """Return the call that reads a document: all of it, or with a `label` only that, where the family can."""
        raise NotImplementedError

    def apply(self, number: int, values: Mapping[str, str], find: Find) -> Call:
        raise NotImplementedError

    def look(self, number: int) -> Call | None:
        """Return the call that looks at what step `number` changed; None where there is nothing to see."""
        return None

    def ask_status(self) -> Call:
        raise NotImplementedError

    def submit(self, values: Mapping[str, str]) -> Call:
        return SUBMIT.name, {"answer": "; ".join(f"{label}={value}" for label, value in values.items())}

    def list_documents(self, name: str, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the documents that a call reads."""
        raise NotImplementedError

    def list_values(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the values that a call writes, by their labels."""
        raise NotImplementedError

    def make_recall_pattern(self, label: str) -> str:
        return re.escape(label)


class ToolSkill(Skill):
    """The skill of a family with tools of its own.

    next_tool: shows the open step. status_tool: shows what is done. step_tool: takes a step, whose number and values
    are arguments of these names.
    """

    next_tool: ClassVar[str]
    status_tool: ClassVar[str]
    step_tool: ClassVar[str]
    number_name: ClassVar[str]
    values_name: ClassVar[str]

    def open_step(self, number: int, find: Find) -> Call:
        return self.next_tool, {}

    def apply(self, number: int, values: Mapping[str, str], find: Find) -> Call:
        return self.step_tool, {self.number_name: number, self.values_name: dict(values)}

    def ask_status(self) -> Call:
        return self.status_tool, {}

    def list_values(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, str]:
        values = arguments.get(self.values_name)
        return values if name == self.step_tool and isinstance(values, Mapping) else {}


class ShellSkill(Skill):
    """The skill of a family of files, read and changed in a shell.

    status: the command that shows what is done. read, written: patterns of the documents that a command reads, and of
    the labels and values that it writes.
    """

    status: ClassVar[str]
    read: ClassVar[re.Pattern[str]]
    written: ClassVar[re.Pattern[str]]

    def ask_status(self) -> Call:
        return run_in_shell(self.status)

    def list_documents(self, name: str, arguments: Mapping[str, Any]) -> Sequence[str]:
        return self.read.findall(_read_command(arguments))

    def list_values(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, str]:
        return dict(self.written.findall(_read_command(arguments)))


class World(ABC):
    """One task of a family: an environment with a checkable answer.

    Its steps are done in order. A step with a wrong value is rejected where it is checked, and goes through elsewhere.
    """

    name: ClassVar[str]
    #: Calls that a step takes where everything is visible.
    calls_per_step: ClassVar[float]
    skill: ClassVar[Skill]
    tools: Sequence[Tool]
    system: ClassVar[str]

    def __init__(self, seed: int, knobs: Knobs, folder: Path) -> None:
        self.seed = seed
        self.knobs = knobs
        self.folder = folder
        #: How often each document was read, how many steps were rejected, and what was handed in.
        self.reads: Counter[str] = Counter()
        self.rejected = 0
        self.answer: Mapping[str, str] | None = None
        self.chance = random.Random(f"{self.name} {seed}")
        count = max(4, round((knobs.calls - 6) / self.calls_per_step))
        documents = [self.make_document(number) for number in range(count)]
        self.plan: TaskPlan = make_plan(self.chance, documents, knobs, self.calls_per_step)
        #: The labels that each step needs, and those of the report.
        self.needs = [list(labels) for labels in self.plan.steps]
        self.report = list(self.plan.report)

    @abstractmethod
    def make_document(self, number: int) -> Sequence[TaskFact]:
        """Write a document, and return its facts."""

    @property
    @abstractmethod
    def task(self) -> str:
        """What the user asks."""

    @abstractmethod
    def act(self, action: Action) -> ActionResult:
        """Carry out one call."""

    @abstractmethod
    def count_wrong_steps(self) -> int:
        """Count the steps that went through with a wrong value; those that are not done are wrong too."""

    def execute(self, action: Action) -> ActionResult:
        arguments = action.decoded_arguments
        self.reads.update(self.skill.list_documents(action.name, arguments))
        if action.name == SUBMIT.name:
            pairs = (pair.partition("=") for pair in str(arguments.get("answer")).split(";"))
            self.answer = {label.strip(): value.strip() for label, _, value in pairs}
            return ActionResult(text="handed in", done=True)
        result = self.act(action)
        self.rejected += len(re.findall(r"\bstep \d+ rejected", result.text))
        if self.knobs.results == "json" and not result.text.startswith("{"):
            return replace(result, text=json.dumps({"output": result.text, "exit_code": result.exit_code or 0}))
        return result

    def find_value(self, label: str) -> str:
        """Return the true value of a fact now."""
        return self.plan.facts[label].value

    def find_document(self, label: str) -> str:
        """Return the document in which a fact can be read."""
        return self.plan.facts[label].document

    def describe_needs(self, labels: Sequence[str]) -> str:
        """Return which facts are needed, and where each can be read."""
        return ", ".join(f"{label} (in {self.find_document(label)})" for label in labels)

    def is_checked(self, number: int) -> bool:
        """Return whether a wrong value in step `number` is noticed."""
        return draw_share(self.name, self.seed, "checked", number) < self.knobs.noticed

    @property
    def rereads(self) -> int:
        return self.reads.total() - len(self.reads)

    @property
    def is_solved(self) -> bool:
        answer = self.answer or {}
        reported = all(answer.get(label) == self.find_value(label) for label in self.report)
        return self.answer is not None and reported and not self.count_wrong_steps()

    def draw_lines(self) -> int:
        """Draw how many lines of filler a document has."""
        return max(3, int(self.chance.choice((30, 60, 60, 110)) * self.knobs.size))

    def pick_word(self) -> str:
        return self.chance.choice(WORDS)

    def ask_for_report(self) -> str:
        report = self.describe_needs(self.report)
        return f"At the end submit a report, written as LABEL=VALUE; LABEL=VALUE, of: {report}."

    def close(self) -> None:  # noqa: B027 - most worlds hold nothing open
        """Release what the world holds open."""


class ToolWorld(World):
    """A world behind tools of its own, which keeps the steps that were accepted."""

    def __init__(self, seed: int, knobs: Knobs, folder: Path) -> None:
        super().__init__(seed, knobs, folder)
        self.accepted: list[bool] = []

    def describe_step(self) -> str:
        """Return what the next step needs."""
        number = len(self.accepted) + 1
        if number > len(self.needs):
            return "all steps are done"
        return f"step {number}: need {self.describe_needs(self.needs[number - 1])}"

    def judge_step(self, number: Any, values: Any, is_possible: Callable[[str], object]) -> str:
        """Take the values of a step, and return what becomes of it.

        is_possible: whether a value exists at all; one that does not is always rejected.
        """
        open_number = len(self.accepted) + 1
        if number != open_number or not isinstance(values, Mapping):
            return f"error: step {open_number} is open, with its values by their labels"
        labels = self.needs[number - 1]
        wrong = [label for label in labels if values.get(label) != self.find_value(label)]
        refused = (
            wrong if self.is_checked(number) else [each for each in wrong if not is_possible(str(values.get(each)))]
        )
        if refused:
            return f"step {number} rejected: {refused[0]} is not right"
        self.accepted.append(not wrong)
        return f"step {number} accepted, {len(self.needs) - number} left"

    def describe_progress(self) -> str:
        return f"step {len(self.accepted)} accepted" if self.accepted else "no step is done"

    def count_wrong_steps(self) -> int:
        return len(self.needs) - sum(self.accepted)

    def render(self, value: Mapping[str, Any]) -> str:
        """Return a result as JSON, or as lines where the knobs want text."""
        return "\n".join(_list_lines(value, "")) if self.knobs.results == "text" else json.dumps(value)


def _list_lines(value: Any, indent: str) -> list[str]:
    if isinstance(value, Mapping):
        return [line for key, each in value.items() for line in _list_entry(key, each, indent)]
    if all(isinstance(each, Mapping) and not any(isinstance(v, dict | list) for v in each.values()) for each in value):
        return [indent + ", ".join(f"{key}: {v}" for key, v in each.items()) for each in value]
    return [line for each in value for line in _list_lines(each, indent + "  ")]


def _list_entry(key: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, dict | list):
        return [f"{indent}{key}:", *_list_lines(value, indent + "  ")]
    return [f"{indent}{key}: {value}"]


class ShellWorld(World):
    """A world of files and a real shell. Its scripts judge the steps."""

    tools: Sequence[Tool] = (BASH, SUBMIT)

    def __init__(self, seed: int, knobs: Knobs, folder: Path) -> None:
        super().__init__(seed, knobs, folder)
        self.write_steps()
        self._shell = Shell(folder, seconds=30.0, output=_OUTPUT)

    @abstractmethod
    def write_steps(self) -> None:
        """Write what the steps need, and the scripts that judge them."""

    def act(self, action: Action) -> ActionResult:
        return self._shell.execute(action)

    def write_file(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_script(self, script: str) -> str:
        return self._shell.run(script).text

    def count_wrong_lines(self, name: str, sign: str) -> int:
        """Count the steps without a right line in a file: a line a step, with its labels, `sign` and their values."""
        path = self.folder / name
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        right = 0
        for labels, line in zip(self.needs, lines, strict=False):
            right += all(f"{label}{sign}{self.find_value(label)}" in line.split() for label in labels)
        return len(self.needs) - right


def run_in_shell(command: str) -> Call:
    return BASH.name, {"command": command}


def _read_command(arguments: Mapping[str, Any]) -> str:
    command = arguments.get("command")
    return command if isinstance(command, str) else ""
