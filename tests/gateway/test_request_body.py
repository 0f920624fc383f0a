"""A request's body keeps the bytes of what is unchanged, when it is parsed and when it is written."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis import strategies as st

from elision.gateway.request_body import MessageEncoder, RequestBody, UnreadableBody, decode_message
from elision.providers.live.client_messages import ParsedMessage, convert_to_json, parse_message
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from tests.corpus import CORPUS
from tests.gateway.random_json import APIS, LIST_FIELDS, JsonWriter, iterate_requests

seeds = st.integers(0, 2**32)
apis = st.sampled_from(APIS)
#: How clients' encoders write: the two of Python, JavaScript's, and one for people.
ENCODERS: tuple[dict[str, Any], ...] = (
    {},
    {"ensure_ascii": False, "separators": (",", ":")},
    {"ensure_ascii": False, "indent": 2},
)


def generated(seed: int, api: Api, **options: Any) -> tuple[JsonWriter, list[str], bytes]:
    writer = JsonWriter(random.Random(seed), **options)
    messages = [writer.write_message() for _ in range(writer.chance.randrange(7))]
    return writer, messages, writer.write_whole(api, messages)


def told(body: RequestBody) -> tuple[Any, ...]:
    """All that a body says, but for the bytes it came in."""
    names = [name for name in json.loads(body.raw.decode("utf-8", "replace")) if name != LIST_FIELDS[body.api]]
    raws = {name: body.get_raw_field(name) for name in names}
    changed = [b'{"new":%d}' % place if place % 3 == 0 else each for place, each in enumerate(body.messages)]
    return (
        body.messages,
        body.model,
        body.stream,
        raws,
        {name: body.get_field(name) for name in names},
        body.render_changes(messages=changed, fields=dict.fromkeys(names[:1], b"7")),
        body.render_changes(messages=body.messages[1:]),
    )


def parse_after(raw: bytes, api: Api, before: RequestBody | None) -> RequestBody:
    """The body as it is parsed after an earlier one of the conversation."""
    return RequestBody.parse(raw, api, previous=before.make_previous(before.messages) if before is not None else None)


def begins(before: RequestBody, raw: bytes) -> bool:
    previous = before.make_previous(before.messages)
    return previous is not None and previous.is_prefix_of(raw)


def outcome(raw: bytes, api: Api, before: RequestBody | None = None) -> tuple[Any, ...] | str:
    try:
        return told(parse_after(raw, api, before))
    except UnreadableBody:
        return "unreadable"


# -- what is in it ----------------------------------------------------------------------------------------------------


@given(seeds, apis)
def test_a_body_says_what_a_parser_reads(seed: int, api: Api) -> None:
    """Messages and fields are what Python's own parser finds, whatever the text looks like."""
    _, messages, raw = generated(seed, api)
    body, expected = RequestBody.parse(raw, api), json.loads(raw)
    assert [json.loads(each) for each in body.messages] == expected[LIST_FIELDS[api]]
    for name, value in expected.items():
        if name != LIST_FIELDS[api]:
            assert repr(body.get_field(name)) == repr(value)
    if expected[LIST_FIELDS[api]] == [json.loads(each) for each in messages]:
        assert body.messages == [each.encode() for each in messages]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_recorded_requests_are_read(api: Api, encoder: dict[str, Any]) -> None:
    """A recorded run's requests, as three encoders write them, hold their messages, each read from the one before."""
    before = None
    for request in iterate_requests(api):
        raw = json.dumps(request, **encoder).encode()
        body = parse_after(raw, api, before)
        assert [decode_message(each) for each in body.messages] == request[LIST_FIELDS[api]]
        assert (body.model, body.stream, body.get_field("tools")) == ("m", False, [{"name": "t"}])
        assert told(body) == told(RequestBody.parse(raw, api))
        if before is not None:
            assert begins(before, raw)
            assert all(one is other for one, other in zip(before.messages, body.messages, strict=False))
        before = body


