"""The adapter of LangChain's `create_agent`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract
from tests.adapters.environments import run_host


class TestLangChain(AdapterContract):
    """Every scenario, with a checkpointer in SQLite."""

    HOST = "langchain"
    HOOK = "tests.adapters.hooks.langchain:attach"


@pytest.mark.parametrize(("peer", "refused_at"), [("edit", 7), ("summarize", 13)])
def test_its_own_middleware_ends_in_a_refusal(peer: str, refused_at: int, tmp_path: Path) -> None:
    """What docs/frameworks/langchain.md says of bound thinking, by the run of the contract."""
    skip_if_missing("langchain")
    hook = f"tests.adapters.hooks.langchain_peers:{peer}"
    (leg,) = run_host("langchain", tmp_path, hook, ["bound_thinking"]).legs["bound_thinking"]
    assert "Invalid `signature`" in leg.error
    assert len(leg.requests) == refused_at - 1
