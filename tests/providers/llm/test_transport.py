"""One request over HTTP: whatever a server does comes back as a value, in time."""

from __future__ import annotations

import sys

import pytest

from elision.errors import MissingExtra, SpecError
from elision.providers.llm.answers import EndpointFault
from elision.providers.llm.transport import Transport
from tests.summarizers.scripted_server import (
    Reply,
    drip,
    flood,
    hang,
    reply_error,
    reply_json,
    reply_raw,
    reset_connection,
    send_half,
    serve_script,
)


def post(*script: Reply, seconds: float = 10.0) -> object:
    with serve_script(*script) as server:
        return Transport(server.url, {}).post_json({"a": 1}, seconds)


def test_an_object_comes_back() -> None:
    """A JSON object is handed on; headers and body arrive as given."""
    with serve_script(reply_json({"b": 2}), reply_json({"b": 3})) as server:
        transport = Transport(f"{server.url}/v1/x", {"x-api-key": "k"})
        assert transport.post_json({"a": "ä"}, 10) == {"b": 2}
        assert transport.post_json({"a": "\ud800"}, 10) == {"b": 3}
    path, headers, body = server.requests[0]
    assert (path, headers["x-api-key"], headers["content-type"], body) == ("/v1/x", "k", "application/json", {"a": "ä"})


@pytest.mark.parametrize(
    ("reply", "cause", "told"),
    [
        (reply_error(429, "slow down", retry_after="7"), "rate-limited", "HTTP 429"),
        (reply_error(429, "insufficient_quota"), "rejected", "insufficient_quota"),
        (reply_error(500, "oops"), "server", "HTTP 500"),
        (reply_error(529, "overloaded"), "server", "HTTP 529"),
        (reply_error(504, "late"), "timeout", "HTTP 504"),
        (reply_error(401, "no such key"), "rejected", "no such key"),
        (reply_error(400, "prompt is too long: 213462 tokens > 200000 maximum"), "overflow", "213462"),
        (reply_error(413, "request_too_large"), "overflow", "HTTP 413"),
        (reply_raw(302, b"", location="http://127.0.0.1:1/"), "rejected", "HTTP 302"),
        (reply_raw(200, b"<html>Bad gateway</html>"), "malformed", "<html>"),
        (reply_raw(200, b'{"a": '), "malformed", "not a JSON object"),
        (reply_raw(200, b"[1, 2]"), "malformed", "not a JSON object"),
        (reply_raw(200, b"[" * 100_000), "malformed", "not a JSON object"),
        (reply_raw(200, b"\xff\xfe\x00garbage"), "malformed", "not a JSON object"),
        (reply_raw(200, b""), "malformed", "not a JSON object"),
        (reset_connection, "connection", "the connection failed"),
        (send_half, "connection", "the connection failed"),
        (flood, "too-large", "larger than 2,000,000 bytes"),
    ],
)
def test_every_failure_has_a_cause(reply: Reply, cause: str, told: str) -> None:
    """Statuses, broken bodies and broken connections become faults that say what happened."""
    fault = post(reply)
    assert isinstance(fault, EndpointFault)
    assert fault.cause == cause
    assert told in fault.reason


@pytest.mark.parametrize("reply", [hang, drip])
def test_no_server_holds_a_call(reply: Reply) -> None:
    """A call to a server that never answers, or never ends, comes back."""
    fault = post(reply, seconds=0.2)
    assert isinstance(fault, EndpointFault)
    assert fault.cause == "timeout"


def test_nobody_listens() -> None:
    """A port without a server is a fault, too."""
    with serve_script() as server:
        url = server.url
    fault = Transport(url, {}).post_json({}, 2)
    assert isinstance(fault, EndpointFault)
    assert fault.cause == "connection"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after": "Sat, 21 Nov 2026 10:00:30 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_for(headers: dict[str, str], wait: float | None) -> None:
    """Retry-After is read as seconds; a date is read against the server's clock; nonsense is nothing."""
    fault = post(reply_error(429, "slow down", **headers))
    assert isinstance(fault, EndpointFault)
    if "2026" in headers.get("retry_after", ""):
        assert fault.wait_seconds is not None
    else:
        assert fault.wait_seconds == wait


def test_overflow_numbers() -> None:
    """What was sent and what fits is read from each provider's words."""
    for message, sent, room in (
        ("prompt is too long: 213462 tokens > 200000 maximum", 213462, 200000),
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130204 tokens.",
            130204,
            128000,
        ),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1200000, 1048576),
        ("Your input exceeds the context window of this model. context_length_exceeded", None, None),
    ):
        fault = post(reply_error(400, message))
        assert isinstance(fault, EndpointFault)
        assert (fault.cause, fault.prompt_tokens, fault.window_tokens) == ("overflow", sent, room)


def test_secrets_in_a_servers_words_are_redacted() -> None:
    """A server that repeats the key does not bring it into our messages."""
    key = "sk-" + "proj-Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5"
    fault = post(reply_error(401, f"Incorrect API key provided: {key}"))
    assert isinstance(fault, EndpointFault)
    assert key not in fault.reason
    assert "[redacted: openai-key]" in fault.reason


def test_keys_are_not_shown() -> None:
    """A transport shows where it goes, not what it carries."""
    assert "hunter2" not in repr(Transport("https://api.test/v1", {"authorization": "Bearer hunter2"}))


@pytest.mark.parametrize("url", ["", "api.openai.com/v1", "ftp://x/y", "http://"])
def test_no_url(url: str) -> None:
    """What is not a base URL is refused at once."""
    with pytest.raises(SpecError, match="is not a base URL"):
        Transport(url, {})


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without urllib3 the error names the extra."""
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[llm\]"):
        Transport("http://127.0.0.1:1", {})
