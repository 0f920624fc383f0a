"""A gateway in a thread, in front of recorded runs."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection

import pytest

from elision.errors import ElisionError
from elision.gateway.server import GatewayThread
from elision.testing.builders import step, trajectory, turn
from elision.testing.playback import Playback
from tests.gateway.loopback_gateway import make_settings

RUN = trajectory(step(1), step(2), turn(3, text="All tests pass now."), id="small")
ASKED = {"model": "run:small", "max_tokens": 100, "messages": [{"role": "user", "content": "Mend the parser."}]}


@pytest.mark.parametrize("off", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_recorded_run_through_a_gateway(path: str, off: bool) -> None:
    """It serves while the `with` statement lasts, and what it sends on is what the provider takes."""
    with Playback(RUN) as provider, GatewayThread(make_settings(provider.url, gateway_off=off)) as gateway:
        connection = HTTPConnection(gateway.url.removeprefix("http://"))
        connection.request("POST", path, json.dumps(ASKED), {"content-type": "application/json"})
        answer = connection.getresponse()
        assert (answer.status, "make step-1" in answer.read().decode()) == (200, True)
        connection.close()
        assert provider.violations == []
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection(gateway.url.removeprefix("http://")).connect()


def test_a_websocket_of_another_api_is_refused_at_once() -> None:
    """A client that tries one first sends plain requests as soon as it has the answer; the upstream never sees it."""
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    with Playback(RUN) as provider, GatewayThread(make_settings(provider.url)) as gateway:
        connection = HTTPConnection(gateway.url.removeprefix("http://"))
        connection.request("GET", "/v1/chat/completions", headers=upgrade)
        answer = connection.getresponse()
        assert answer.status == 426
        assert b"WebSockets are served at /v1/responses only" in answer.read()
        connection.close()
        assert provider.requests == []


def test_a_gateway_that_cannot_begin() -> None:
    """What is wrong is raised where it is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = make_settings(gateway_port=taken.getsockname()[1])
        with pytest.raises(ElisionError, match="cannot listen at"):
            GatewayThread(given).start()
    with pytest.raises(ElisionError, match=r"not\.there"):
        GatewayThread(make_settings(gateway_off=False, store="sqlite:////dev/null/not.there")).start()
