"""Who may see the gateway's own pages: on loopback whoever sits there, beyond it who has the token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import HttpClient, make_settings, run_gateway
from tests.gateway.scripted_upstream import answer_always, render_response

TOKEN = "correct-horse-battery"
PAGES = ("/", "/metrics", "/elision/api/totals", "/elision/no-such-page")


@asynccontextmanager
async def open_client(**given: Any) -> AsyncIterator[HttpClient]:
    """A connection to a gateway."""
    async with run_gateway(make_settings(**given)) as gateway:
        client = await gateway.connect()
        yield client
        client.close()


async def test_names_of_this_machine() -> None:
    """A browser on it opens the page by any of its own names; a page elsewhere whose name points here now is refused,
    whatever it asks for."""
    async with open_client() as client:
        for host in ("127.0.0.1:8377", "localhost", "localhost:1", "[::1]:8377", "gateway.localhost"):
            assert (await client.request("GET", "/", b"", f"host: {host}")).status == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example:8377", "192.168.0.9", "", "localhost.evil"):
            for path in PAGES:
                got = await client.request("GET", path, b"", f"host: {host}")
                assert (got.status, b"for this machine" in got.body) == (403, True), (host, path)


async def test_health_is_open() -> None:
    """Load balancers ask by address or any name, and without a token."""
    async with open_client(
        gateway_upstream_openai="http://127.0.0.1:1", gateway_admin_token=TOKEN, gateway_host="0.0.0.0"
    ) as client:
        for path in ("/healthz", "/readyz"):
            assert (await client.request("GET", path, b"", "host: 10.1.2.3")).status == 200


async def test_beyond_loopback_it_takes_the_token() -> None:
    """As a header, or as a cookie that the address sets once; by any name, and nothing else will do."""
    async with open_client(gateway_host="0.0.0.0", gateway_admin_token=TOKEN) as client:
        host = "host: gateway.example"
        for path in PAGES:
            got = await client.request("GET", path, b"", host)
            assert (got.status, got.headers["www-authenticate"]) == (401, "Bearer")
        for wrong in (
            "authorization: Bearer nonsense",
            f"authorization: Basic {TOKEN}",
            f"cookie: elision_admin={TOKEN}",
        ):
            assert (await client.request("GET", "/", b"", host, wrong)).status == 401
        assert (await client.request("GET", "/?token=nonsense", b"", host)).status == 401
        assert (await client.request("GET", "/metrics", b"", host, f"authorization: Bearer {TOKEN}")).status == 200

        opened = await client.request("GET", f"/?token={TOKEN}&session=a%26b", b"", host)
        assert (opened.status, opened.headers["location"]) == (303, "/?session=a%26b")
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert TOKEN not in cookie
        assert (await client.request("GET", "/", b"", host, f"cookie: {cookie.split(';')[0]}")).status == 200


async def test_where_the_token_leads() -> None:
    """The page is the one that was asked for, and never another machine's; on loopback it is wanted, too, where one is
    set, since others may use the machine."""
    async with open_client(gateway_admin_token=TOKEN) as client:
        assert (await client.request("GET", f"//evil.example/?token={TOKEN}")).status != 303
        got = await client.request("GET", f"/elision//evil.example?token={TOKEN}")
        assert got.headers["location"].startswith("/elision/")
        assert (await client.request("GET", "/")).status == 401
        assert (await client.request("GET", "/", b"", f"authorization: Bearer {TOKEN}")).status == 200


async def test_other_sites_change_nothing() -> None:
    """A request that is more than a look, sent by another site's page, is refused."""
    async with open_client() as client:
        got = await client.request("POST", "/elision/api/totals", b"", "origin: https://evil.example")
        assert (got.status, got.body) == (403, b"another site's page asks for this\n")
        got = await client.request("POST", "/elision/api/totals", b"", "origin: http://127.0.0.1", "host: 127.0.0.1")
        assert got.status == 405


async def test_the_api_needs_no_token() -> None:
    """Clients bring their provider's key; the token is for the owner's pages alone, and is never sent on."""
    async with open_trial(
        answer_always(render_response(b"ok")), gateway_host="0.0.0.0", gateway_admin_token=TOKEN, gateway_off=True
    ) as (*_, client):
        got = await client.request("POST", "/v1/chat/completions", b"{}", "host: any.example")
        assert got.body == b"ok"


async def test_not_ready() -> None:
    """A gateway without a provider, or whose store does not answer, is alive and not ready; it says which."""
    async with open_client() as client:
        assert (await client.request("GET", "/healthz")).status == 200
        got = await client.request("GET", "/readyz")
        assert got.status == 503
        assert got.json() == {
            "ready": False,
            "store": True,
            "stored": True,
            "upstream_configured": False,
            "not_draining": True,
            "upstream_reached": None,
            "warm": True,
        }


async def test_a_provider_that_is_not_reached() -> None:
    """Readiness says so as soon as a request has found out, and until one is answered; it stays ready."""
    async with open_trial(
        answer_always(render_response(b"ok")), gateway_upstream_anthropic="http://127.0.0.1:9", gateway_off=True
    ) as (*_, client):

        async def reached() -> object:
            got = await client.request("GET", "/readyz")
            assert got.status == 200
            return got.json()["upstream_reached"]

        assert await reached() is None
        assert (await client.request("POST", "/v1/messages", b"{}")).status == 502
        assert await reached() is False
        assert (await client.request("POST", "/v1/chat/completions", b"{}")).status == 200
        assert await reached() is True
