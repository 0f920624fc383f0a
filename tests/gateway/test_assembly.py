"""The secret that API keys are hashed with: one for all gateways on a store, and no other's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from elision.errors import StoreError
from elision.gateway.assembly import keep_in_file, load_gateway_secret
from elision.stores.memory import MemoryStore
from elision.stores.store_urls import open_store
from tests.gateway.conversation_bytes import make_body
from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import make_settings


@pytest.mark.parametrize("scheme", ["sqlite", "linear-hash"])
def test_two_gateways_on_one_store_have_one_secret(scheme: str, tmp_path: Path) -> None:
    """It is made at the first start, for its owner's eyes alone, and found at every later one."""
    place = f"{scheme}:///{tmp_path}/kept"
    found = make_settings(store=place, gateway_off=False)
    store = open_store(place)
    try:
        first, second = load_gateway_secret(found, store), load_gateway_secret(found, store)
    finally:
        store.close()
    assert first == second
    assert len(first) == 32
    (kept,) = tmp_path.glob("*.secret")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_another_store_has_another_secret(tmp_path: Path) -> None:
    """What one store says of a key tells nothing to whoever has another."""
    assert keep_in_file(tmp_path / "one", b"1" * 32) != keep_in_file(tmp_path / "other", b"2" * 32)


def test_who_comes_second_takes_the_first_ones(tmp_path: Path) -> None:
    """Two that begin at once agree: whole files alone are put there, and never over another."""
    assert keep_in_file(tmp_path / "kept", b"1" * 32) == keep_in_file(tmp_path / "kept", b"2" * 32) == b"1" * 32
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_the_setting_goes_before_what_is_kept() -> None:
    """Gateways with stores of their own can be made to name a client alike."""
    found = make_settings(gateway_secret="given-to-all-of-them", gateway_off=False)
    assert load_gateway_secret(found, MemoryStore()) == b"given-to-all-of-them"
    assert "given-to-all-of-them" not in repr(found)


@pytest.mark.parametrize("text", ["", "not hex", "abcd"])
def test_a_damaged_file_is_told_of(text: str, tmp_path: Path) -> None:
    """It is never replaced in silence: every client would be somebody else."""
    (tmp_path / "kept").write_text(text)
    with pytest.raises(StoreError, match="holds no secret"):
        keep_in_file(tmp_path / "kept", b"1" * 32)
    assert (tmp_path / "kept").read_text() == text


def test_a_place_that_takes_no_file_is_told_of(tmp_path: Path) -> None:
    """With what can be done instead."""
    with pytest.raises(StoreError, match="ELISION_GATEWAY_SECRET"):
        keep_in_file(tmp_path / "nowhere" / "kept", b"1" * 32)


async def families(place: str, **given: str) -> set[str]:
    """What a gateway on the store at `place` calls the client of one request, and of all before."""

    async with open_trial(store=place, **given) as (gateway, *_):
        assert (await gateway.ask(make_body("openai", 2), "authorization: Bearer sk-1")).status == 200
    store = open_store(place)
    try:
        return {info.family for info in store.sessions()}
    finally:
        store.close()


async def test_a_client_has_one_name_at_all_gateways_of_a_store(tmp_path: Path) -> None:
    """Its history goes on wherever it asks; under another secret it is somebody else."""
    place = f"sqlite:///{tmp_path}/kept.db"
    (first,) = await families(place)
    assert first.startswith("k")
    assert await families(place) == {first}
    assert len(await families(place, gateway_secret="another-secret-altogether")) == 2
