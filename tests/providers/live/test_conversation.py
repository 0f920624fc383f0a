"""A conversation names the same histories, however it came to be, and whoever reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.json_bytes import encode_json
from elision.manager.history import History
from elision.providers.live.client_messages import parse_message
from elision.providers.live.conversation import Conversation
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from tests.gateway.conversation_bytes import APIS, Json, make_history

SYSTEM: Json = {"role": "system", "content": "You mend parsers."}


def make_conversation(api: Api, messages: list[Json]) -> Conversation:
    conversation = Conversation.for_family(PROVIDERS[api].live, "family")
    for place, message in enumerate(messages):
        raw = encode_json(message)
        conversation.append_message(parse_message(conversation.dialect, message, place, raw)[0])
    return conversation


@pytest.mark.parametrize("api", APIS)
@given(cut=st.integers(0, 12), more=st.integers(0, 4))
def test_a_conversation_that_lost_messages_and_got_them_again_is_the_same(api: Api, cut: int, more: int) -> None:
    """Names, head and digests depend on the messages alone."""
    messages = [SYSTEM, *make_history(api, 1 + more)]
    whole = make_conversation(api, messages)
    conversation = whole.copy()
    kept = min(cut, len(whole))
    conversation.drop_messages(kept)
    assert conversation.nodes == make_conversation(api, messages[:kept]).nodes
    assert conversation.head_length == make_conversation(api, messages[:kept]).head_length
    for message in whole.messages[kept:]:
        conversation.append_message(message)
    assert conversation.nodes == whole.nodes
    assert (conversation.head_length, conversation.newest_answer_index) == (
        whole.head_length,
        whole.newest_answer_index,
    )
    assert conversation.collect_digests() == whole.collect_digests()


@pytest.mark.parametrize("api", APIS)
def test_objects_and_bytes_have_the_same_names(api: Api) -> None:
    """The library reads a client's objects, or what the gateway parsed, which it does not copy."""
    messages = [SYSTEM, *make_history(api, 3)]
    parsed = make_conversation(api, messages)
    from_objects = History(parsed.dialect, parsed.seed)
    from_objects.extend(messages)
    from_bytes = History(parsed.dialect, parsed.seed)
    from_bytes.extend(parsed.messages)
    assert from_objects.nodes == from_bytes.nodes == parsed.nodes
    assert all(own is given for own, given in zip(from_bytes.messages, parsed.messages, strict=True))
    assert from_bytes.count_common(parsed.messages) == from_objects.count_common(messages) == len(messages)


def test_system_prompts_name_a_history_only_after_an_answer() -> None:
    """Before it they are the client's settings, which may change; after it they are words of the conversation."""
    task, answer, *_ = make_history("openai", 1)
    other = {**SYSTEM, "content": "You write parsers."}
    assert make_conversation("openai", [SYSTEM, task]).node == make_conversation("openai", [other, task]).node
    late = [make_conversation("openai", [task, answer, each]).node for each in (SYSTEM, other)]
    assert len(set(late)) == 2


def test_tags_are_in_the_message_and_not_in_what_is_sent() -> None:
    """The message that is sent is one of its own, with the same name."""
    dialect = PROVIDERS["openai"].live
    message, _ = parse_message(dialect, {"role": "user", "content": "Hi.", "keep_output": True}, 0)
    plain, _ = parse_message(dialect, {"role": "user", "content": "Hi."}, 0)
    assert message.tags is not None
    assert message.json["keep_output"]
    assert message.sent.json == {"role": "user", "content": "Hi."}
    assert message.digest == message.sent.digest == plain.digest
    assert (plain.sent, plain.tags) == (plain, None)
