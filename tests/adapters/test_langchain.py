"""The adapter of LangChain's `create_agent`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.case_runner import list_cases, run_cases
from tests.adapters.conftest import skip_if_missing
from tests.adapters.contract import AdapterContract
from tests.adapters.environments import run_host


class TestLangChain(AdapterContract):
    """Every scenario, with a checkpointer in SQLite."""

    HOST = "langchain"
    HOOK = "tests.adapters.hooks.langchain:attach"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Why each case of tests/adapters/cases/langchain.py failed."""
    skip_if_missing("langchain")
    return run_cases("langchain")


@pytest.mark.parametrize("case", list_cases("langchain"))
def test_case(case: str, outcomes: dict[str, str]) -> None:
    """A case that runs where LangChain is."""
    assert not outcomes[case], outcomes[case]


@pytest.mark.parametrize(("peer", "refused_at"), [("edit", 7), ("summarize", 13)])
def test_its_own_middleware_ends_in_a_refusal(peer: str, refused_at: int, tmp_path: Path) -> None:
    """What docs/frameworks/langchain.md says of bound thinking, by the run of the contract."""
    skip_if_missing("langchain")
    hook = f"tests.adapters.hooks.langchain_peers:{peer}"
    (leg,) = run_host("langchain", tmp_path, hook, ["bound_thinking"]).legs["bound_thinking"]
    assert "Invalid `signature`" in leg.error
    assert len(leg.requests) == refused_at - 1
