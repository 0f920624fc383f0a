"""One bill for a tree: an agent, those that it started, and the side calls of its client."""

from __future__ import annotations

from typing import Any

import pytest

from elision import Advanced, ContextManager
from elision.gateway.dashboard.session_cache import SessionTrees
from elision.stores.memory import MemoryStore
from elision.stores.store import Relation, SessionInfo
from tests.gateway.dashboard.api_client import DashboardClient
from tests.manager.agents import make_history

TITLE = [
    {"role": "system", "content": "You are a title generator. You output ONLY a thread title."},
    {"role": "user", "content": "mend the parser"},
]


def keep(store: MemoryStore, session: str, messages: list[Any], *, shadow: bool = False, **advanced: Any) -> None:
    advanced = {key: value for key, value in advanced.items() if value}
    with ContextManager(
        "masking", model="gpt-5", store=store, session=session, shadow=shadow, advanced=Advanced(**advanced)
    ) as context:
        context.prepare(messages)
        context.record({"prompt_tokens": 2_000, "completion_tokens": 5})
        context.keep([*messages, {"role": "assistant", "content": "Done."}])


def test_a_tree_has_one_bill_by_role() -> None:
    store = MemoryStore()
    keep(store, "main", make_history("openai", 2))
    keep(store, "helper", make_history("openai", 1, "Look for it."), parent="main")
    keep(store, "helper of helper", make_history("openai", 1, "Look there."), parent="helper")
    keep(store, "title", TITLE, parent="main")
    keep(store, "another", make_history("openai", 3, "Mend the lexer."))
    keep(store, "tried", make_history("openai", 3, "Mend the writer."), shadow=True)
    asking = DashboardClient(store)
    totals = asking.get_path("/elision/api/totals").json
    assert {role: found["sessions"] for role, found in totals["roles"].items()} == {
        "main": 2,
        "sub-agent": 2,
        "side": 1,
    }
    assert sum(found["usd"] for found in totals["roles"].values()) == pytest.approx(totals["usd"])
    for session in ("main", "helper of helper", "title"):
        tree = asking.get_session(session)["tree"]
        assert (tree["sessions"], tree["unread"]) == (4, 0)
        assert {role: found["sessions"] for role, found in tree["roles"].items()} == {
            "main": 1,
            "sub-agent": 2,
            "side": 1,
        }
    alone = asking.get_session("another")["tree"]
    assert alone["roles"].keys() == {"main"}
    rows = asking.get_path("/elision/api/sessions").json["sessions"]
    assert {row["name"]: row["role"] for row in rows}["title"] == "side"


def make_info(key: str, family: str, parent: str = "") -> SessionInfo:
    relation: Relation = "sub-agent" if parent else ""
    return SessionInfo(
        key=key, family=family, parent=parent, relation=relation, begun=0.0, changed=0.0, records=1, turns=1
    )


def test_a_clients_id_joins_what_its_credential_does_not() -> None:
    """Side calls of Claude Code have their session's id; all that one key sends is not one tree."""
    infos = [
        make_info("a", "k1/s1"),
        make_info("title", "k1/s1"),
        make_info("b", "k1/s1:agent", "a"),
        make_info("c", "k1"),
        make_info("d", "k1"),
        make_info("e", "k2/s1"),
    ]
    for place in range(3):
        assert {info.key for info in SessionTrees(infos).find_tree(infos[place])} == {"a", "title", "b"}
    assert [info.key for info in SessionTrees(infos).find_tree(infos[3])] == ["c"]
    assert [info.key for info in SessionTrees(()).find_tree(infos[3])] == ["c"]
