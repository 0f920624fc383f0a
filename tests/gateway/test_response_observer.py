"""Answers are read on their way by."""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import zstd
from elision.gateway import response_observer
from elision.gateway.response_observer import MAX_ERROR_CHARS, ResponseFacts, ResponseObserver
from elision.providers.anthropic.server_clearing import ClearingReport
from elision.providers.provider import Api
from elision.providers.shared.signals import CacheMiss, Overflow, Transformation
from elision.providers.streaming.sse import format_event
from elision.testing import response_anthropic, response_openai_chat, response_openai_responses
from elision.testing.exchange import ReplySpec
from elision.testing.recorded_run import RecordedReply
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage
from tests.providers.recorded_usage import STREAMED, tier
from tests.work import count_calls

APIS: tuple[Api, ...] = ("openai", "openai-responses", "anthropic")
ANSWERS: dict[Api, Any] = {
    "openai": response_openai_chat,
    "openai-responses": response_openai_responses,
    "anthropic": response_anthropic,
}
USAGE = Usage(input=100, cache_read=9_000, cache_write=300, output=42)
#: Text that looks like what is looked for.
TEXT = 'a "usage":{"prompt_tokens":1} and "error" response.failed message_stop\n\ndata: [DONE] '
TOLD = ReplySpec(
    reply=RecordedReply(
        number=1, text=TEXT * 3, reasoning="so", calls=(Action(id="c1", name="ls", arguments=json.dumps({"a": TEXT})),)
    ),
    usage=USAGE,
    model="m-1",
    id="7",
    include_usage=True,
    signature="s",
)
IDS: dict[Api, str] = {"openai": "chatcmpl-7", "openai-responses": "resp_7", "anthropic": "msg_7"}


def _events(*usages: dict[str, Any]) -> list[dict[str, Any]]:
    """A stream of Messages that reports `usages`: in front, and with its last words."""
    start, last = usages
    return [
        {"type": "message_start", "message": {"id": "msg_7", "model": "m-1", "usage": start}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        {"type": "message_stop"},
    ]


def _stream(api: Api, events: Iterable[dict[str, Any]], *, spaced: bool = False) -> list[bytes]:
    separators = (", ", ": ") if spaced else (",", ":")
    frames = [
        format_event(json.dumps(event, separators=separators).encode(), "" if api == "openai" else event["type"])
        for event in events
    ]
    return [*frames, b"data: [DONE]\n\n"] if api == "openai" else frames


def _hear(
    api: Api | None,
    chunks: Iterable[bytes],
    *,
    status: int = 200,
    kind: str = "text/event-stream; charset=utf-8",
    encoding: str = "",
    limit: int = 1 << 20,
) -> ResponseFacts:
    tap = ResponseObserver(api, status=status, content_type=kind, encoding=encoding, limit=limit)
    for chunk in chunks:
        tap.feed(chunk)
    return tap.finish()


def _body(api: Api | None, value: Any, status: int = 200, **more: Any) -> ResponseFacts:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return _hear(api, [raw], status=status, kind="application/json", **more)


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[one:other] for one, other in itertools.pairwise(places)]


# -- whole answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
def test_a_body(api: Api) -> None:
    """Usage, id and model of an answer in one piece."""
    assert _body(api, ANSWERS[api].build_body(TOLD)) == ResponseFacts(
        usage=USAGE, is_complete=True, response_id=IDS[api], model="m-1"
    )


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_stream(api: Api, spaced: bool) -> None:
    """The same of a stream, whatever the text in it looks like."""
    assert _hear(api, _stream(api, ANSWERS[api].build_events(TOLD), spaced=spaced)) == ResponseFacts(
        usage=USAGE, is_complete=True, response_id=IDS[api], model="m-1"
    )


