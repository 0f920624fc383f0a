"""Tags in requests to the gateway: they act, and no provider is sent one."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.gateway import request_body
from elision.gateway.request_body import UnreadableBody, may_have_tags, remove_body_tags
from elision.providers.provider import Api
from tests.gateway.conversation_bytes import (
    APIS,
    LIST_FIELDS,
    make_body,
    make_result,
    render_refusal,
)
from tests.gateway.gateway_trial import JSON_HEADER, answer_soundly, open_trial, render_sound
from tests.gateway.loopback_gateway import HttpResponse
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    answer_always,
    render_response,
)

TAG = b' , "tags" :  ["keep_output"]'


def tag_result(api: Api, raw: bytes, step: int) -> bytes:
    """The same bytes with a tag at the end of that step's result."""
    text = json.dumps(make_result(step)).encode()
    end = raw.index(text) + len(text)
    return raw[:end] + TAG + raw[end:]


def is_same(raw: bytes, plain: bytes) -> bool:
    """Whether a body says the same, in the same order, with the bytes of every message that had no tag."""
    (message,) = re.findall(rb'\{"role" :  "user" , "content" :  "Mend the \w+\."\}', plain)
    return message in raw and json.loads(raw, object_pairs_hook=list) == json.loads(plain, object_pairs_hook=list)


async def ask(
    api: Api,
    *raws: bytes,
    script: Script = answer_soundly,
    fields: tuple[str, ...] = (),
    path: str = "",
    **options: Any,
) -> tuple[list[ReceivedRequest], list[HttpResponse]]:
    """The provider's requests, and the client's responses, for requests of one client."""
    async with open_trial(script, **options) as (gateway, upstream, _):
        return upstream.requests, [await gateway.ask(raw, *fields, api=api, path=path) for raw in raws]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("steps", [1, 3])
async def test_only_tags_are_taken_out(api: Api, steps: int) -> None:
    """A request of which nothing is hidden says the same without its tags, and other messages keep their bytes."""
    plain = make_body(api, steps)
    sent, got = await ask(api, tag_result(api, plain, 1), strategy="raw")
    assert is_same(sent[0].body, plain)
    assert got[0].status == 200


@pytest.mark.parametrize("api", APIS)
async def test_tags_act(api: Api) -> None:
    """A result that is tagged stays, the next one is hidden, and the tag is taken out."""
    plain = make_body(api, 6)
    sent, _ = await ask(api, tag_result(api, plain, 1))
    body = sent[0].body
    assert b"keep_output" not in body
    assert json.dumps(make_result(1)).encode() in body
    assert json.dumps(make_result(2)).encode() not in body
    without, _ = await ask(api, plain)
    assert json.dumps(make_result(1)).encode() not in without[0].body


@pytest.mark.parametrize("api", APIS)
async def test_tags_are_no_part_of_a_conversation(api: Api) -> None:
    """The same conversation with and without tags is one session, and what was decided stays."""
    long = make_body(api, 7)
    sent, _ = await ask(api, tag_result(api, make_body(api, 6), 1), long, tag_result(api, make_body(api, 8), 3))
    assert len(sent) == 3
    for each in sent:
        assert b"keep_output" not in each.body
        assert json.dumps(make_result(1)).encode() in each.body
        assert json.dumps(make_result(2)).encode() not in each.body
    # The third result came without a tag first.
    assert json.dumps(make_result(3)).encode() not in sent[2].body


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "options", [{"gateway_shadow": True}, {"gateway_off": True}, {"strategy": "masking(window=50)"}]
)
async def test_every_way_of_passing(api: Api, options: dict[str, Any]) -> None:
    """In shadow mode, switched off, or with nothing to hide: the rest stays."""
    plain = make_body(api, 6)
    tagged = tag_result(api, plain, 2)
    sent, _ = await ask(api, tagged, tagged.replace(b"Mend the parser.", b"Mend the lexer."), **options)
    assert is_same(sent[0].body, plain)
    assert is_same(sent[1].body, plain.replace(b"Mend the parser.", b"Mend the lexer."))


@pytest.mark.parametrize("options", [{}, {"gateway_off": True}])
async def test_compressed_bodies(options: dict[str, Any]) -> None:
    """A compressed request with tags is forwarded as plain bytes without them; switched off, as it came."""
    plain = make_body("openai", 2)
    packed = gzip.compress(tag_result("openai", plain, 1))
    sent, _ = await ask("openai", packed, fields=("content-encoding: gzip",), **options)
    if options:
        assert sent[0].body == packed
        return
    assert is_same(sent[0].body, plain)
    assert "content-encoding" not in {name.lower() for name, _ in sent[0].headers}


