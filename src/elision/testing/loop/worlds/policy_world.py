"""`policy`: cases of a bank's customers, as in τ²-bench: rules that are read early, and balances that change."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from elision.agent.environment import SUBMIT, ActionResult, Tool
from elision.testing.loop.task_plan import Knobs, TaskFact
from elision.testing.loop.world import Call, ToolSkill, ToolWorld, make_tool
from elision.trajectory.turn import Action

_TOOLS: Final[Sequence[Tool]] = (
    make_tool("next_case", "Show the open case."),
    make_tool("read_policy", "Read a section of the policy.", section={"type": "string"}),
    make_tool("get_account", "Show an account.", account={"type": "string"}),
    make_tool(
        "settle",
        "Settle a case with the values that it needs, by their labels.",
        case={"type": "integer"},
        values={"type": "object", "additionalProperties": {"type": "string"}},
    ),
    make_tool("list_cases", "Show what was settled."),
    SUBMIT,
)
#: Sections of the policy, and the fees of each.
_SECTIONS: Final = 4
_FEES: Final = 5


class PolicySkill(ToolSkill):
    next_tool = "next_case"
    status_tool = "list_cases"
    step_tool = "settle"
    number_name = "case"
    values_name = "values"
    # A value that an ellipsis cuts short is none, nor is its beginning.
    facts = re.compile(
        r"\b((?:card|plan)-\d{3}[a-d]|fee-\d{2}[a-e]|balance-\d{3})\b"
        r"(?: is(?: now)?|[\"'\\]*\s*[:=])\s*[\"'\\]*(?>(\d[\w.-]*\w))(?![.-]*…)"
    )
    value = re.compile(r"\b\d{4}-\d{4}\b")
    states = re.compile(r"balance-")

    def fetch(self, document: str, label: str) -> Call:
        if document.startswith("section"):
            return "read_policy", {"section": document}
        return "get_account", {"account": document}

    def list_documents(self, name: str, arguments: Mapping[str, Any]) -> Sequence[str]:
        given = arguments.get("section") or arguments.get("account")
        return (given,) if name in ("read_policy", "get_account") and isinstance(given, str) else ()


class PolicyWorld(ToolWorld):
    name = "policy"
    calls_per_step = 3.3
    skill = PolicySkill()
    tools = _TOOLS
    system = (
        "You settle cases of a bank's customers. Follow the policy, whose sections you can read: every fee is "
        "written there, "
        "and charging another is a violation. A balance changes with each case of its account; use the present one. "
        + "Be polite, never promise what the policy does not allow, and do not disclose what belongs to another "
        "customer. " * 12
    )

    def __init__(self, seed: int, knobs: Knobs, folder: Path) -> None:
        self._accounts: dict[str, dict[str, Any]] = {}
        self._balances: dict[str, int] = {}
        super().__init__(seed, knobs, folder)
        self._fees = {
            f"fee-{section:02}{letter}": f"{self.chance.randrange(10, 90)}.{self.chance.randrange(10, 99)}"
            for section in range(1, _SECTIONS + 1)
            for letter in "abcde"[:_FEES]
        }
        self._sections = {f"section {number}": self._write_section(number) for number in range(1, _SECTIONS + 1)}
        # A fee of the policy, and the balance that it is taken from.
        for labels in self.needs:
            labels += [self.chance.choice(list(self._fees)), _find_balance(labels[-1])]
        self.report += sorted({_find_balance(label) for label in self.report})[:2]

    def make_document(self, number: int) -> Sequence[TaskFact]:
        draw = self.chance.randrange
        account = f"acct-{number + 1:03}"
        kinds = self.chance.sample(("card", "plan", "card", "plan"), 4)
        labels = [f"{kind}-{number + 1:03}{letter}" for kind, letter in zip(kinds, "abcd", strict=True)]
        facts = [
            TaskFact(label=each, document=account, value=f"{draw(1000, 9999)}-{draw(1000, 9999)}") for each in labels
        ]
        self._balances[f"balance-{number + 1:03}"] = draw(1000, 9999)
        payments = [
            {"date": f"2026-{draw(1, 13):02}-{draw(1, 29):02}", "payee": self.pick_word(), "amount": draw(90_000) / 100}
            for _ in range(self.draw_lines() // 3)
        ]
        self._accounts[account] = {
            "account": account,
            "owner": f"{self.pick_word()}_{self.pick_word()}_{draw(10_000)}",
            "products": {fact.label: fact.value for fact in facts},
            "payments": payments,
        }
        return facts

    def _write_section(self, number: int) -> str:
        lines = [f"Policy, section {number}."]
        for fee in [label for label in self._fees if label.startswith(f"fee-{number:02}")]:
            for _ in range(int(5 * self.knobs.size)):
                lines.append(
                    f"A {self.pick_word()} may be asked to confirm the {self.pick_word()} of the {self.pick_word()} "
                    f"within "
                    f"{self.chance.randrange(2, 60)} days, unless the {self.pick_word()} was closed."
                )
            lines.append(f"For such a case {fee} is {self._fees[fee]} and not negotiable.")
        return "\n".join(lines)

    def find_document(self, label: str) -> str:
        kind, _, number = label.partition("-")
        return f"section {int(number[:2])}" if kind == "fee" else f"acct-{number[:3]}"

    def find_value(self, label: str) -> str:
        if label in self._balances:
            return str(self._balances[label])
        return self._fees.get(label) or super().find_value(label)

    def act(self, action: Action) -> ActionResult:
        arguments = action.decoded_arguments
        if action.name == "next_case":
            return ActionResult(text=self.render({"case": self.describe_step()}))
        if action.name == "read_policy":
            text = self._sections.get(str(arguments.get("section")))
            return ActionResult(text=text or "there is no such section", error=text is None)
        if action.name == "get_account":
            return self._show_account(str(arguments.get("account")))
        if action.name == "settle":
            return self._settle(arguments.get("case"), arguments.get("values"))
        if action.name == "list_cases":
            return ActionResult(text=self.render({"progress": self.describe_progress()}))
        return ActionResult(text=f"There is no tool {action.name!r}.", error=True)

    def _show_account(self, account: str) -> ActionResult:
        found = self._accounts.get(account)
        if found is None:
            return ActionResult(text=self.render({"error": f"there is no account {account}"}), error=True)
        balance = f"balance-{account[-3:]}"
        return ActionResult(text=self.render({**found, balance: self._balances[balance]}))

    def _settle(self, case: Any, values: Any) -> ActionResult:
        number = len(self.accepted) + 1
        text = self.judge_step(case, values, lambda value: bool(re.fullmatch(r"\d[\w.-]*", value)))
        if " accepted" not in text:
            return ActionResult(text=self.render({"result": text}), error=True)
        fee, balance = self.needs[number - 1][-2:]
        # What goes through is taken from the balance, whether it is right or not.
        self._balances[balance] -= round(float(self._fees[fee]))
        return ActionResult(
            text=self.render({"result": text, "account": f"{balance} is now {self._balances[balance]}"})
        )

    @property
    def task(self) -> str:
        return (
            f"Settle {len(self.needs)} cases in order. `next_case` shows the open one and what it needs: products "
            f"and the "
            f"present balance from accounts, a fee from the policy. {self.ask_for_report()}"
        )


def _find_balance(label: str) -> str:
    return f"balance-{label.split('-')[1][:3]}"
