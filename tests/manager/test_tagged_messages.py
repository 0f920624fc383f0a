"""Tags that a client writes into its messages: they act by rules, and no provider sees them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from anthropic.types import MessageParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import ConfigDict, TypeAdapter

from elision import Advanced
from elision.errors import SettingError
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.context_view import ContextView
from elision.stores.memory import MemoryStore
from elision.trajectory.turn import Observation, Turn
from tests.gateway.conversation_bytes import APIS, make_history
from tests.providers.render_checks import validate_elements

Json = dict[str, Any]

#: The providers' own types, with no field that they do not name.
_TYPES: dict[str, TypeAdapter[Any]] = {
    "openai": TypeAdapter(list[ChatCompletionMessageParam], config=ConfigDict(extra="forbid")),
    "openai-responses": TypeAdapter(list[ResponseInputItemParam], config=ConfigDict(extra="forbid")),
    "anthropic": TypeAdapter(list[MessageParam], config=ConfigDict(extra="forbid")),
}
EAGER = "masking(window=2, gist=0, schedule=every-turn)"
FORMS: list[Json] = [
    {"tags": ["keep_output", "logs"]},
    {"tags": "keep_output"},
    {"keep_output": True},
    {"observation.type": "keep_output"},
    {"observation": {"type": "keep_output"}},
    {"observation_type": "keep_output"},
]


def make_context(api: str, strategy: str = EAGER, **options: Any) -> ContextManager:
    options = {
        "store": MemoryStore(),
        "clock": lambda: 0.0,
        "tokens": "estimate",
        "recall": "never",
        "cache_control": "client",
    } | options
    return ContextManager(strategy, **gather_options({"advanced": Advanced(dialect=api), **options}))  # type: ignore[arg-type]


def find_result(messages: list[Json], step: int) -> Json:
    """The result of that step (a block, a message or an item), to be tagged."""
    for message in messages:
        parts = message["content"] if isinstance(message.get("content"), list) else [message]
        for part in parts:
            if f"call_{step}" in (part.get("tool_use_id"), part.get("tool_call_id")):
                return part
            if part.get("type") == "function_call_output" and part["call_id"] == f"call_{step}":
                return part
    raise LookupError(step)


def find_call(messages: list[Json], step: int) -> Json:
    """The message or item in which the assistant makes the call of that step."""
    for message in messages:
        if f'"call_{step}"' in json.dumps(message):
            return message
    raise LookupError(step)


def find_masked(view: ContextView) -> list[str]:
    return [each.handle for each in view.diagnostics.masked]


def check_sent(api: str, sent: list[Any]) -> None:
    validate_elements(_TYPES[api].validate_python(sent))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("form", FORMS)
def test_a_result_that_is_tagged_stays(api: str, form: Json) -> None:
    """In every form, on a message, an item or a block of a result; what is sent is what the provider's types allow."""
    messages = make_history(api, 4)
    plain = make_context(api).prepare(copy.deepcopy(messages))
    assert find_masked(plain) == ["t1.1", "t2.1"]
    find_result(messages, 1).update(form)
    given = copy.deepcopy(messages)
    view = make_context(api).prepare(messages)
    assert find_masked(view) == ["t2.1"]
    assert messages == given
    check_sent(api, view.messages)
    untagged = make_history(api, 4)
    assert sum(one != other for one, other in zip(view.messages, untagged, strict=True)) == 1


@pytest.mark.parametrize("api", APIS)
def test_remove_output_hides_at_once(api: str) -> None:
    """A result that is tagged `remove_output` is hidden as soon as its turn is no longer the newest."""
    messages = make_history(api, 3)
    find_result(messages, 2)["tags"] = ["remove_output"]
    view = make_context(api, "masking(window=10, gist=0, schedule=every-turn)").prepare(messages)
    assert find_masked(view) == ["t2.1"]
    check_sent(api, view.messages)


@pytest.mark.parametrize("api", APIS)
def test_tags_of_the_call_are_of_its_result(api: str) -> None:
    """An assistant's message that is tagged, or a call in it, speaks of the results of its calls."""
    for of_call in (False, True):
        messages = make_history(api, 4)
        call = find_call(messages, 1)
        if of_call and api != "openai-responses":
            call = (call.get("tool_calls") or call["content"])[-1]
        call["tags"] = ["keep_output"]
        view = make_context(api).prepare(messages)
        assert find_masked(view) == ["t2.1"]
        check_sent(api, view.messages)


