"""The playback server over real sockets, without any provider's package on the client's side."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from http.client import IncompleteRead, RemoteDisconnected
from typing import Any

import pytest

from elision.errors import ElisionError
from elision.gateway import upstream
from elision.providers.provider import Api
from elision.testing import playback
from elision.testing.builders import commands, step, trajectory, turn
from elision.testing.exchange import Broken, Cut, Garbled, Refused, Slow
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from elision.testing.recorded_provider import RESPONSE_FORMATS, Terms
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage
from tests.soak import pair_cases, sample_cases
from tests.testing.conftest import ADDRESS, Plain

APIS: tuple[Api, ...] = (*RESPONSE_FORMATS,)
HI: dict[Api, dict[str, Any]] = {
    "openai": {"messages": [{"role": "user", "content": "Mend the parser."}]},
    "openai-responses": {"input": "Mend the parser."},
    "anthropic": {"messages": [{"role": "user", "content": "Mend the parser."}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Mend the parser."}]}]},
}
RUN = trajectory(step(1), step(2), turn(3, text="All tests pass now, and the parser is mended."), id="small")


@pytest.fixture
def server() -> Any:
    """A small run, played."""
    with Playback(RUN) as playing:
        yield playing


def events(data: bytes) -> list[tuple[str, str]]:
    """(name, data) of every event of a stream."""
    found = []
    for frame in data.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines())
        found.append((fields.get("event", ""), fields["data"]))
    return found


@pytest.mark.parametrize(
    ("api", "name"), sample_cases(pair_cases(APIS, ["openhands-pylint", "swe-agent-sympy-20801"]), 3)
)
def test_a_whole_run_is_played(api: Api, name: str, runs: dict[str, Trajectory]) -> None:
    """A client that gives back the recorded results is told the recorded answers, every request being sound."""
    with Playback(runs.values()) as server:
        client, follower = Plain(server), Follower(runs[name], api)
        while not follower.done:
            status, _, body = client.ask(api, {**follower.request, "model": f"run:{runs[name].id}"})
            assert status == 200, body
            follower.take(json.loads(body))
        client.close()
        assert server.violations == []
        assert [request.turn for request in server.requests] == [turn.index for turn in runs[name].turns]


@pytest.mark.parametrize("api", APIS)
def test_concurrent_runs_do_not_mix(api: Api, server: Playback) -> None:
    """Eight clients at once are each told their own run, turn by turn, whichever model they name."""
    every = [trajectory(*(step(i, f"{n} {i}") for i in range(1, 9)), id=f"r{n}", task=f"Task {n}.") for n in range(8)]

    def follow(run: Trajectory) -> int:
        client, follower = Plain(played), Follower(run, api)
        while not follower.done:
            follower.take(json.loads(client.ask(api, follower.request)[2]))
        client.close()
        return follower.turn

    with Playback(every) as played, ThreadPoolExecutor(8) as pool:
        assert [*pool.map(follow, every)] == [9] * 8
        assert played.violations == []
        assert len(played.requests) == 64


@pytest.mark.parametrize("api", APIS)
def test_a_retry_is_answered_alike(api: Api, plain: Plain, server: Playback) -> None:
    """The same history is answered with the same turn, however often it is sent."""
    for _ in range(3):
        assert plain.ask(api, HI[api])[0] == 200
    assert [request.turn for request in server.requests] == [1, 1, 1]


@pytest.mark.parametrize("api", APIS)
def test_usage_is_that_of_a_cache(api: Api, plain: Plain, server: Playback) -> None:
    """What was sent before is read, and told in the words of the API."""
    text = "A long and stable system prompt. " * 300
    extra: dict[Api, dict[str, Any]] = {
        "openai": {"messages": [{"role": "system", "content": text}, *HI["openai"]["messages"]]},
        "openai-responses": {"instructions": text},
        "anthropic": {"system": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]},
        "gemini": {"systemInstruction": {"parts": [{"text": text}]}},
    }
    told = [json.loads(plain.ask(api, {**HI[api], **extra[api]})[2]) for _ in range(2)]
    first, second = server.requests[0].usage, server.requests[1].usage
    assert first is not None
    assert second is not None
    assert first.cache_read == 0
    assert second.cache_read > 1_024
    where: dict[Api, tuple[str, ...]] = {
        "openai": ("usage", "prompt_tokens_details", "cached_tokens"),
        "openai-responses": ("usage", "input_tokens_details", "cached_tokens"),
        "anthropic": ("usage", "cache_read_input_tokens"),
        "gemini": ("usageMetadata", "cachedContentTokenCount"),
    }
    value = told[1]
    for name in where[api]:
        value = value[name]
    assert value == second.cache_read


def test_recorded_usage_by_wish(runs: dict[str, Trajectory]) -> None:
    """With `usage="recorded"` the numbers are those of the recording."""
    run = runs["mini-swe-agent-marshmallow-1343"]
    with Playback(run, Terms(usage="recorded")) as server:
        client = Plain(server)
        client.ask("openai", HI["openai"])
        client.close()
        assert server.requests[0].usage == run.turns[0].usage


@pytest.mark.parametrize("api", APIS)
def test_streams_hold_what_a_plain_answer_holds(api: Api, plain: Plain) -> None:
    """A stream is many events, named where the API names them, in its order, and ends as it must."""
    status, headers, data = plain.ask(api, {**HI[api], "stream": True})
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["transfer-encoding"] == "chunked"
    names = [name for name, _ in events(data)]
    first, last = {
        "openai": ("", ""),
        "openai-responses": ("response.created", "response.completed"),
        "anthropic": ("message_start", "message_stop"),
        "gemini": ("", ""),
    }[api]
    assert (names[0], names[-1]) == (first, last)
    assert len(names) > 1
    if api == "openai":
        assert events(data)[-1][1] == "[DONE]"
    if api == "openai-responses":
        assert [json.loads(told)["sequence_number"] for _, told in events(data)] == list(range(len(names)))


@pytest.mark.parametrize("api", APIS)
def test_unsound_requests_are_refused_in_the_providers_words(api: Api, plain: Plain, server: Playback) -> None:
    """A call without its result is refused with 400 in the provider's error shape, and is on record."""
    broken: dict[Api, dict[str, Any]] = {
        "openai": {
            "messages": [
                *HI["openai"]["messages"],
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
                    ],
                },
                {"role": "user", "content": "Well?"},
            ]
        },
        "openai-responses": {
            "input": [{"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{}"}],
        },
        "anthropic": {
            "messages": [
                *HI["anthropic"]["messages"],
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "bash", "input": {}}]},
                {"role": "user", "content": "Well?"},
            ]
        },
        "gemini": {
            "contents": [
                *HI["gemini"]["contents"],
                {"role": "model", "parts": [{"functionCall": {"name": "bash", "args": {}}}]},
                {"role": "user", "parts": [{"text": "Well?"}]},
            ]
        },
    }
    status, _, body = plain.ask(api, broken[api])
    error = json.loads(body)["error"]
    kind = error["status"] if api == "gemini" else error["type"]
    assert (status, kind) == (400, "INVALID_ARGUMENT" if api == "gemini" else "invalid_request_error")
    assert error["message"] in server.violations[0]
    assert server.requests[0].status == 400


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'"text"', b"null", b"{}", b'{"model": 1, "messages": {}}']
)
def test_no_body_breaks_the_server(api: Api, body: bytes, plain: Plain) -> None:
    """Whatever is posted, the answer is 400 in the provider's shape, and the connection goes on."""
    for _ in range(2):
        status, _, said = plain.post(ADDRESS[api], body)
        assert status == 400
        assert json.loads(said)["error"]["message"]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_wrong_types_are_named(api: Api, plain: Plain, server: Playback) -> None:
    """A field of the wrong type is named by its path, deep inside the messages too."""
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}
    assert plain.ask(api, body)[0] == 400
    assert server.violations[0].startswith("messages.0.content.0.")
    assert server.violations[0].endswith("text: Input should be a valid string")


