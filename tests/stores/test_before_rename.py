"""Stores and exports written while the product was called Lacuna open, are continued and are read as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from elision import ContextManager
from elision.errors import ConflictError
from elision.formats.registry import read_runs
from elision.stores.log_file import LogFile
from elision.stores.store_urls import open_store
from elision.trajectory.events import UsageReported
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage

DATA = Path(__file__).parents[1] / "data" / "before_rename"
STRATEGY = "hybrid(window=3, summarize_at=8, tail=3, schedule=every-turn)"


def _json(name: str) -> Any:
    return json.loads((DATA / name).read_text("utf-8"))


def _hidden_text() -> str:
    """Return the third tool result of the session, which its last view hides."""
    return [message["content"] for message in _json("history.json") if message["role"] == "tool"][2]


@pytest.fixture(params=["sqlite", "linear-hash"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a copy of the old store."""
    if request.param == "sqlite":
        shutil.copy(DATA / "lacuna.db", tmp_path / "lacuna.db")
        return f"sqlite:///{tmp_path / 'lacuna.db'}"
    shutil.copytree(DATA / "lacuna.lh", tmp_path / "lacuna.lh")
    return f"linear-hash:{tmp_path / 'lacuna.lh'}"


def test_a_hidden_result_is_recalled_under_the_old_tool_name_too(url: str) -> None:
    """A model goes on calling the tool by the name that its history shows."""
    with ContextManager(STRATEGY, model="gpt-5", store=url, session="before", recall="auto") as context:
        context.prepare(_json("history.json"))
        found = {
            name: context.handle_tool_call(name, {"handle": "t3.1"}) for name in ("lacuna_recall", "elision_recall")
        }
    assert set(found.values()) == {_hidden_text()}


def test_an_old_store_recognizes_appends_from_now_on(url: str) -> None:
    """Its records have no ids, and none is taken for a repeated one; what is appended with an id is written once."""
    batch, event = bytes(range(16)), UsageReported(call=1, usage=Usage(input=9))
    store = open_store(url)
    before = list(store.events("before"))
    for after, again in ((0, before), (len(before) - 1, before[-1:])):
        with pytest.raises(ConflictError):
            store.append("before", again, after=after, at=1.0, batch=batch)
    for _ in range(2):
        assert store.append("before", [event], after=len(before), at=1.0, batch=batch) == len(before) + 1
        store.close()
        store = open_store(url)
    assert list(store.events("before")) == [*before, event]
    store.compact()
    assert store.check() == []
    assert store.append("before", [event], after=len(before), at=1.0, batch=batch) == len(before) + 1
    store.close()


def test_an_old_log_is_imported() -> None:
    """`elision sessions import` takes a log of the old form."""
    sessions = LogFile(DATA / "log.jsonl").sessions()
    assert [session.key for session in sessions] == ["before"]


def test_an_old_export_is_a_run() -> None:
    """`elision replay` reads a run of the old form."""
    [run] = read_runs(DATA / "run.jsonl")
    assert isinstance(run, Trajectory)
    assert len(run.turns) == 12
