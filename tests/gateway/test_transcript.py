"""What a client has sent so far: what of a request is known, and under which names its histories go."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.request_body import UnreadableBody
from elision.gateway.transcript import ClientTranscript, IncomingMessages, count_answers
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from tests.gateway.conversation_bytes import APIS, make_history

Json = dict[str, Any]


def transcript(api: Api = "openai", seed: bytes = b"k1") -> ClientTranscript:
    return ClientTranscript(PROVIDERS[api].live, seed)


def raws(messages: list[Json], **odd: Any) -> list[bytes]:
    return [json.dumps(message, **odd).encode() for message in messages]


def arrived(found: ClientTranscript, sent: list[bytes]) -> IncomingMessages:
    return IncomingMessages(found.dialect, sent)


@pytest.mark.parametrize("api", APIS)
def test_a_history_that_grows(api: Api) -> None:
    """What is known keeps the object that it was read to, and every history keeps its name."""
    found, whole = transcript(api), raws(make_history(api, 4))
    nodes: list[bytes] = []
    for count in range(1, len(whole) + 1):
        before = [id(entry.json) for entry in found.entries]
        found.adopt_messages(arrived(found, whole[:count]))
        assert [id(entry.json) for entry in found.entries][: count - 1] == before
        nodes.append(found.node)
    assert len(set(nodes)) == len(whole)
    assert [entry.node for entry in found.entries] == nodes
    assert (found.head_length, found.count_shared(arrived(found, whole))) == (1, len(whole))
    again = transcript(api)
    again.adopt_messages(arrived(again, whole))
    assert again.node == found.node
    other = transcript(api, b"k2")
    other.adopt_messages(arrived(other, whole))
    assert not set(nodes) & {entry.node for entry in other.entries}


@pytest.mark.parametrize(
    "more", [{}, {"encrypted_content": "x"}, {"content": [{"type": "reasoning_text", "text": "Hm"}]}]
)
def test_reasoning_names_no_history(more: Json) -> None:
    """Of Responses, some clients send it back and some leave it out: both go on with what they were shown."""
    found, dropped = transcript("openai-responses"), transcript("openai-responses")
    whole = make_history("openai-responses", 2)
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "So."}], **more}
    dropped.adopt_messages(arrived(dropped, raws(whole)))
    found.adopt_messages(arrived(found, raws([*whole[:3], reasoning, *whole[3:]])))
    assert found.node == dropped.node
    assert (found.entries[3].content_digest, found.entries[3].is_from_assistant) == (b"", True)


@pytest.mark.parametrize("api", APIS)
@given(at=st.integers(0, 8))
def test_a_message_that_says_something_else(api: Api, at: int) -> None:
    """Up to it everything is known, and nothing behind it; taking such a request forgets the rest."""
    whole = make_history(api, 4)
    at = min(at, len(whole) - 1)
    changed = json.loads(json.dumps(whole))
    changed[at] = {"role": "user", "content": f"Something else, at {at}."}
    found = transcript(api)
    found.adopt_messages(arrived(found, raws(whole)))
    assert found.count_shared(arrived(found, raws(changed))) == at
    found.adopt_messages(arrived(found, raws(changed)))
    assert found.raws == raws(changed)
    assert found.count_shared(arrived(found, raws(whole))) == at


@pytest.mark.parametrize("api", APIS)
def test_other_bytes_that_say_the_same(api: Api) -> None:
    """Another spelling is known, and its bytes are those that count from then on; the name stays."""
    found, messages = transcript(api), make_history(api, 3)
    found.adopt_messages(arrived(found, raws(messages)))
    node, spelled = found.node, raws(messages, indent=1)
    assert found.count_shared(arrived(found, spelled)) == len(messages)
    found.adopt_messages(arrived(found, spelled))
    assert (found.raws, found.node) == (spelled, node)
    assert [entry.raw for entry in found.entries] == spelled


@pytest.mark.parametrize("api", APIS)
def test_the_name_of_what_will_be_said(api: Api) -> None:
    """It is the one that the history has when the client has said it."""
    found, whole = transcript(api), make_history(api, 3)
    found.adopt_messages(arrived(found, raws(whole[:-2])))
    told = found.name_history(found.entries, [whole[-2]])
    found.adopt_messages(arrived(found, raws(whole)))
    assert found.entries[-2].node == told


def test_who_spoke() -> None:
    """Of known messages and of new ones; what is said in a row is one answer."""
    found, whole = transcript(), raws(make_history("openai", 3))
    found.adopt_messages(arrived(found, whole[:3]))
    spoken = [False, True, False, True, False, True, False]
    assert [found.flag_assistant_messages(arrived(found, whole), known) for known in (0, 3)] == [spoken, spoken]
    assert count_answers(found.flag_assistant_messages(arrived(found, whole), 3)) == 3
    assert [count_answers(spoken) for spoken in ([], [True, True], [True, False, True], [False])] == [0, 1, 2, 0]
    assert [found.count_answers_from(first) for first in range(4)] == [1, 1, 0, 0]


def test_a_message_that_is_none() -> None:
    """It is unreadable, wherever it stands."""
    found = transcript()
    sent = arrived(found, [*raws(make_history("openai", 1)), b'"text"'])
    with pytest.raises(UnreadableBody):
        found.adopt_messages(sent)
