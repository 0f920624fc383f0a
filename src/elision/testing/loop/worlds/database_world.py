"""`database`: a shop's orders in SQLite behind tools that answer in JSON."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from elision.agent.environment import SUBMIT, ActionResult, Tool
from elision.testing.loop.task_plan import Knobs, TaskFact
from elision.testing.loop.world import Call, ToolSkill, ToolWorld, make_tool
from elision.trajectory.turn import Action

_TOOLS: Final[Sequence[Tool]] = (
    make_tool("next_request", "Show the open request."),
    make_tool("get_order", "Show an order.", order_id={"type": "string"}),
    make_tool(
        "exchange_items",
        "Carry out a request: the item_id of each SKU that it names.",
        request={"type": "integer"},
        items={"type": "object", "additionalProperties": {"type": "string"}},
    ),
    make_tool("list_exchanges", "Show what was carried out."),
    SUBMIT,
)


class DatabaseSkill(ToolSkill):
    next_tool = "next_request"
    status_tool = "list_exchanges"
    step_tool = "exchange_items"
    number_name = "request"
    values_name = "items"
    # Between a SKU and its item_id there are other fields of that item, and no other item.
    facts = re.compile(r"(SKU-\d{3}[a-z])(?:(?!SKU-)[^{}\n]){0,120}?\bitem_id\b[\"'\s:=\\]{1,6}(\d{10})")
    value = re.compile(r"\b\d{10}\b")

    def fetch(self, document: str, label: str) -> Call:
        return "get_order", {"order_id": document}

    def list_documents(self, name: str, arguments: Mapping[str, Any]) -> Sequence[str]:
        return (str(arguments.get("order_id")),) if name == "get_order" else ()


class DatabaseWorld(ToolWorld):
    name = "database"
    calls_per_step = 3.0
    skill = DatabaseSkill()
    tools = _TOOLS
    system = (
        "You work for the support of a shop, with tools on its database. Every exchange is final: an item_id that "
        "belongs "
        "to another item sends the customer the wrong parcel. A product_id is no item_id."
    )

    def __init__(self, seed: int, knobs: Knobs, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "shop.db", isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
            "CREATE TABLE orders (order_id TEXT PRIMARY KEY, customer TEXT, status TEXT);"
            "CREATE TABLE items (item_id TEXT PRIMARY KEY, order_id TEXT, name TEXT, sku TEXT UNIQUE, product_id TEXT, "
            "price REAL, color TEXT, size TEXT);"
            "CREATE TABLE exchanges (request INTEGER, sku TEXT, item_id TEXT);"
        )
        self._database.row_factory = sqlite3.Row
        super().__init__(seed, knobs, folder)

    def make_document(self, number: int) -> Sequence[TaskFact]:
        draw = self.chance.randrange
        order = f"#W{4_000_001 + 977 * number + self.seed % 900}"
        customer = f"{self.pick_word()}_{self.pick_word()}_{draw(10_000)}"
        status = self.chance.choice(("pending", "delivered"))
        self._database.execute("INSERT INTO orders VALUES (?, ?, ?)", (order, customer, status))
        facts = []
        for letter in "abcdefghijklmnopqrstuvwxyz"[: max(4, self.draw_lines() // 6)]:
            sku, item = f"SKU-{number + 1:03}{letter}", f"{draw(10**9, 10**10)}"
            values = (item, order, self.pick_word().title(), sku, f"{draw(10**9, 10**10)}", draw(90_000) / 100)
            look = (self.chance.choice(("red", "blue", "black")), self.chance.choice("SML"))
            self._database.execute("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*values, *look))
            facts.append(TaskFact(label=sku, document=order, value=item))
        return self.chance.sample(facts, 4)

    def act(self, action: Action) -> ActionResult:
        arguments = action.decoded_arguments
        if action.name == "next_request":
            return ActionResult(text=self.render({"request": self.describe_step()}))
        if action.name == "get_order":
            return self._show_order(str(arguments.get("order_id")))
        if action.name == "exchange_items":
            items = arguments.get("items")
            text = self.judge_step(arguments.get("request"), items, self._has_item)
            if " accepted" in text and isinstance(items, Mapping):
                rows = [(arguments["request"], sku, item) for sku, item in items.items()]
                self._database.executemany("INSERT INTO exchanges VALUES (?, ?, ?)", rows)
            return ActionResult(text=self.render({"result": text}), error=" accepted" not in text)
        if action.name == "list_exchanges":
            count = self._database.execute("SELECT count(*) FROM exchanges").fetchone()[0]
            return ActionResult(text=self.render({"items_exchanged": count, "progress": self.describe_progress()}))
        return ActionResult(text=f"There is no tool {action.name!r}.", error=True)

    def _show_order(self, order: str) -> ActionResult:
        found = self._database.execute("SELECT * FROM orders WHERE order_id = ?", (order,)).fetchone()
        if found is None:
            return ActionResult(text=self.render({"error": f"there is no order {order}"}), error=True)
        columns = "name, sku, product_id, item_id, price, color, size"
        rows = self._database.execute(f"SELECT {columns} FROM items WHERE order_id = ? ORDER BY sku", (order,))
        return ActionResult(text=self.render({**dict(found), "items": [dict(row) for row in rows]}))

    def _has_item(self, item: str) -> bool:
        return self._database.execute("SELECT 1 FROM items WHERE item_id = ?", (item,)).fetchone() is not None

    @property
    def task(self) -> str:
        return (
            f"Carry out {len(self.needs)} exchange requests in order. `next_request` shows the open one: whose "
            f"items it "
            "concerns, and in which orders they are. `exchange_items` takes the item_id of each SKU. "
            f"{self.ask_for_report()}"
        )

    def count_wrong_steps(self) -> int:
        wrong = 0
        for number, labels in enumerate(self.needs, start=1):
            rows = self._database.execute("SELECT sku, item_id FROM exchanges WHERE request = ?", (number,))
            done = {row["sku"]: row["item_id"] for row in rows}
            wrong += any(done.get(label) != self.find_value(label) for label in labels)
        return wrong

    def close(self) -> None:
        self._database.close()