def test_model_and_stream_of_another_type_are_absent() -> None:
    """What is no text and no `true` counts as not said."""
    body = RequestBody.parse(b'{"model":5,"stream":"true","messages":[]}', "openai")
    assert (body.model, body.stream, body.get_field("temperature"), body.get_raw_field("tools")) == (
        "",
        False,
        None,
        None,
    )


def test_a_text_as_input_is_one_item() -> None:
    """A Responses string is one item in the user's role, with the string's own bytes; unchanged, it stays one."""
    raw = b'{"input": "caf\\u00e9" , "model":"m"}'
    body = RequestBody.parse(raw, "openai-responses")
    assert body.messages == [b'{"role":"user","content":"caf\\u00e9"}']
    assert body.render_changes(messages=body.messages) is raw
    assert body.render_changes(messages=[*body.messages, b"{}"]) == (
        b'{"input":[{"role":"user","content":"caf\\u00e9"},{}],"model":"m"}'
    )


@pytest.mark.parametrize("raw", [b'{"model":"m"}', b'{"model":"m","input":null}'])
def test_a_body_without_messages_has_none(raw: bytes) -> None:
    """An absent list is an empty one, left out until there is something to put in."""
    body = RequestBody.parse(raw, "openai-responses")
    assert body.messages == []
    assert body.render_changes(messages=[]) is raw
    assert json.loads(body.render_changes(messages=[b"{}"])) == {"model": "m", "input": [{}]}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"messages":[}',
        b'{"messages":[]}x',
        b'{"messages":[]}\x00',
        b'\xef\xbb\xbf{"messages":[]}',
        b'{"messages":[],}',
        b'{"messages":[{},]}',
        b'{"messages":[1]}',
        b'{"messages":[{},"a"]}',
        b'{"messages":{}}',
        b'{"messages":"text"}',
        b'{"messages":[NaN]}',
        b'{"messages":[],"x":NaN}',
        b'{"messages":[],"x":Infinity}',
        b'{"messages":[],"x":01}',
        b'{"messages":[],"\xff":1}',
        b'{"messages":[],"model":"\xff"}',
        b'{"messages":[],"x":"\\ud800"}',
        b"{'messages':[]}",
        b'{"messages":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages":[' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"]}",
        b'{"messages":[],' + b",".join(b'"k%d":1' % place for place in range(1_001)) + b"}",
        b"\x1f\x8b\x08\x00" + b"\x00" * 40,
        json.dumps({"messages": []}).encode("utf-16"),
    ],
)
def test_what_is_no_request_is_unreadable(raw: bytes) -> None:
    """Anything else than an object with a list of objects raises one kind of error, read at once or from a body on."""
    for before in (None, RequestBody.parse(b'{"messages":[{}]}', "openai")):
        with pytest.raises(UnreadableBody):
            parse_after(raw, "openai", before)


@pytest.mark.parametrize("value", [b"1e400", b"-1e999", b'"\xff"', b'"\xed\xa0\x80"', b"1" * 5_000])
def test_what_python_has_no_value_for_is_unreadable_when_asked_for(value: bytes) -> None:
    """Such a field or message is passed on in its bytes, and raises only where somebody wants to know what it says."""
    raw = b'{"messages":[{"a":%b},{}],"x":%b}' % (value, value)
    body = RequestBody.parse(raw, "openai")
    with pytest.raises(UnreadableBody):
        body.get_field("x")
    with pytest.raises(UnreadableBody):
        decode_message(body.messages[0])
    assert body.render_changes(messages=[body.messages[0], b"[]"]) == raw.replace(b",{}]", b",[]]")


@given(st.binary(max_size=60), apis)
def test_no_bytes_raise_anything_else(raw: bytes, api: Api) -> None:
    """Any bytes are read or unreadable, alone or inside a request."""
    for each in (raw, b'{"messages":[{"a":"' + raw + b'"}],"input":[]}', b'{"input":[],"messages":[' + raw + b"]}"):
        try:
            body = RequestBody.parse(each, api)
            [decode_message(message) for message in body.messages]
        except UnreadableBody:
            pass


