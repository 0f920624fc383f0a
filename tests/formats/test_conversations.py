"""Conversations in a file, however nested."""

from __future__ import annotations

import json

import pytest

from elision.formats.conversations import (
    MESSAGES,
    RecordedConversation,
    is_mostly_valid,
    preview_conversations,
    split_conversations,
)
from elision.formats.document import Document
from elision.trajectory.trajectory import Problem
from tests.formats.found import make_lines

HI = {"role": "user", "content": "hi"}


def test_bare_lines_and_conversations_may_mix() -> None:
    """Lines that are conversations are runs of their own; bare messages together are one more, called main."""
    found = list(split_conversations(make_lines(HI, {"messages": [HI, HI]}, HI, {"x": 1}), MESSAGES))
    talks = [item for item in found if isinstance(item, RecordedConversation)]
    assert [(talk.name, talk.line, len(talk.messages)) for talk in talks] == [("line 2", 2, 2), ("main", None, 2)]
    assert [item.line for item in found if isinstance(item, Problem)] == [4]


def test_a_place_is_the_line_or_the_number_of_the_message() -> None:
    """Messages within one line are placed there; messages of a file by their number."""
    (line,) = preview_conversations(make_lines({"messages": [HI, HI]}, {}), MESSAGES)
    (whole,) = preview_conversations(Document("x.json", json.dumps([HI, HI]).encode()), MESSAGES)
    assert [place for place, _ in line.messages] == [1, 1]
    assert [place for place, _ in whole.messages] == [1, 2]


def test_a_preview_of_mostly_something_else_is_empty() -> None:
    """A stray message among other records does not make a file a conversation."""
    assert not preview_conversations(make_lines(HI, *[{"type": "event"}] * 5), MESSAGES)
    assert not preview_conversations(Document("x", b"no role here"), MESSAGES)


def test_a_request_is_its_conversation() -> None:
    """A recorded request and response are one object with the request's fields outside."""
    (talk,) = preview_conversations(
        make_lines({"request": {"messages": [HI], "model": "m"}, "response": {"id": "r"}}), MESSAGES
    )
    assert (talk.outer["model"], talk.outer["response"]) == ("m", {"id": "r"})


@pytest.mark.parametrize(("roles", "most"), [("", True), ("uua", True), ("ux", False), ("uax", True), ("x", False)])
def test_most_messages_decide(roles: str, most: bool) -> None:
    """More valid messages than odd ones are wanted; no message at all says nothing against it."""
    assert is_mostly_valid([{"role": role} for role in roles], lambda message: message["role"] in "ua") is most
