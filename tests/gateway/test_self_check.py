"""`elision serve --check`: what is tried, and how it is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from elision.errors import StoreError
from elision.gateway.self_check import CheckResult, run_checks
from elision.gateway.server import bind_socket
from elision.providers.provider_table import HOSTS
from elision.stores.store_urls import open_store
from tests.gateway.loopback_gateway import make_settings
from tests.gateway.scripted_upstream import answer_always, render_response, run_scripted_upstream


def found(status: str = "200 OK", **given: Any) -> dict[str, CheckResult]:
    """What is found where providers answer with `status`."""

    async def run() -> dict[str, CheckResult]:
        async with run_scripted_upstream(answer_always(render_response(b"", status))) as upstream:
            told = {
                "gateway_upstream_openai": upstream.url,
                "gateway_upstream_anthropic": f"{upstream.url}/v1",
                "gateway_upstream_gemini": f"{upstream.url}/v1",
            }
            results = await run_checks(make_settings(**({"gateway_off": False} | told | given)))
            for asked in upstream.requests:
                assert asked.line == "GET /v1/models HTTP/1.1"
                assert asked.get_header("authorization") is asked.get_header("x-api-key") is None
            return {each.subject: each for each in results}

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "ok", "said"),
    [
        ("200 OK", True, "reached (200)"),
        ("401 Unauthorized", True, "reached; it wants a key (401), which clients send"),
        ("404 Not Found", True, "is the address right?"),
        ("503 Service Unavailable", False, "reached, but it failed (503)"),
    ],
)
def test_providers_are_asked_without_a_key(status: str, ok: bool, said: str) -> None:
    """Whoever wants a key was reached; whoever fails was reached too, and is no good."""
    results = found(status)
    for name in ("upstream openai", "upstream anthropic", "upstream gemini"):
        assert results[name].is_ok is ok
        assert said in results[name].message


def test_providers_that_are_not_there() -> None:
    """Each failure has its words; an API that is not served is not tried, and none at all is a failure."""
    results = found(gateway_upstream_openai="http://127.0.0.1:1", gateway_upstream_anthropic="http://nowhere.invalid")
    assert results["upstream openai"].message == "nothing listens at http://127.0.0.1:1"
    assert "is not known" in results["upstream anthropic"].message
    assert not any(results[name].is_ok for name in ("upstream openai", "upstream anthropic"))
    absent = {f"gateway_upstream_{name}": "none" for name in HOSTS}
    assert not found(**absent)["upstream"].is_ok


def test_stores(tmp_path: Path) -> None:
    """One that is there answers, one that is not is not made for this, one that cannot be made is a failure."""
    assert found(store="memory:")["store"].message == "can be written"
    missing = found(store=f"sqlite:///{tmp_path}/agent.db")["store"]
    assert (missing.is_ok, missing.message) == (True, "does not exist yet; it is created at the start")
    for scheme in ("sqlite", "linear-hash"):
        nowhere = found(store=f"{scheme}:///{tmp_path}/new/agents")["store"]
        assert (nowhere.is_ok, nowhere.message) == (
            False,
            f"cannot be made: there is no folder {tmp_path}/new; make it first",
        )
        with pytest.raises(StoreError):
            open_store(f"{scheme}:///{tmp_path}/new/agents")
    assert not list(tmp_path.iterdir())
    (tmp_path / "broken.db").write_bytes(b"no database" * 100)
    assert not found(store=f"sqlite:///{tmp_path}/broken.db")["store"].is_ok
    unreached = found(store="postgresql://me:hunter2@127.0.0.1:1/agents")["store"]
    assert not unreached.is_ok
    assert "hunter2" not in unreached.message + unreached.address
    assert found(store="postgresql://127.0.0.1:1/agents", gateway_off=True)["store"].is_ok


def test_the_port() -> None:
    """A port that somebody has is told."""
    with bind_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = found(gateway_port=taken.getsockname()[1])["port"]
    assert not port.is_ok
    assert "another gateway" in port.message