@pytest.mark.parametrize(
    ("raw", "messages", "changed"),
    [
        (b'{"messages":[{"a":1}],"messages":[{"b":2}]}', [b'{"b":2}'], b'{"messages":[7]}'),
        (b'{"messages":[{"b":2}],"messages":[{"b":2}]}', [b'{"b":2}'], b'{"messages":[7]}'),
        (b'{"x":12,"messages":[{}],"x":1}', [b"{}"], b'{"x":1,"messages":[7]}'),
        (b'{"x":{"messages":[{}]},"messages":[{}]}', [b"{}"], b'{"x":{"messages":[{}]},"messages":[7]}'),
        (b'{"x":"[{}]","messages":[{}]}', [b"{}"], b'{"x":"[{}]","messages":[7]}'),
        (b'{"x":{"messages":[]},"m\\u0065ssages":[{}]}', [b"{}"], b'{"x":{"messages":[]},"messages":[7]}'),
        (b'{"m\\u0065ssages":[{}],"messages":[{}]}', [b"{}"], b'{"messages":[7]}'),
        (b'{"messages":null,"messages":[{}]}', [b"{}"], b'{"messages":[7]}'),
    ],
)
def test_of_doubles_the_last_one_counts(raw: bytes, messages: list[bytes], changed: bytes) -> None:
    """As every provider's parser reads it, and as the next body finds it; what only looks like the list stays."""
    body = RequestBody.parse(raw, "openai")
    assert body.messages == messages
    assert body.render_changes(messages=[b"7"]) == changed
    assert outcome(raw, "openai", body) == told(body)


# -- with other bytes in it -------------------------------------------------------------------------------------------


@given(seeds, apis, st.booleans())
def test_nothing_changed_is_the_very_body(seed: int, api: Api, again: bool) -> None:
    """The same messages, the same objects or equal ones, give the bytes that came."""
    _, _, raw = generated(seed, api)
    body = RequestBody.parse(raw, api)
    same = [bytes(bytearray(each)) for each in body.messages] if again else body.messages
    assert body.render_changes(messages=same) is raw
    assert body.render_changes() is raw


@given(seeds, apis, st.data())
def test_any_other_messages_are_what_is_sent(seed: int, api: Api, data: st.DataObject) -> None:
    """Messages left out, put in and replaced: the list says just these, each in its bytes; all else is as it came."""
    _, _, raw = generated(seed, api)
    body = RequestBody.parse(raw, api)
    own = st.sampled_from(body.messages) if body.messages else st.nothing()
    kept = [each for each in body.messages if data.draw(st.booleans())]
    new = data.draw(st.lists(own | st.just(b'{"new": [1.0]}'), max_size=3))
    place = data.draw(st.integers(0, len(kept)))
    wanted = [*kept[:place], *new, *kept[place:]]
    changed = RequestBody.parse(body.render_changes(messages=wanted), api)
    assert changed.messages == wanted
    for name in json.loads(raw):
        assert name == LIST_FIELDS[api] or changed.get_raw_field(name) == body.get_raw_field(name)
    assert list(json.loads(changed.raw)) == list(json.loads(raw))


@given(
    seeds,
    apis,
    st.dictionaries(st.sampled_from(["tools", "x", "", 'na"me', "new", "stream"]), st.integers(), max_size=4),
)
def test_fields_are_set_in_their_place(seed: int, api: Api, fields: dict[str, int]) -> None:
    """A known field is set in its place, a new one after all; every other value keeps its bytes."""
    _, _, raw = generated(seed, api)
    body = RequestBody.parse(raw, api)
    changed = RequestBody.parse(body.render_changes(fields={name: b"%d" % each for name, each in fields.items()}), api)
    assert list(json.loads(changed.raw)) == list(json.loads(raw) | fields)
    assert changed.messages == body.messages
    for name in json.loads(changed.raw):
        if name in fields:
            assert changed.get_raw_field(name) == b"%d" % fields[name]
        elif name != LIST_FIELDS[api]:
            assert changed.get_raw_field(name) == body.get_raw_field(name)