@given(st.sampled_from(APIS), st.lists(st.integers(0, 10_000), max_size=10), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_stream_however_it_is_cut(api: Api, cuts: list[int], end: bytes) -> None:
    """Chunks on the wire are not events, and lines end in three ways."""
    frames = _stream(api, ANSWERS[api].build_events(TOLD))
    heard = _hear(api, _cut(b"".join(frames).replace(b"\n", end), cuts))
    assert (heard.usage, heard.is_complete) == (USAGE, True)


@pytest.mark.parametrize("pack", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("api", APIS)
def test_compressed_answers(api: Api, pack: str) -> None:
    """Compressed answers are read too; they pass as they came."""
    packs = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}
    packed = packs[pack](b"".join(_stream(api, ANSWERS[api].build_events(TOLD))))
    assert _hear(api, _cut(packed, [5, 50, 300]), encoding=pack).usage == USAGE
    assert _body(api, packs[pack](json.dumps(ANSWERS[api].build_body(TOLD)).encode()), encoding=pack).usage == USAGE


def test_an_encoding_that_cannot_be_read() -> None:
    """It passes unheard."""
    assert _hear("openai", [b"\x1b\x03"], encoding="br") == ResponseFacts()


def test_chat_streams_without_usage() -> None:
    """Where the client did not ask for it there is none, and the answer is complete all the same."""
    told = ReplySpec(reply=TOLD.reply, usage=USAGE, model="m-1", id="7")
    heard = _hear("openai", _stream("openai", response_openai_chat.build_events(told)))
    assert (heard.usage, heard.is_complete) == (None, True)


def test_chat_streams_that_count_all_along() -> None:
    """Servers that send the usage so far with every chunk: the last one counts."""
    chunks = [
        {"id": "c", "choices": [{"delta": {"content": "x"}, "finish_reason": None}], "usage": {"prompt_tokens": 9}},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "cost": 0.25}},
    ]
    assert _hear("openai", _stream("openai", chunks)).usage == Usage(input=9, output=5, usd=0.25)


def test_anthropic_counts_are_put_together() -> None:
    """The prompt's counts stand in the first event, the output's in the last; what the last leaves out stays."""
    events = [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 7, "cache_read_input_tokens": 50}}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3, "x": None}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5, "input_tokens": None}},
        {"type": "message_stop"},
    ]
    heard = _hear("anthropic", _stream("anthropic", events))
    assert heard.usage == Usage(input=7, cache_read=50, output=5)


def test_responses_that_are_incomplete() -> None:
    """An answer that met its limit of tokens is an answer."""
    body = {"id": "r", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "error": None}
    streamed = _hear(
        "openai-responses", _stream("openai-responses", [{"type": "response.incomplete", "response": body}])
    )
    for heard in (streamed, _body("openai-responses", body)):
        assert (heard.is_complete, heard.error) == (True, "")


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_responses_in_the_background(status: str) -> None:
    """An answer that is yet to be made is not complete."""
    assert not _body("openai-responses", {"id": "r", "status": status}).is_complete


def test_responses_without_names_of_events() -> None:
    """Servers that leave out `event:` are understood by their data."""
    frames = [format_event(json.dumps(event).encode()) for event in response_openai_responses.build_events(TOLD)]
    assert _hear("openai-responses", frames).usage == USAGE


def test_a_count_is_no_usage() -> None:
    """What `count_tokens` answers was not billed."""
    assert _body("anthropic", {"input_tokens": 5_000}).usage is None


# -- what else is said ---------------------------------------------------------------------------------------------

SIGNALS: dict[str, Any] = {
    "diagnostics": {"cache_miss_reason": {"type": "messages_changed", "cache_missed_input_tokens": 40}},
    "input_transformations": [
        {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}
    ],
}
EDITS = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 4, "cleared_input_tokens": 900}]}


def test_signals_of_anthropic() -> None:
    """Cache misses, dropped thinking and cleared results, in a body and over the events of a stream."""
    whole = {"id": "m", "stop_reason": "end_turn", "context_management": EDITS, **SIGNALS}
    events = [
        {"type": "message_start", "message": {"id": "m", **SIGNALS}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}, "context_management": EDITS},
        {"type": "message_stop"},
    ]
    for heard in (_body("anthropic", whole), _hear("anthropic", _stream("anthropic", events))):
        assert heard.cache_miss == CacheMiss(reason="messages_changed", tokens=40)
        assert heard.transformations == (
            Transformation(is_dropped=True, place="messages.1.content.0", reason="prefix_binding_mismatch"),
        )
        assert heard.cleared == ClearingReport(cleared_uses=4, cleared_tokens=900)
        assert heard.is_complete


