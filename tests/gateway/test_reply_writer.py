"""Errors of the gateway and refusals of a provider, as the client and the log get them."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elision.gateway.reply_writer import (
    MAX_MESSAGE_CHARS,
    _read_at_most,
    make_error_response,
    make_stream_error,
    sanitize_error,
)
from elision.gateway.wire import ClientRequest
from elision.providers.provider import Api
from elision.providers.streaming.sse import SseFrame, format_event
from tests.gateway.conversation_bytes import APIS, HIDING_STEPS, PATHS, make_body
from tests.gateway.gateway_trial import JSON_HEADER, open_trial
from tests.gateway.scripted_upstream import answer_always, render_response
from tests.soak import pair_cases
from tests.summarizers.scripted_server import Reply, reply_raw, serve_script

SAID = "the provider could not be reached"
ASKED: list[Any] = [{"role": "user", "content": "hello"}]


Clients = tuple[anthropic.Anthropic, openai.OpenAI]


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """The official clients; made once, for that takes longer than a test."""
    with anthropic.Anthropic(api_key="k") as claude, openai.OpenAI(api_key="k") as chat:
        yield claude, chat


def _answer(said: tuple[int, dict[str, str], bytes]) -> Reply:
    status, headers, body = said
    return reply_raw(status, body, **headers)


def _ask(clients: Clients, api: Api, url: str, *, stream: bool = False, retries: int = 0) -> None:
    """One request with the provider's own client; a streamed answer is read to its end."""
    claude = clients[0].with_options(base_url=url, max_retries=retries)
    chat = clients[1].with_options(base_url=f"{url}/v1", max_retries=retries)
    answer: Any
    if api == "anthropic":
        answer = claude.messages.create(model="m", max_tokens=9, messages=ASKED, stream=stream)
    elif api == "openai":
        answer = chat.chat.completions.create(model="m", messages=ASKED, stream=stream)
    else:
        answer = chat.responses.create(model="m", input="hello", stream=stream)
    for _ in answer if stream else ():
        pass


#: What both packages call the error of a status.
ERRORS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    408: "APIStatusError",
    413: "APIStatusError",
    429: "RateLimitError",
    **dict.fromkeys((500, 502, 503, 504, 529), "InternalServerError"),
}
#: OpenAI's APIs share a client, Anthropic has its own.
CASES = [*((status, "anthropic") for status in ERRORS), *pair_cases(ERRORS, ("openai", "openai-responses"))]


@pytest.mark.parametrize(("status", "api"), CASES)
def test_clients_raise_their_own_error(clients: Clients, status: int, api: Api) -> None:
    """The exception that the client has for the status, with our words and a type that it knows; OpenAI's has a code,
    which is ours alone."""
    package: Any = anthropic if api == "anthropic" else openai
    with (
        serve_script(_answer(make_error_response(api, status, SAID))) as server,
        pytest.raises(getattr(package, ERRORS[status])) as caught,
    ):
        _ask(clients, api, server.url)
    found = caught.value
    assert found.status_code == status
    assert f"Elision gateway: {SAID}. " in (found.api_message if api == "anthropic" else found.message)
    assert api == "anthropic" or found.code.startswith("elision_")
    assert found.type


@pytest.mark.parametrize("api", ["openai", "openai-responses", "anthropic"])
def test_a_limit_that_passes_is_tried_again(clients: Clients, api: Api) -> None:
    """Official clients wait as long as they are told and ask once more."""
    busy = _answer(make_error_response(api, 429, "too many requests at once", retry_after=0.01))
    final = _answer(make_error_response(api, 400, "enough"))
    with serve_script(busy, final) as server:
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)):
            _ask(clients, api, server.url, retries=1)
        assert len(server.requests) == 2


@pytest.mark.parametrize("api", ["openai", "openai-responses", "anthropic"])
def test_a_limit_that_stays_is_not_tried_again(clients: Clients, api: Api) -> None:
    """A budget that is spent is said once: waiting would not mend it."""
    with serve_script(_answer(make_error_response(api, 429, "the session's budget is spent", "budget"))) as server:
        with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
            _ask(clients, api, server.url, retries=2)
        assert len(server.requests) == 1


def test_headers_name_the_cause() -> None:
    """A program tells our errors from the provider's by a header."""
    assert make_error_response("openai", 502, SAID, "dns")[1] == {
        "content-type": "application/json",
        "x-elision-error": "dns",
    }
    assert make_error_response(None, 429, SAID, retry_after=2)[1]["retry-after"] == "2"


@pytest.mark.parametrize(
    ("status", "api"), pair_cases([405, 418, 501, 599], ["openai", "openai-responses", "anthropic", None])
)
def test_any_status_can_be_said(status: int, api: Api | None) -> None:
    """A status that no provider uses has the shape of one that they do; without an API it is plain JSON."""
    said, _, body = make_error_response(api, status, SAID)
    assert said == status
    assert SAID in json.loads(body)["error"]["message"]


# -- streams ---------------------------------------------------------------------------------------------------------

BEGUN: dict[Api, bytes] = {
    "openai": format_event(
        b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"role":"assistant","content":"so"},"finish_reason":null}]}'
    ),
    "openai-responses": format_event(
        b'{"type":"response.output_text.delta","sequence_number":4,"item_id":"i","output_index":0,"content_index":0,'
        b'"delta":"so","logprobs":[]}',
        "response.output_text.delta",
    ),
    "anthropic": format_event(
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so"}}', "content_block_delta"
    ),
}