def test_an_empty_object_takes_fields() -> None:
    """White space goes where something changes."""
    body = RequestBody.parse(b" { } ", "openai")
    assert body.render_changes(messages=[b"{}"], fields={"x": b"1"}) == b'{"messages":[{}],"x":1}'


# -- the next one of a conversation -----------------------------------------------------------------------------------


@given(seeds, apis, st.sampled_from([None, "", " "]))
def test_reading_on_is_reading_the_whole(seed: int, api: Api, gap: str | None) -> None:
    """Grown, cut, edited in the midst, with other fields behind or a byte gone wrong: what is read is the same."""
    writer, messages, raw = generated(seed, api, gap=gap)
    before = RequestBody.parse(raw, api)
    opening, ending = writer.write_body(api, messages)
    first = RequestBody.parse(_body(writer, opening, messages, ending), api)
    for _ in range(6):
        changed = _next(writer, messages)
        if writer.chance.random() < 0.4:
            ending = writer.write_body(api, messages)[1]
        text = _body(writer, opening, changed, ending)
        if writer.chance.random() < 0.3:
            text = _broken(writer.chance, text)
        for earlier in (first, before):
            assert outcome(text, api, earlier) == outcome(text, api)


def _body(writer: JsonWriter, opening: str, messages: Sequence[str], ending: str) -> bytes:
    return (opening + ("," + (writer.gap or "")).join(messages) + ending).encode()


def _next(writer: JsonWriter, messages: list[str]) -> list[str]:
    """The messages of a next request: more of them, fewer, or some in other words."""
    changed = [*messages, *(writer.write_message() for _ in range(writer.chance.randrange(3)))]
    way = writer.chance.randrange(4)
    if way == 0:
        return changed[: writer.chance.randrange(len(changed) + 1)]
    if way == 1 and changed:
        changed[-writer.chance.randrange(len(changed)) - 1] = writer.write_message()
    return changed


def _broken(chance: random.Random, text: bytes) -> bytes:
    at = chance.randrange(len(text))
    return text[:at] + bytes([chance.choice(b'{}[]",:1 \\')]) + text[at + chance.randrange(2) :]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"messages":[{"m":1}],"messages":[{"z":1}],"b":3}',
        b'{"a":1,"messages":[{"m":1}],"a":4}',
        b'{"a":1,"messages":[{"m":1}, {"n":2}],"b":3,"messages":5}',
        b'{"a":1,"messages":[{"m":1}  ,{"n":2} ]}',
        b'{"a":1,"messages":[{"m":1}1]}',
        b'{"a":1,"messages":[{"m":1}.5]}',
        b'{"a":1,"messages":[{"m":1}',
        b'{"a":1,"messages":[{"m":1}]}}',
    ],
)
def test_reading_on_falls_for_nothing(raw: bytes) -> None:
    """A tail that names the list again, or goes on as no list does, is read as the whole would be."""
    for before in (b'{"a":1,"messages":[{"m":1}],"b":2}', b'{"a":1,"messages":[{"m":1}],"a":2}'):
        assert outcome(raw, "openai", RequestBody.parse(before, "openai")) == outcome(raw, "openai")


@pytest.mark.parametrize("api", APIS)
def test_moved_cache_markers_leave_most_of_it_known(api: Api) -> None:
    """With a marker gone from one of the newest messages, all in front of it are the very objects from before."""
    request = iterate_requests(api)[-1]
    messages = [{**each} for each in request[LIST_FIELDS[api]]]
    count = len(messages)
    messages[count - 2]["cache_control"] = {"type": "ephemeral"}
    before = RequestBody.parse(json.dumps({**request, LIST_FIELDS[api]: messages}).encode(), api)
    raw = json.dumps(
        {**request, LIST_FIELDS[api]: [*request[LIST_FIELDS[api]], {"role": "user", "content": "x"}]}
    ).encode()
    assert begins(before, raw)
    body = parse_after(raw, api, before)
    assert [one is other for one, other in zip(before.messages, body.messages, strict=False)].index(False) == count - 2
    assert told(body) == told(RequestBody.parse(raw, api))


