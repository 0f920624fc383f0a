"""What a client has sent so far: what of a request is known, and under which names its histories go."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.incoming_messages import IncomingMessages
from elision.gateway.request_body import UnreadableBody
from elision.providers.live.conversation import Conversation, count_answers
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from tests.gateway.conversation_bytes import APIS, make_history

Json = dict[str, Any]


def make_conversation(api: Api = "openai", seed: bytes = b"k1") -> Conversation:
    return Conversation(PROVIDERS[api].live, seed)


def raws(messages: list[Json], **odd: Any) -> list[bytes]:
    return [json.dumps(message, **odd).encode() for message in messages]


def arrived(found: Conversation, sent: list[bytes]) -> IncomingMessages:
    return IncomingMessages(found.dialect, sent)


def take(found: Conversation, sent: list[bytes]) -> None:
    arrived(found, sent).extend_conversation(found)


def count_shared(found: Conversation, sent: list[bytes]) -> int:
    return arrived(found, sent).count_shared(found)


def list_raws(found: Conversation) -> list[bytes]:
    return [message.raw for message in found.messages]


@pytest.mark.parametrize("api", APIS)
def test_a_history_that_grows(api: Api) -> None:
    """What is known keeps the object that it was read to, and every history keeps its name."""
    found, whole = make_conversation(api), raws(make_history(api, 4))
    nodes: list[bytes] = []
    for count in range(1, len(whole) + 1):
        before = [id(message) for message in found.messages]
        take(found, whole[:count])
        assert [id(message) for message in found.messages][: count - 1] == before
        nodes.append(found.node)
    assert len(set(nodes)) == len(whole)
    assert found.nodes == nodes
    assert (found.head_length, count_shared(found, whole)) == (1, len(whole))
    again = make_conversation(api)
    take(again, whole)
    assert again.node == found.node
    other = make_conversation(api, b"k2")
    take(other, whole)
    assert not set(nodes) & set(other.nodes)


@pytest.mark.parametrize(
    "more", [{}, {"encrypted_content": "x"}, {"content": [{"type": "reasoning_text", "text": "Hm"}]}]
)
def test_reasoning_names_no_history(more: Json) -> None:
    """Of Responses, some clients send it back and some leave it out: both go on with what they were shown."""
    found, dropped = make_conversation("openai-responses"), make_conversation("openai-responses")
    whole = make_history("openai-responses", 2)
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "So."}], **more}
    take(dropped, raws(whole))
    take(found, raws([*whole[:3], reasoning, *whole[3:]]))
    assert found.node == dropped.node
    assert (found.messages[3].digest, found.messages[3].is_from_assistant) == (b"", True)


@pytest.mark.parametrize("api", APIS)
@given(at=st.integers(0, 8))
def test_a_message_that_says_something_else(api: Api, at: int) -> None:
    """Up to it everything is known, and nothing behind it; taking such a request forgets the rest."""
    whole = make_history(api, 4)
    at = min(at, len(whole) - 1)
    changed = json.loads(json.dumps(whole))
    changed[at] = {"role": "user", "content": f"Something else, at {at}."}
    found = make_conversation(api)
    take(found, raws(whole))
    assert count_shared(found, raws(changed)) == at
    take(found, raws(changed))
    assert list_raws(found) == raws(changed)
    assert count_shared(found, raws(whole)) == at


@pytest.mark.parametrize("api", APIS)
def test_other_bytes_that_say_the_same(api: Api) -> None:
    """Another spelling is known, and its bytes are those that count from then on; the name stays."""
    found, messages = make_conversation(api), make_history(api, 3)
    take(found, raws(messages))
    node, spelled = found.node, raws(messages, indent=1)
    assert count_shared(found, spelled) == len(messages)
    take(found, spelled)
    assert (list_raws(found), found.node) == (spelled, node)


@pytest.mark.parametrize("api", APIS)
def test_the_name_of_what_will_be_said(api: Api) -> None:
    """It is the one that the history has when the client has said it."""
    found, whole = make_conversation(api), make_history(api, 3)
    take(found, raws(whole[:-2]))
    told = found.name_continuation([whole[-2]])
    take(found, raws(whole))
    assert found.nodes[-2] == told


def test_who_spoke() -> None:
    """Of known messages and of new ones; what is said in a row is one answer."""
    found, whole = make_conversation(), raws(make_history("openai", 3))
    take(found, whole[:3])
    spoken = [False, True, False, True, False, True, False]
    assert [arrived(found, whole).flag_answers(found, known) for known in (0, 3)] == [spoken, spoken]
    assert count_answers(arrived(found, whole).flag_answers(found, 3)) == 3
    assert [count_answers(spoken) for spoken in ([], [True, True], [True, False, True], [False])] == [0, 1, 2, 0]
    assert [found.count_answers_from(first) for first in range(4)] == [1, 1, 0, 0]


def test_a_message_that_is_none() -> None:
    """It is unreadable, wherever it stands."""
    found = make_conversation()
    sent = [*raws(make_history("openai", 1)), b'"text"']
    with pytest.raises(UnreadableBody):
        take(found, sent)
