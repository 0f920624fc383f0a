"""Damage to an adapter's store, behind two frameworks: their agents go on, and what was hidden stays hidden."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from elision.stores.store_urls import open_store
from tests.adapters import checks
from tests.adapters.conftest import skip_if_missing
from tests.adapters.environments import run_host

#: Each has messages of its own, and calls the model in its own way.
HOSTS = ("langchain", "openai_agents")
#: Turns of both legs of the scenario `resumed`, whose second leg is another process.
FIRST, SECOND = 24, 10


@pytest.mark.parametrize("damage", ["record", "file"])
@pytest.mark.parametrize("host", HOSTS)
def test_an_agent_goes_on_after_damage(host: str, damage: str, tmp_path: Path) -> None:
    """Its run ends as it should, it hides results, and the store has every turn again: beside the damaged session, or
    beside the file that takes no writes any more."""
    skip_if_missing(host)
    played = run_host(host, tmp_path, f"tests.adapters.hooks.{host}:attach", ["resumed"], damage)
    first, second = played.legs["resumed"]
    assert (first.error, second.error) == ("", "")
    assert len(second.requests) == SECOND + 1
    checks.check_masked(second, 10)
    url = played.find_store("resumed")
    kept = Path(url.removeprefix("sqlite:///")).with_name("elision.db.damaged")
    assert kept.exists() == (damage == "file")
    with closing(open_store(url)) as store:
        newest = store.sessions()[0].key
        turns = [turn.index for turn in store.turns(newest)]
    assert turns[: FIRST + SECOND] == list(range(1, FIRST + SECOND + 1))
