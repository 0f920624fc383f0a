"""Where requests go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.routes import Route, build_url, find_route

OPENAI, ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com"


def _sent(method: str, path: bytes, *names: str, query: bytes = b"") -> tuple[str | None, str, str, str]:
    """(api, upstream, kind, address) of a request."""
    found = find_route(method, path, query, names)
    assert found is not None
    base = OPENAI if found.upstream == "openai" else ANTHROPIC
    return found.api, found.upstream, found.kind, build_url(base, found)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/v1/chat/completions", ("openai", "openai", "complete", f"{OPENAI}/chat/completions")),
        (b"/v1/responses", ("openai-responses", "openai", "complete", f"{OPENAI}/responses")),
        (b"/v1/messages", ("anthropic", "anthropic", "complete", f"{ANTHROPIC}/v1/messages")),
        (b"/v1/messages/count_tokens", ("anthropic", "anthropic", "count", f"{ANTHROPIC}/v1/messages/count_tokens")),
        (b"/openai/v1/chat/completions", ("openai", "openai", "complete", f"{OPENAI}/chat/completions")),
        (b"/openai/chat/completions", ("openai", "openai", "complete", f"{OPENAI}/chat/completions")),
        (b"/openai/responses", ("openai-responses", "openai", "complete", f"{OPENAI}/responses")),
        (b"/anthropic/v1/messages", ("anthropic", "anthropic", "complete", f"{ANTHROPIC}/v1/messages")),
        (b"/anthropic/messages", ("anthropic", "anthropic", "complete", f"{ANTHROPIC}/v1/messages")),
        # The path says which API, the prefix says whose server: both serve the other's shape here and there.
        (b"/anthropic/v1/chat/completions", ("openai", "anthropic", "complete", f"{ANTHROPIC}/v1/chat/completions")),
        (b"/openai/v1/messages", ("anthropic", "openai", "complete", f"{OPENAI}/messages")),
    ],
)
def test_endpoints(path: bytes, expected: tuple[str, str, str, str]) -> None:
    """What is posted to an endpoint of the three APIs is read, below /v1 and below both prefixes."""
    assert _sent("POST", path) == expected


@pytest.mark.parametrize(
    ("method", "path", "names", "upstream", "address"),
    [
        ("GET", b"/v1/models", (), "openai", f"{OPENAI}/models"),
        ("GET", b"/v1/models", ("anthropic-version",), "anthropic", f"{ANTHROPIC}/v1/models"),
        ("GET", b"/v1/models", ("x-api-key",), "anthropic", f"{ANTHROPIC}/v1/models"),
        ("GET", b"/v1/models", ("authorization",), "openai", f"{OPENAI}/models"),
        ("GET", b"/openai/models", ("x-api-key",), "openai", f"{OPENAI}/models"),
        ("GET", b"/anthropic/models", (), "anthropic", f"{ANTHROPIC}/v1/models"),
        ("POST", b"/v1/messages/batches", (), "anthropic", f"{ANTHROPIC}/v1/messages/batches"),
        ("POST", b"/v1/responses/compact", (), "openai", f"{OPENAI}/responses/compact"),
        ("GET", b"/v1/responses/resp_1", (), "openai", f"{OPENAI}/responses/resp_1"),
        ("GET", b"/v1/chat/completions", (), "openai", f"{OPENAI}/chat/completions"),
        ("DELETE", b"/v1/files/f", (), "openai", f"{OPENAI}/files/f"),
        ("POST", b"/anthropic/api/event_logging/batch", (), "anthropic", f"{ANTHROPIC}/api/event_logging/batch"),
        ("POST", b"/openai/v1beta/x", (), "openai", "https://api.openai.com/v1beta/x"),
        ("GET", b"/v1", (), "openai", OPENAI),
        ("GET", b"/openai", (), "openai", OPENAI),
    ],
)
def test_everything_else_passes(method: str, path: bytes, names: tuple[str, ...], upstream: str, address: str) -> None:
    """What no table knows goes on unread, to the provider that its prefix, path or headers name."""
    assert _sent(method, path, *names) == (None, upstream, "pass", address)


@pytest.mark.parametrize(
    "path",
    [
        b"/",
        b"",
        b"*",
        b"/metrics",
        b"/v2/x",
        b"/v1x/messages",
        b"//v1/messages",
        b"/V1/messages",
        b"http://h/v1/messages",
    ],
)
def test_pages_of_ours_are_no_route(path: bytes) -> None:
    """What stands below none of the three prefixes is for no provider."""
    assert find_route("POST", path, b"", ()) is None


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/../metrics",
        b"/v1/..",
        b"/openai/v1/../../metrics",
        b"/v1/%2e%2e/metrics",
        b"/v1/.%2E/metrics",
        b"/v1/x%2f..%2f..%2fmetrics",
        b"/v1/..%5cmetrics",
        b"/v1/./messages",
    ],
)
def test_no_path_climbs(path: bytes) -> None:
    """A path with dot segments, plain or encoded, reaches neither a provider nor a page of ours."""
    assert find_route("POST", path, b"", ()) is None


@pytest.mark.parametrize("path", [b"/v1/%6dessages", b"/v1/messages/", b"/v1//messages", b"/v1/messages%2F"])
def test_odd_spellings_are_read_and_sent_as_they_are(path: bytes) -> None:
    """How a path is spelt does not get round what is done to its endpoint; upstream it stays as it was spelt."""
    assert _sent("POST", path) == ("anthropic", "anthropic", "complete", ANTHROPIC + path.decode())


def test_query_stays_as_it_is() -> None:
    """A query is neither decoded nor sorted; one that is empty leaves no question mark."""
    query = b"beta=true&b=%2f+%20&a=&&a=1?x"
    assert _sent("POST", b"/v1/messages", query=query)[3] == f"{ANTHROPIC}/v1/messages?{query.decode()}"


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("https://host", "https://host/v1/chat/completions"),
        ("https://host/", "https://host/v1/chat/completions"),
        ("https://host/v1", "https://host/v1/chat/completions"),
        ("https://host/v1/", "https://host/v1/chat/completions"),
        ("https://host/api", "https://host/api/v1/chat/completions"),
        ("https://host/api/v1", "https://host/api/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/chat/completions"),
        ("https://host/api/paas/v4", "https://host/api/paas/v4/chat/completions"),
        ("https://host/v1beta/openai", "https://host/v1beta/openai/chat/completions"),
        ("https://host/v1/account/gateway/openai", "https://host/v1/account/gateway/openai/chat/completions"),
    ],
)
def test_bases_of_openai_servers(base: str, address: str) -> None:
    """An address is taken as the provider's own clients take it, and where it has no version it gets /v1."""
    found = find_route("POST", b"/v1/chat/completions", b"", ())
    assert found is not None
    assert build_url(base, found) == address


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("https://host", "https://host/v1/messages"),
        ("https://host/v1", "https://host/v1/messages"),
        ("https://host/anthropic", "https://host/anthropic/v1/messages"),
        ("https://host/v1/account/gateway/anthropic", "https://host/v1/account/gateway/anthropic/v1/messages"),
    ],
)
def test_bases_of_anthropic_servers(base: str, address: str) -> None:
    """Anthropic's clients write /v1 themselves: only one at the end of the address stands for it."""
    found = find_route("POST", b"/v1/messages", b"", ())
    assert found is not None
    assert build_url(base, found) == address