def test_models_in_both_shapes(plain: Plain) -> None:
    """The runs are listed as models, in OpenAI's shape or, where the client is Anthropic's, in that."""
    assert json.loads(plain.get("/v1/models")[2])["data"][0] == {
        "id": "run:small",
        "object": "model",
        "created": 0,
        "owned_by": "recording",
    }
    listed = json.loads(plain.get("/v1/models", **{"anthropic-version": "2023-06-01"})[2])
    assert (listed["first_id"], listed["has_more"]) == ("run:small", False)


def test_unknown_models_and_histories(plain: Plain) -> None:
    """A run that is not there, and a history that is of no run, are 404 with the names there are."""
    for body in (
        {**HI["openai"], "model": "run:nowhere"},
        {"messages": [{"role": "assistant", "content": "Never said."}, {"role": "user", "content": "Go on."}]},
    ):
        status, _, said = plain.ask("openai", body)
        assert status == 404
        assert "run:small" in json.loads(said)["error"]["message"]


def test_the_key_is_checked_and_not_kept() -> None:
    """A wrong key is 401; what is kept of a key is a hash, and no header holds it."""
    with Playback(RUN, Terms(key="secret-key")) as server:
        client = Plain(server)
        assert client.ask("openai", HI["openai"])[0] == 401
        assert client.ask("openai", HI["openai"], authorization="Bearer secret-key")[0] == 200
        assert client.ask("anthropic", HI["anthropic"], **{"x-api-key": "secret-key"})[0] == 200
        client.close()
        assert len({request.key for request in server.requests[1:]}) == 1
        assert "secret-key" not in repr([(request.headers, request.key) for request in server.requests])