@pytest.mark.parametrize("api", APIS)
def test_rules_name_tags(api: str) -> None:
    """`rule(tag=…)` finds the results that bear a tag of one's own."""
    messages = make_history(api, 5)
    find_result(messages, 2)["tags"] = ["logs"]
    strategy = "masking(window=10, gist=0, schedule=every-turn, rules=rule(tag=logs, after=2))"
    view = make_context(api, strategy).prepare(messages)
    assert find_masked(view) == ["t2.1"]


@pytest.mark.parametrize("api", APIS)
def test_nothing_hidden(api: str) -> None:
    """Messages without tags stay the very objects; those with tags are copies without them, the same at each call."""
    messages = make_history(api, 2)
    find_result(messages, 1)["tags"] = ["a"]
    context = make_context(api, "raw")
    sent = context.prepare(messages).messages
    check_sent(api, sent)
    changed = [place for place, (one, other) in enumerate(zip(sent, messages, strict=True)) if one is not other]
    assert len(changed) == 1
    assert sent == make_history(api, 2)
    again = context.prepare([*messages, *make_history(api, 3)[len(messages) :]]).messages
    assert again[changed[0]] is sent[changed[0]]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("first_tagged", [True, False])
def test_the_first_tags_hold(api: str, first_tagged: bool) -> None:
    """A history with tags and the same without them are one history, and decisions stay, also after a restart."""
    store = MemoryStore()
    tagged = make_history(api, 6)
    for step in (1, 3):
        find_result(tagged, step)["keep_output"] = True
    plain = make_history(api, 6)
    histories = [tagged, plain] if first_tagged else [plain, tagged]
    cut = len(make_history(api, 4))
    expected = ["t2.1"] if first_tagged else ["t1.1", "t2.1"]
    context = make_context(api, store=store, session="s")
    assert find_masked(context.prepare(histories[0][:cut])) == expected
    second = context.prepare(histories[1][: cut + 2])
    assert second.diagnostics.history == "continue"
    later = [] if first_tagged else ["t3.1"]
    assert find_masked(second) == later
    check_sent(api, second.messages)
    context.close()
    opened = make_context(api, store=store, session="s")
    third = opened.prepare(histories[1])
    assert third.diagnostics.history == "continue"
    assert find_masked(third) == ["t4.1"]
    check_sent(api, third.messages)
    assert len(store.sessions()) == 1


@pytest.mark.parametrize("api", APIS)
def test_shadow_and_failure_send_no_tags(api: str) -> None:
    """Where nothing is edited, in shadow mode or because Elision fails, tags are taken out all the same."""
    messages = make_history(api, 4)
    find_result(messages, 1)["tags"] = ["keep_output"]
    find_call(messages, 3)["observation.type"] = "tool_output"
    shadow = make_context(api, shadow=True).prepare(messages)
    assert shadow.messages == make_history(api, 4)

    class Failing(MemoryStore):
        def locate(self, *_: Any) -> Any:
            raise ZeroDivisionError

    failed = make_context(api, store=Failing()).prepare(messages)
    assert failed.diagnostics.faults
    assert failed.messages == make_history(api, 4)


def test_the_beginning_of_an_answer() -> None:
    """Trailing messages of the assistant are no history, and are sent without tags too."""
    messages = [*make_history("anthropic", 3), {"role": "assistant", "content": "So", "tags": ["a"]}]
    view = make_context("anthropic").prepare(messages)
    assert view.messages[-1] == {"role": "assistant", "content": "So"}


def test_a_user_message_that_is_tool_output() -> None:
    """It is an observation, whatever the protocol is: maskable, with a handle, whoever answers."""
    told = [{"role": "user", "content": "Find it."}]
    for number in range(1, 5):
        told.append({"role": "assistant", "content": f"I look at part {number}."})
        told.append({"role": "user", "content": f"part {number}\n" * 80, "observation.type": "tool_output"})
    for api in ("openai", "anthropic", "openai-responses"):
        view = make_context(api).prepare(copy.deepcopy(told))
        assert find_masked(view) == ["t1.1", "t2.1"]
        check_sent(api, view.messages)
        plain = [{key: value for key, value in each.items() if key in ("role", "content")} for each in told]
        assert find_masked(make_context(api).prepare(plain)) == []
        assert [each["role"] for each in view.messages] == [each["role"] for each in plain]