def test_another_api_s_body_is_no_beginning() -> None:
    """A body of another shape is not read on from, and an unrelated one begins nothing."""
    before = RequestBody.parse(b'{"messages":[{"a":1}]}', "anthropic")
    assert parse_after(b'{"messages":[{"a":1}]}', "openai", before).messages == [b'{"a":1}']
    assert not begins(before, b'{"messages":[{"a":2}]}')
    assert not begins(RequestBody.parse(b"{}", "openai"), b"{}")


def test_decoded_fields_are_decoded_once() -> None:
    """A field with the same bytes as in the body before is the same object; one with others is not."""
    before = RequestBody.parse(b'{"messages":[{}],"tools":[{"a":1}],"x":[1]}', "openai")
    tools, _ = before.get_field("tools"), before.get_field("x")
    after = parse_after(b'{"messages":[{},{}],"x":[1.0],"tools":[{"a":1}]}', "openai", before)
    assert after.get_field("tools") is tools
    assert repr(after.get_field("x")) == "[1.0]"


@pytest.mark.soak
def test_records_of_the_corpus_keep_their_bytes() -> None:
    """Every JSON object on a line of a recording comes out of a body as it went in; two lines are cut and none."""
    for path in sorted(CORPUS.glob("*/*.jsonl.gz")):
        with gzip.open(path, "rb") as file:
            lines = [line.strip() for line in file if line.startswith(b"{") and _is_json(line)]
        body = RequestBody.parse(b'{"messages": [' + b" ,\n".join(lines) + b"]}", "openai")
        assert body.messages == lines


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


#: What happens before a view: messages come, some are hidden, the newest is said in other bytes, some are forgotten.
STEPS = some.lists(
    some.tuples(some.sampled_from(["come", "hide", "respell", "forget", "join"]), some.integers(0, 5)), max_size=20
)


class Told:
    """A conversation and its view, as a client, the library and the gateway have them."""

    def __init__(self) -> None:
        self.said: list[ParsedMessage] = []
        self.view: list[Any] = []
        self.number = 0
        self.come(2)

    def come(self, count: int) -> None:
        for _ in range(count + 1):
            self.number += 1
            message = {"role": "user", "content": f"message {self.number}"}
            self.said.append(make_message(message, json.dumps(message, indent=self.number % 3).encode()))
            self.view.append(self.said[-1])

    def hide(self, place: int) -> None:
        at = place % len(self.view)
        self.view[at] = {**convert_to_json(self.view[at]), "content": f"[hidden {self.number}]"}

    def respell(self, _: int) -> None:
        if self.view[-1] is self.said[-1]:
            message = dict(self.said[-1].json)
            self.said[-1] = make_message(message, json.dumps(message, separators=(" ,", " : ")).encode())
            self.view[-1] = self.said[-1]

    def forget(self, count: int) -> None:
        most = min(len(self.view), len(self.said)) - 1
        if count := min(count, most):
            del self.view[-count:], self.said[-count:]

    def join(self, count: int) -> None:
        if len(self.view) > count + 1:
            self.view[: count + 1] = [{"role": "user", "content": f"a summary {self.number}"}]


def make_message(message: dict[str, Any], raw: bytes) -> ParsedMessage:
    return parse_message(PROVIDERS["openai"].live, message, 0, raw)[0]


@given(STEPS)
def test_a_view_is_the_clients_bytes_and_ours_as_they_were_first_written(steps: list[tuple[str, int]]) -> None:
    """Whatever of a view is the client's has its bytes; what is ours says what the view says, in the bytes it had."""
    told, sent = Told(), MessageEncoder()
    ours: dict[int, tuple[Any, bytes]] = {}
    for name, number in [("come", 0), *steps]:
        getattr(told, name)(number)
        new = sent.list_new(told.view, told.said)
        out = sent.encode_messages(list(told.view), list(told.said), new)
        raws = {id(each): each.raw for each in told.said}
        assert len(out) == len(told.view)
        for message, raw in zip(told.view, out, strict=True):
            assert json.loads(raw) == convert_to_json(message)
            assert raw == raws.get(id(message), ours.setdefault(id(message), (message, raw))[1])