async def test_requests_that_no_session_takes() -> None:
    """Counting tokens, a history that the provider holds, several answers at once: tags are taken out there too."""
    plain = make_body("anthropic", 2)
    sent, _ = await ask("anthropic", tag_result("anthropic", plain, 1), path="/v1/messages/count_tokens")
    assert is_same(sent[0].body, plain)
    for api, field in (("openai", b'{"n": 2, '), ("openai-responses", b'{"previous_response_id": "r", ')):
        plain = field + make_body(api, 2)[1:]  # type: ignore[arg-type]
        sent, _ = await ask(api, tag_result(api, plain, 1))  # type: ignore[arg-type]
        assert is_same(sent[0].body, plain)


@pytest.mark.parametrize("api", APIS)
async def test_a_refused_request_is_retried_without_tags(api: Api) -> None:
    """Where the provider refuses what was hidden, it is sent the client's own request, and its tags are taken out."""
    plain = make_body(api, 6)
    tagged = tag_result(api, plain, 1)

    def refuse_edits(asked: ReceivedRequest) -> bytes:
        if is_same(asked.body, plain):
            return render_sound(asked)
        return render_response(render_refusal(api, 400), "400 Bad Request", JSON_HEADER)

    sent, got = await ask(api, tagged, tagged, script=answer_always(refuse_edits))
    assert [each.status for each in got] == [200, 200]
    # The session is bypassed after that: its next request passes at once.
    assert [is_same(each.body, plain) for each in sent] == [False, True, True]


# -- bodies alone ------------------------------------------------------------------------------------------------------

_TEXTS = st.sampled_from(['"tags"', "tags", '{"tags": ["a"]}', "é\\ud83d", ""])


@settings(max_examples=60)
@given(
    texts=st.lists(_TEXTS, max_size=4),
    tags=st.lists(st.sampled_from([None, ["a"], "b", {"a": 1}, [1]]), min_size=4, max_size=4),
    tool=st.booleans(),
)
def test_any_body(texts: list[str], tags: list[Any], tool: bool) -> None:
    """Whatever texts and tools hold, only tags are taken out; a body without them is the very object."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": text} for text in texts]
    outer = {"model": "m", "tools": [{"function": {"parameters": {"tags": ["x"]}}}] if tool else []}
    plain = json.dumps({**outer, "messages": messages}, indent=1).encode()
    assert remove_body_tags(plain, "openai") is plain
    for message, own in zip(messages, tags, strict=False):
        if isinstance(own, str) or own == ["a"]:
            message["tags"] = own
    tagged = json.dumps({**outer, "messages": messages}, indent=1).encode()
    assert json.loads(remove_body_tags(tagged, "openai")) == json.loads(plain)
    for message, own in zip(messages, tags, strict=False):
        if own is not None:
            message["tags"] = own
    theirs = json.dumps({**outer, "messages": messages}).encode()
    kept = [each.get("tags") for each in json.loads(remove_body_tags(theirs, "openai"))["messages"]]
    assert all(each in (None, {"a": 1}, [1]) for each in kept)


def test_escaped_names_are_tags_too() -> None:
    """JSON lets every letter of a name be escaped."""
    raw = b'{"messages": [{"role": "user", "content": "a", "\\u0074ags": ["x"]}]}'
    assert json.loads(remove_body_tags(raw, "openai")) == {"messages": [{"role": "user", "content": "a"}]}
    assert not may_have_tags(b'{"messages": [{"role": "user", "content": "\\u001b[1m \\u2019"}]}')


async def test_bodies_that_cannot_be_read() -> None:
    """They raise, and are forwarded as they came."""
    assert not may_have_tags(b'{"messages": [{"role": "user", "content": "\\"tags\\" and tags"}]}')
    with pytest.raises(UnreadableBody):
        remove_body_tags(b'{"messages": [1], "tags": 3}', "openai")
    broken = b'{"messages": [{"tags": ["a"], "role": }]}'
    sent, _ = await ask("openai", broken)
    assert sent[0].body == broken


def test_list_fields_are_named() -> None:
    """Of Responses that is `input`, which may be a text too."""
    assert LIST_FIELDS["openai-responses"] == "input"
    raw = b'{"input": "say \\"tags\\"", "metadata": {"tags": ["x"]}}'
    assert remove_body_tags(raw, "openai-responses") is raw


@pytest.mark.parametrize("name", [b'"observation_type"', b"\\u005f"])
def test_a_name_is_found_wherever_a_piece_ends(name: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body is searched in pieces; a name or an escape on the border of two is in one of them."""
    monkeypatch.setattr(request_body, "PIECE", 32)
    assert all(request_body.may_have_tags(b"x" * before + name + b"x" * 50) for before in range(100))
    assert not request_body.may_have_tags(b"x" * 200)