def test_declared_observations_after_tool_results() -> None:
    """Results first, then user messages that are tool output, then the user's words: the order of a request stays."""
    messages = make_history("openai", 4)
    for place in (9, 5, 3):
        messages.insert(place, {"role": "user", "content": "and seen\n" * 90, "tags": ["tool_output"]})
        messages.insert(place + 1, {"role": "user", "content": "Go on."})
        messages.insert(place + 2, {"role": "user", "content": "late\n" * 90, "tags": ["tool_output"]})
    roles = [each["role"] for each in messages]
    store = MemoryStore()
    view = make_context("openai", store=store, session="s").prepare(messages)
    assert [each["role"] for each in view.messages] == roles
    assert find_masked(view) == ["t1.1", "t1.2", "t2.1", "t2.2"]
    check_sent("openai", view.messages)
    # Behind the user's own words it is taken for words: an order that cannot be kept is not made.
    assert [each["content"] for each in view.messages if each["content"] == "late\n" * 90]
    # Other processes read the same turns, tagged or not.
    bare = [{key: value for key, value in each.items() if key != "tags"} for each in messages]
    for again in (messages, bare):
        later = make_context("openai", store=store, session="s").prepare(
            [*again, {"role": "assistant", "content": "Hm."}, {"role": "user", "content": "Well?"}]
        )
        assert later.diagnostics.history in ("continue", "fork")
        assert not later.diagnostics.faults
        assert len(later.messages) == len(messages) + 2


def test_a_text_protocol_with_tags() -> None:
    """In a text protocol the tags of an answer are its observation's, and those of an action too."""
    told = [{"role": "user", "content": "Find it."}]
    for number in range(1, 6):
        told.append({"role": "assistant", "content": f"I look.\n```bash\ncat {number}\n```"})
        told.append({"role": "user", "content": f"part {number}\n" * 80})
    told[2]["tags"] = ["keep_output"]
    told[3]["keep_output"] = True
    view = make_context("openai").prepare(told)
    assert find_masked(view) == ["t3.1"]
    check_sent("openai", view.messages)


def test_what_is_said_of_a_message_is_said_of_its_results() -> None:
    """Words beside results in one message are the user's, however the message is tagged."""
    messages = make_history("anthropic", 4)
    messages[2]["content"].append({"type": "text", "text": "Remember the milk."})
    messages[2]["tags"] = ["tool_output", "keep_output"]
    view = make_context("anthropic").prepare(messages)
    assert find_masked(view) == ["t2.1"]
    check_sent("anthropic", view.messages)
    assert view.messages[2] == {key: messages[2][key] for key in ("role", "content")}


def test_pin_sees_tags() -> None:
    """A `pin` of one's own is given messages as they came."""
    messages = make_history("openai", 4)
    find_result(messages, 1)["tags"] = ["mine"]
    seen = make_context("openai", pin=lambda message: "mine" in message.get("tags", ())).prepare(messages)
    assert find_masked(seen) == ["t2.1"]


def test_objects_of_a_package() -> None:
    """Objects that carry extra fields are sent as JSON without them."""
    from openai.types.chat import ChatCompletionMessage

    messages: list[Any] = make_history("openai", 4)
    messages[1] = ChatCompletionMessage.model_validate(messages[1] | {"tags": ["keep_output"]})
    view = make_context("openai").prepare(messages)
    assert find_masked(view) == ["t2.1"]
    assert isinstance(view.messages[1], dict)
    check_sent("openai", view.messages)


# -- by hand -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tags", ["keep_output", ["keep_output", "logs"], ("keep_output",), {"keep_output"}])
def test_add_turn_takes_tags(tags: Any) -> None:
    """Tags of a turn that is added by hand are of its results."""
    context = make_context("openai")
    for number in range(1, 5):
        given = {"tags": tags} if number == 1 else {}
        context.turns.add("", ["a", "b"], [f"x {number}\n" * 90, f"y {number}\n" * 90], **given)
    assert find_masked(context.turns.view()) == ["t2.1", "t2.2"]
    check_sent("openai", context.turns.view().messages)


def test_add_turn_with_an_observation_of_ones_own() -> None:
    """Its own tags and the turn's are joined."""
    context = make_context("openai")
    turn = context.turns.add(
        "", "look", Observation(action_id="call_1_1", tool="action", content=(), tags=frozenset({"a"})), tags="b"
    )
    assert turn.observations[0].tags == {"a", "b"}
    context.turns.append(Turn(index=2))