@pytest.mark.parametrize("api", list(BEGUN))
def test_clients_raise_what_breaks_a_stream(clients: Clients, api: Api) -> None:
    """An answer that breaks off is an exception with our words, not an answer that ends early."""
    body = BEGUN[api] + make_stream_error(api, SAID, sequence=5)
    raised = pytest.raises((openai.APIError, anthropic.APIError), match=f"Elision gateway: {SAID}")
    with serve_script(reply_raw(200, body, content_type="text/event-stream")) as server, raised:
        _ask(clients, api, server.url, stream=True)


def test_the_error_event_of_responses_is_of_their_type() -> None:
    """Clients that read events by their type find every field of it."""
    event = json.loads(SseFrame.parse_frame(make_stream_error("openai-responses", SAID, sequence=5)).data)
    found = openai.types.responses.ResponseErrorEvent.model_validate(event)
    assert (found.type, found.sequence_number, found.code) == ("error", 5, "elision_cut")
    assert SAID in found.message


@given(st.text(), st.sampled_from(["openai", "openai-responses", "anthropic", None]))
@example("x" * 100_000, "openai")
def test_any_message_is_one_readable_line(message: str, api: Api | None) -> None:
    """Whatever others said that is quoted: one event, valid JSON, a line of bounded length."""
    frame = SseFrame.parse_frame(make_stream_error(api, message))
    assert frame.raw.count(b"\n\n") == 1
    for body in (frame.data, make_error_response(api, 502, message)[2]):
        said = json.loads(body)["error"]["message"]
        assert said.startswith("Elision gateway: ")
        assert said.isprintable()
        assert len(said) < MAX_MESSAGE_CHARS + 200


class Pieces:
    """An answer that comes in small pieces. asked: how often one of them was asked for its length."""

    def __init__(self, count: int) -> None:
        self.count, self.given, self.asked = count, 0, 0

    async def iter_chunks(self) -> AsyncIterator[bytes]:
        whole = self

        class Piece(bytes):
            def __len__(self) -> int:
                whole.asked += 1
                return super().__len__()

        for _ in range(self.count):
            self.given += 1
            yield Piece(b"x" * 24)


async def test_an_error_is_read_in_work_that_grows_with_its_bytes() -> None:
    """A piece is looked at when it comes, and not again with each that comes behind it."""
    pieces = Pieces(2_000)
    assert await _read_at_most(pieces, 1_000_000) == b"x" * 48_000  # type: ignore[arg-type]
    assert pieces.asked <= 2 * pieces.count


async def test_an_error_without_end_is_read_up_to_the_limit() -> None:
    """And no further than the piece that goes beyond it."""
    pieces = Pieces(10_000)
    assert len(await _read_at_most(pieces, 2_400)) == 2_424  # type: ignore[arg-type]
    assert pieces.given == 101


KEY = "litellm-master-opensesame"
#: With one key in a header, and one in the query, where a character of it is written as its number.
REQUEST = ClientRequest(
    method="POST",
    raw_path=b"/v1/chat/completions",
    query=b"alt=sse&key=AIza%2Fquery",
    headers=[(b"Authorization", f"Bearer {KEY}".encode())],
    body=b"",
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (f"Key expected. Received={KEY}, which is none", "Key expected. Received=[credential], which is none"),
        ("API key not valid: AIza/query", "API key not valid: [credential]"),
        ("no such path: /x?key=AIza%2Fquery&alt=sse", "no such path: /x?key=[credential]&alt=sse"),
        ("Input should be a list [input_value='My patient Ann Lee has', input_type=str]",
         "Input should be a list [input_value='…', input_type=str]"),
        ("This model's limit is 8 tokens. The client's prompt has 9", None),
        ("messages.3: `tool_use` ids were found without 'tool_result' blocks: toolu_01", None),
        (f'bad "{"x" * 61}"', 'bad "…"'),
        ("he said 'it's Ann's book' twice", "he said '…' twice"),
        ("", None),
    ],
)  # fmt: skip
def test_names_stay_and_words_go(error: str, told: str | None) -> None:
    """What helps to mend a request is its shape: neither its words nor its key."""
    assert sanitize_error(error, REQUEST) == (error if told is None else told)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", ["400 No", "401 No"])
async def test_the_log_of_a_gateway(api: Api, status: str, caplog: pytest.LogCaptureFixture) -> None:
    """The client is told word for word; neither its key nor what it said is in any line."""
    caplog.set_level(logging.INFO)
    error = {"type": "x", "message": f"Received={KEY}, key=opensesame-too, input_value='My patient Ann Lee has'"}
    refusal = json.dumps({"type": "error", "error": error}).encode()
    provider = answer_always(render_response(refusal, status, JSON_HEADER))
    async with open_trial(provider, gateway_log="json") as (*_, client):
        for steps in (1, HIDING_STEPS):
            got = await client.request(
                "POST",
                f"{PATHS[api]}?key=opensesame-too",
                make_body(api, steps),
                JSON_HEADER,
                f"authorization: Bearer {KEY}",
            )
            assert got.body == refusal
    assert "Received=[credential]" in caplog.text
    assert "opensesame" not in caplog.text
    assert "Ann Lee" not in caplog.text