def test_signals_of_openai() -> None:
    """A cache miss is named in the response."""
    found = {"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 7}
    body = {"id": "r", "status": "completed", "prompt_cache_diagnostics": found}
    streamed = _hear(
        "openai-responses", _stream("openai-responses", [{"type": "response.completed", "response": body}])
    )
    assert streamed.cache_miss == CacheMiss(reason="input_changed", tokens=7)


def test_a_window_that_ran_full() -> None:
    """A reason to stop may say that the prompt was too long."""
    assert _body("anthropic", {"stop_reason": "model_context_window_exceeded"}).overflow == Overflow()
    assert _body("anthropic", {"stop_reason": "end_turn"}).overflow is None


# -- errors --------------------------------------------------------------------------------------------------------


def test_a_prompt_that_is_too_long() -> None:
    """The numbers of the error, from a body."""
    said = {"type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"}
    heard = _body("anthropic", {"type": "error", "error": said}, 400)
    assert heard.overflow == Overflow(tokens=213_462, limit=200_000)
    assert (heard.error, heard.is_complete) == ("prompt is too long: 213462 tokens > 200000 maximum", False)


def test_thinking_that_was_refused() -> None:
    """The place of the block."""
    said = (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
    )
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
    assert _body("anthropic", body, 400).unbound_thinking == "messages.1.content.0"


FULL = "Your input exceeds the context window of this model."
BROKEN: list[tuple[Api, dict[str, Any], str]] = [
    ("openai", {"error": {"message": FULL, "code": "context_length_exceeded"}}, FULL),
    ("openai", {"id": "c", "choices": [], "error": {"message": FULL, "code": 400}}, FULL),
    ("openai-responses", {"type": "error", "code": "context_length_exceeded", "message": FULL, "param": None}, FULL),
    ("openai-responses", {"type": "error", "error": {"code": "context_length_exceeded", "message": FULL}}, FULL),
    (
        "openai-responses",
        {
            "type": "response.failed",
            "response": {"id": "r", "status": "failed", "error": {"code": "context_length_exceeded", "message": FULL}},
        },
        FULL,
    ),
    ("anthropic", {"type": "error", "error": {"type": "invalid_request_error", "message": FULL}}, FULL),
]


@pytest.mark.parametrize(("api", "event", "said"), BROKEN)
def test_errors_in_a_stream(api: Api, event: dict[str, Any], said: str) -> None:
    """A stream that says in its midst that it failed is not complete, and what it says is heard."""
    begun = list(itertools.islice(ANSWERS[api].build_events(TOLD), 3))
    heard = _hear(api, _stream(api, [*begun, event]))
    assert (heard.error, heard.is_complete, heard.overflow) == (said, False, Overflow())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "model not found"}, "model not found"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"message": "no", "object": "error"}, "no"),
        ({"error": {"code": "rate_limit_exceeded"}}, "rate_limit_exceeded"),
        ({"detail": [{"loc": ["body"]}]}, "an error without a message"),
        (b"<html>\n  <h1>502 Bad Gateway</h1>\n</html>", "<html> <h1>502 Bad Gateway</h1> </html>"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
@pytest.mark.parametrize("api", [*APIS, None])
def test_errors_in_any_shape(api: Api | None, body: Any, said: str) -> None:
    """Servers word their errors as they like; a proxy's page is an error too."""
    heard = _body(api, body, 502)
    assert (heard.error, heard.is_complete) == (said, False)


def test_an_error_that_comes_as_another_type_than_it_says() -> None:
    """JSON under the name of an event stream is read as what it is."""
    raw = json.dumps({"error": {"message": "no"}}).encode()
    assert _hear("openai", [raw], status=400).error == "no"
    assert _hear("openai", [b"data: " + raw + b"\n\n"], kind="application/json").error == "no"


def test_messages_of_errors_are_fit_for_a_log() -> None:
    """One line, cut, without the key that some providers quote."""
    key = "sk-proj-" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA" * 2
    heard = _body("openai", {"error": {"message": f"Incorrect API key provided: {key}.\nSee there."}}, 401)
    assert key not in heard.error
    assert "Incorrect API key provided" in heard.error
    assert len(_body("openai", {"error": {"message": "no\n" * 100_000}}, 400).error) <= MAX_ERROR_CHARS


# -- what breaks off, and what is too large ------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
def test_a_stream_that_breaks_off(api: Api) -> None:
    """It is not complete; what it said before is kept."""
    frames = _stream(api, ANSWERS[api].build_events(TOLD))[:4]
    heard = _hear(api, [*frames, frames[0][:20]])
    assert (heard.is_complete, heard.error) == (False, "")
    assert api != "anthropic" or (heard.usage is not None and heard.usage.prompt == USAGE.prompt)


@pytest.mark.parametrize("api", APIS)
def test_a_body_that_breaks_off(api: Api) -> None:
    """It is not complete, and no error text is made of what the model said."""
    raw = json.dumps(ANSWERS[api].build_body(TOLD)).encode()
    assert _body(api, raw[:-10]) == ResponseFacts()


@pytest.mark.parametrize("api", APIS)
def test_a_stream_without_its_last_line_end(api: Api) -> None:
    """The last event counts though nothing ends it."""
    raw = b"".join(_stream(api, ANSWERS[api].build_events(TOLD)))
    assert _hear(api, [raw.rstrip(b"\n")]).is_complete


@pytest.mark.parametrize("api", APIS)
def test_a_broken_event_is_passed_over(api: Api) -> None:
    """An event that is no JSON says nothing; those behind it do."""
    frames = _stream(api, ANSWERS[api].build_events(TOLD))
    broken = b"event: message_delta\ndata: {usage\n\nevent: error\ndata: [1]\n\ndata: 7\n\n"
    assert _hear(api, [frames[0], broken, *frames[1:]]).usage == USAGE


@pytest.mark.parametrize("api", APIS)
def test_a_body_over_the_limit_is_not_kept(api: Api) -> None:
    """Its usage is unknown, which is no error."""
    raw = json.dumps({**ANSWERS[api].build_body(TOLD), "more": "x" * 10_000}).encode()
    assert _hear(api, _cut(raw, [10, 900]), kind="application/json", limit=5_000) == ResponseFacts()


def test_an_event_over_the_limit_is_passed_over() -> None:
    """A large event is not kept; the others are heard."""
    frames = _stream("anthropic", response_anthropic.build_events(TOLD))
    large = b"event: message_delta\ndata: {" + b"x" * 10_000 + b"}\n\n"
    heard = _hear("anthropic", [*frames[:2], *_cut(large, [10, 5_000, 7_000]), *frames[2:]], limit=3_000)
    assert (heard.usage, heard.is_complete) == (USAGE, True)


def test_a_compressed_bomb_is_given_up() -> None:
    """What swells beyond any answer is no longer read."""
    packed = gzip.compress(b'{"id":"' + bytes(70 << 20))
    assert _body("openai", packed, encoding="gzip") == ResponseFacts()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "usage", "error", "message", "choices", "finish_reason", "response", "status", "delta", "id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
_EVENTS = st.builds(
    lambda name, value: format_event(json.dumps(value).encode(), name),
    st.sampled_from(["", "message_start", "message_delta", "message_stop", "error", "response.completed"]),
    _JSON,
)
_BYTES = st.lists(_EVENTS | st.binary(max_size=40) | st.builds(lambda value: json.dumps(value).encode(), _JSON))


@given(
    st.sampled_from([*APIS, None]),
    _BYTES,
    st.sampled_from([200, 400, 529]),
    st.sampled_from(["text/event-stream", "application/json", "", "text/html"]),
    st.sampled_from(["", "gzip", "deflate", "zstd", "br", "\u00fc"]),
)
def test_whatever_comes_nothing_is_raised(
    api: Api | None, chunks: list[bytes], status: int, kind: str, encoding: str
) -> None:
    """An answer may be anything; it passes, and what is heard is of the types that it should be."""
    heard = _hear(api, chunks, status=status, kind=kind, encoding=encoding, limit=500)
    assert isinstance(heard.usage, Usage | None)
    assert all(isinstance(text, str) for text in (heard.response_id, heard.model, heard.error))


def test_deep_nesting_is_no_trap() -> None:
    """JSON that is nested deeper than Python reads is not heard."""
    assert not _body("openai", b"[" * 100_000).is_complete
    assert not _body("openai", b'{"a":' * 100_000 + b"1").is_complete


@pytest.mark.parametrize("api", APIS)
def test_listening_is_cheap(api: Api) -> None:
    """Each of two hundred small events costs a handful of calls: no JSON is read but where it can matter."""
    told = ReplySpec(reply=RecordedReply(number=1, text="x"), usage=USAGE, model="m", id="7", include_usage=True)
    events = list(ANSWERS[api].build_events(told))
    place = next(place for place, event in enumerate(events) if '"x"' in json.dumps(event))
    frames = _stream(api, [*events[:place], *[events[place]] * 200, *events[place + 1 :]])

    assert _hear(api, frames).usage == USAGE
    few = _stream(api, events)
    more = count_calls(lambda: _hear(api, frames)) - count_calls(lambda: _hear(api, few))
    assert more < 200 * 15


def test_a_stream_says_the_whole_bill() -> None:
    """What a compaction read stands in front and in the list of bills, and no longer in the counts of the end."""
    heard = _hear("anthropic", _stream("anthropic", _events(*STREAMED)))
    assert heard.usage == Usage(input=281, cache_read=55_096, output=91, first_prompt=55_196)


def test_a_stream_says_how_long_its_entries_live() -> None:
    """Lives stand in front alone; the counts of the end keep them."""
    start = {"input_tokens": 3, "cache_creation_input_tokens": 90, "cache_creation": tier(hour=90), "output_tokens": 1}
    last = {"cache_creation_input_tokens": 90, "input_tokens": 3, "output_tokens": 20}
    heard = _hear("anthropic", _stream("anthropic", _events(start, last)))
    assert heard.usage == Usage(input=3, cache_write=90, cache_write_1h=90, output=20)


@pytest.mark.parametrize("api", APIS)
def test_a_large_body_says_the_same(api: Api) -> None:
    """What the model said in it is not decoded; all that is heard stands beside that."""
    said = ANSWERS[api].build_body(TOLD)
    small = heard_of(api, json.dumps(said).encode())
    large = json.dumps(said).replace('a \\"usage', "x" * 1_000_000 + 'a \\"usage')
    assert len(large) > 1_000_000
    assert heard_of(api, large.encode()) == small
    assert small.usage == USAGE


@pytest.mark.parametrize("letter", ["x", "é", "\n"])
def test_no_call_reads_a_large_body_whole(letter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's text is left out before anything is decoded: every other client waits for such a call."""
    said = json.dumps(ANSWERS["openai"].build_body(TOLD)).replace('a \\"usage', json.dumps(letter * 700_000)[1:-1])
    sizes: list[int] = []
    parse = response_observer.parse_object
    monkeypatch.setattr(response_observer, "parse_object", lambda raw: sizes.append(len(raw)) or parse(raw))
    assert heard_of("openai", said.encode()).usage == USAGE
    assert sizes
    assert max(sizes) < 64 * 1024


def heard_of(api: Api, raw: bytes) -> ResponseFacts:
    tap = ResponseObserver(api, status=200, content_type="application/json")
    tap.feed(raw)
    assert tap.held_bytes == len(raw)
    heard = tap.finish()
    assert tap.held_bytes == 0
    assert tap.finish() == heard
    return heard


@pytest.mark.parametrize("raw", [b'{"usage": ', b"[" * 300_000, b'{"usage":' + b"[" * 300_000, b'{"choices": 3, '])
def test_a_large_body_that_is_none(raw: bytes) -> None:
    """Nothing is heard of it, and nothing is raised."""
    assert heard_of("openai", raw + b" " * 300_000) == ResponseFacts()