@pytest.mark.parametrize("tags", [3, [3], [""], {"a": 1}, b"keep", None])
def test_odd_tags_are_refused(tags: Any) -> None:
    """What is no text and no list of texts is an error that says what to give."""
    with pytest.raises(SettingError, match="give a text, or a list of texts"):
        make_context("openai").turns.add("", "a", "b", tags=tags)


# -- any tags ----------------------------------------------------------------------------------------------------------

_FIELDS = st.dictionaries(
    st.sampled_from(["tags", "observation.type", "observation_type", "keep_output", "remove_output", "observation"]),
    st.sampled_from(["keep_output", "x", True, False, None, ["a", "remove_output"], {"type": "tool_output"}, 3]),
    max_size=2,
)


@given(
    api=st.sampled_from(APIS),
    fields=st.lists(_FIELDS, min_size=11, max_size=11),
    calls=st.lists(st.integers(1, 5), min_size=1, max_size=3),
)
def test_no_tags_are_sent(api: str, fields: list[Json], calls: list[int]) -> None:
    """Whatever is tagged, and whenever: no tag is sent, and no history forks."""
    context = make_context(api, store=MemoryStore(), session="s")
    for steps in sorted(calls):
        messages = make_history(api, steps)
        for message, own in zip(messages, fields, strict=False):
            message.update({key: value for key, value in own.items() if is_ours(key, value)})
        view = context.prepare(messages)
        assert view.diagnostics.history == "continue"
        check_sent(api, view.messages)
        plain = make_history(api, steps)
        hidden = sum(one != other for one, other in zip(view.messages, plain, strict=True))
        assert hidden <= steps


_USERS = st.lists(st.sampled_from(["words", "output", "kept"]), max_size=3)


@given(
    api=st.sampled_from(APIS),
    users=st.lists(_USERS, min_size=5, max_size=5),
    calls=st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.booleans()), min_size=1, max_size=4),
)
def test_declared_observations_keep_their_place(
    api: str, users: list[list[str]], calls: list[tuple[int, bool, bool]]
) -> None:
    """Wherever user messages are declared to be tool output, tagged or not at a call, restarted or not: each message
    is in the request once and in order, as it came or hidden."""
    store = MemoryStore()
    context = make_context(api, "masking(window=1, gist=0, schedule=every-turn)", store=store, session="s")
    for steps, tagged, restarted in sorted(calls):
        if restarted:
            context.close()
            context = make_context(api, "masking(window=1, gist=0, schedule=every-turn)", store=store, session="s")
        messages: list[Json] = make_history(api, 0)
        plain: list[Json] = make_history(api, 0)
        for step in range(1, steps + 1):
            made = make_history(api, step)[len(make_history(api, step - 1)) :]
            messages += copy.deepcopy(made)
            plain += made
            for number, kind in enumerate(users[step - 1]):
                word = {"role": "user", "content": f"{kind} {step} {number}\n" * 40}
                tags = {
                    "words": {},
                    "output": {"tags": ["tool_output"]},
                    "kept": {"tags": ["tool_output", "keep_output"]},
                }
                messages.append(word | (tags[kind] if tagged else {}))
                plain.append(word)
        view = context.prepare(messages)
        assert view.diagnostics.history == "continue"
        assert not view.diagnostics.faults
        check_sent(api, view.messages)
        for sent, own in zip(list_parts(view.messages), list_parts(plain), strict=True):
            assert sent == own or (sent[0] == own[0] and "hidden" in sent[1])


def list_parts(messages: list[Json]) -> list[tuple[str, str]]:
    """Each part of a history, in order: what it is, and what it says. Anthropic's user messages may be joined."""
    parts: list[tuple[str, str]] = []
    for message in messages:
        kind = message.get("role") or message["type"]
        content = message.get("content", message.get("output", message.get("arguments")))
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        for block in blocks:
            said = block.get("text", block.get("content", block.get("input")))
            parts.append((f"{kind} {block['type']}", str(said)))
    return parts


def is_ours(key: str, value: Any) -> bool:
    if key in ("keep_output", "remove_output"):
        return isinstance(value, bool)
    if key == "observation":
        return isinstance(value, dict)
    return isinstance(value, str) or (key == "tags" and isinstance(value, list))