@pytest.mark.parametrize("base", ["https://r.openai.azure.com/openai", "https://r.openai.azure.com/openai/v1/"])
def test_azure_deployments_stand_beside_v1(base: str) -> None:
    """Azure's older paths are passed on to where they are."""
    found = find_route("POST", b"/openai/deployments/d/chat/completions", b"api-version=1", ())
    assert found is not None
    assert build_url(base, found) == "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=1"


@given(st.binary(max_size=40), st.binary(max_size=20))
def test_any_bytes_make_a_plain_address(path: bytes, query: bytes) -> None:
    """Whatever is asked for, the address begins with the provider's and is printable ASCII without a fragment."""
    found = find_route("POST", b"/v1/" + path, query, ())
    if found is not None:
        address = build_url(OPENAI, found)
        assert address.startswith(f"{OPENAI}/") or found.upstream == "anthropic"
        assert set(address) <= {chr(code) for code in range(0x21, 0x7F)} - {"#"}


@given(st.text("abcXYZ019/-_.~%!$&'()*+,;=:@", max_size=30))
def test_plain_paths_keep_their_bytes(path: str) -> None:
    """A path of the characters that paths are made of arrives as it was."""
    found = find_route("GET", b"/v1/" + path.encode(), b"", ())
    assert found is None or build_url(OPENAI, found) == f"{OPENAI}/{path}"


def test_a_route_is_a_value() -> None:
    """Two requests for the same place have equal routes."""
    one = find_route("POST", b"/v1/responses", b"", ())
    assert one == Route(api="openai-responses", upstream="openai", kind="complete", path=b"/responses")