@pytest.mark.parametrize(
    ("api", "words"),
    [
        ("openai", "maximum context length is 20 tokens"),
        ("openai-responses", "exceeds the context window"),
        ("anthropic", "tokens > 20 maximum"),
    ],
)
def test_a_prompt_that_is_too_long(api: Api, words: str) -> None:
    """A prompt beyond the window is refused with the numbers, as the provider writes them."""
    long = (
        {"input": "word " * 99}
        if api == "openai-responses"
        else {"messages": [{"role": "user", "content": "word " * 99}]}
    )
    with Playback(RUN, Terms(window=20)) as server:
        client = Plain(server)
        status, _, body = client.ask(api, long)
        client.close()
    error = json.loads(body)["error"]
    assert status == 400
    assert words in error["message"]
    assert api == "anthropic" or error["code"] == "context_length_exceeded"


def test_count_tokens(plain: Plain, server: Playback) -> None:
    """Counting is the metered prompt, needs no max_tokens, and is no request for a completion."""
    status, _, body = plain.post("/v1/messages/count_tokens", {"model": "m", **HI["anthropic"]})
    assert status == 200
    assert server.requests == []
    plain.ask("anthropic", HI["anthropic"])
    assert server.requests[0].usage == Usage(
        input=json.loads(body)["input_tokens"], output=server.requests[0].usage.output
    )  # type: ignore[union-attr]
    assert plain.post("/v1/messages/count_tokens", {"model": "m"})[0] == 400


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", [401, 429, 500, 503, 529])
def test_errors_by_order(api: Api, status: int, plain: Plain, server: Playback) -> None:
    """A scripted error comes in the provider's shape with its retry-after, and only once."""
    server.fail(Refused(status=status, retry_after=1.5))
    got, headers, body = plain.ask(api, HI[api])
    assert (got, headers["retry-after"]) == (status, "1.5")
    error = json.loads(body)["error"]
    assert error["message"]
    assert error["status" if api == "gemini" else "type"]
    assert plain.ask(api, HI[api])[0] == 200


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
def test_answers_that_are_cut(api: Api, stream: bool, server: Playback) -> None:
    """The connection closes in the midst of the answer; the next request is served."""
    server.fail(Cut(after=2))
    client = Plain(server)
    with pytest.raises((IncompleteRead, RemoteDisconnected)):
        client.ask(api, {**HI[api], "stream": stream})
    client.close()
    again = Plain(server)
    assert again.ask(api, HI[api])[0] == 200
    again.close()
    assert [request.finished for request in server.requests] == [False, True]


@pytest.mark.parametrize("api", APIS)
def test_garbled_answers(api: Api, plain: Plain, server: Playback) -> None:
    """A body, or one event of a stream, is no JSON, with status 200."""
    server.fail(Garbled(), Garbled(after=1))
    with pytest.raises(ValueError):
        json.loads(plain.ask(api, HI[api])[2])
    told = events(plain.ask(api, {**HI[api], "stream": True})[2])
    json.loads(told[0][1])
    with pytest.raises(ValueError):
        json.loads(told[1][1])


@pytest.mark.parametrize("api", APIS)
def test_a_stream_that_says_it_failed(api: Api, plain: Plain, server: Playback) -> None:
    """An error event comes after the first events and ends the stream."""
    after = 1 if api == "gemini" else 2
    server.fail(Broken(after=after, message="Overloaded"))
    told = events(plain.ask(api, {**HI[api], "stream": True})[2])
    assert len(told) == after + 1
    assert "Overloaded" in told[-1][1]


def test_a_client_that_gives_up_is_noticed(server: Playback) -> None:
    """A slow answer whose client went away is not finished, and does not keep the server."""
    server.fail(Slow(first=600))
    body = json.dumps({"model": "m", **HI["openai"]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1]))) as connection:
        connection.sendall(head + body)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert [request.finished for request in server.requests] == [False]


# -- the server itself ------------------------------------------------------------------------------------------------


def test_it_must_run_to_have_an_address() -> None:
    """Before and after the `with` block there is no address, and a second start takes a new port."""
    server = Playback(commands("true"))
    with server:
        first = server.url
    with pytest.raises(ElisionError, match="not running"):
        server.url  # noqa: B018
    with server:
        assert server.url
        assert first


def test_a_taken_port_is_a_sentence(server: Playback) -> None:
    """A port that somebody else listens at is named."""
    port = int(server.url.rsplit(":", 1)[1])
    told = f"cannot listen at 127.0.0.1:{port}: .*another port"
    with pytest.raises(ElisionError, match=told), Playback(RUN, port=port):
        pass


def test_responses_go_on_from_an_id(plain: Plain) -> None:
    """`previous_response_id` stands for everything that was said up to that answer."""
    first = json.loads(plain.ask("openai-responses", HI["openai-responses"])[2])
    call = next(item for item in first["output"] if item["type"] == "function_call")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "fine"}
    status, _, body = plain.ask("openai-responses", {"previous_response_id": first["id"], "input": [result]})
    assert status == 200
    assert json.loads(body)["output"][0]["call_id"] != call["call_id"]


def test_idle_connections_outlive_those_of_the_gateway() -> None:
    """Else the gateway would meet one that closes, and answer 502 for a request that nobody got."""
    assert playback.KEEP_ALIVE_SECONDS > 2 * upstream.KEEP_ALIVE_SECONDS
