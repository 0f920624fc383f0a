"""Messages against those that were read: work per call is with what is new."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from elision.manager.history import (
    _ALWAYS_COMPARED,
    _FIRST_KEPT,
    _SAMPLE_STRIDE,
    COMPARISONS_PER_MESSAGE,
    History,
    find_history_end,
)
from elision.providers.live.client_messages import parse_message
from elision.providers.provider_table import detect_provider
from tests.manager.agents import make_history


class Counted(dict[str, Any]):
    """A message that counts how often it is compared."""

    compared = 0

    def __ne__(self, other: object) -> bool:
        Counted.compared += 1
        return dict.__ne__(self, other)


def read(messages: list[Any]) -> History:
    found = History(detect_provider(messages, None, None, "").live, b"seed")
    found.extend(messages)
    return found


def compared(action: Callable[[], object]) -> int:
    Counted.compared = 0
    action()
    return Counted.compared


def test_old_objects_are_looked_at_in_turn() -> None:
    """A call compares the newest messages and a part of the old ones, however long the history is."""
    messages: list[Any] = [Counted(message) for message in make_history("openai", 1_000)]
    found = read(messages)
    costs = [compared(lambda: found.count_common(messages)) for _ in range(_SAMPLE_STRIDE)]
    assert max(costs) <= _ALWAYS_COMPARED + len(messages) / _SAMPLE_STRIDE + 1
    assert sum(costs) >= len(messages)


def test_what_is_read_is_placed_in_its_turns() -> None:
    """An answer begins a turn; its results and the user's words belong to it."""
    messages = [*make_history("openai", 4), {"role": "user", "content": "More."}]
    found = read(messages[:-3])
    assert found.turns.turn_count == 3
    assert [found.extend([message]) for message in messages[-3:]] == [4, 4, 4]


@pytest.mark.parametrize("place", [2, 3])
def test_an_old_object_that_was_changed_is_noticed(place: int) -> None:
    """Within as many calls as it takes to look at all of them, one by one."""
    messages = make_history("openai", 100)
    found = read(messages)
    messages[place]["content"] = "changed by its owner"
    places = [found.count_common(messages) for _ in range(_SAMPLE_STRIDE)]
    assert place in places
    messages[-1]["content"] = "changed as well"
    assert read(make_history("openai", 100)).count_common(messages) == place


def test_messages_parsed_anew_are_compared_once_each() -> None:
    """They are other objects, so nothing is known of them but what they hold; each comparison is one in C."""
    found = read(make_history("openai", 1_000))
    others: list[Any] = [Counted(message) for message in make_history("openai", 1_000)]
    assert compared(lambda: check_known(found, others)) == len(others)


def test_other_bytes_in_the_newest_messages_do_not_have_all_compared_twice() -> None:
    """Cache markers move from call to call, and ids are written anew."""
    found = read(make_history("anthropic", 1_000))
    others: list[Any] = [Counted(message) for message in make_history("anthropic", 1_000)]
    others[-1] = Counted(
        others[-1], content=[{**block, "cache_control": {"type": "ephemeral"}} for block in others[-1]["content"]]
    )
    assert compared(lambda: check_known(found, others)) <= len(others) + 2


def check_known(found: History, messages: list[Any]) -> None:
    assert found.count_common(messages) == len(messages)


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
@pytest.mark.parametrize("is_longer", [True, False])
def test_an_old_message_parsed_anew_that_was_edited_is_noticed_at_once(shape: str, is_longer: bool) -> None:
    """Whatever of it was edited, and however old it is."""
    found = read(make_history(shape, 100))
    others = make_history(shape, 100)
    place = next(place for place, message in enumerate(others) if place > 4 and {"content", "output"} & message.keys())
    field = "content" if "content" in others[place] else "output"
    edited = "another" if is_longer else _edit_letter(others[place][field])
    others[place] = {**others[place], field: edited}
    assert found.count_common(others) == place


def _edit_letter(value: Any) -> Any:
    """Return a content of the same length with another first letter."""
    if isinstance(value, str):
        return "~" + value[1:]
    field = next(name for name in ("text", "content", "input") if isinstance(value[0].get(name), str))
    return [{**value[0], field: "~" + value[0][field][1:]}, *value[1:]]


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
def test_of_old_messages_only_the_bytes_are_kept(shape: str) -> None:
    """The newest and the first are looked at in every call; any other is read again where it is needed."""
    messages = make_history(shape, 100)
    dialect = detect_provider(messages, None, None, "").live
    parsed = [parse_message(dialect, message, 0, json.dumps(message).encode())[0] for message in messages]
    found = History(dialect, b"seed")
    for place in range(0, len(parsed), 7):
        found.extend(parsed[place : place + 7])
    old = slice(_FIRST_KEPT, -_ALWAYS_COMPARED)
    assert all(message.kept_json is None for message in parsed[old])
    assert None not in [message.kept_json for message in [*parsed[:_FIRST_KEPT], *parsed[-_ALWAYS_COMPARED:]]]
    assert [message.json for message in parsed] == messages


def test_a_message_with_a_cache_marker_is_kept_whole() -> None:
    """Markers are looked for in every call; a text that quotes one is none."""
    dialect = detect_provider(make_history("anthropic", 1), None, None, "").live
    marked = {"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}
    for block, is_kept in ((marked, True), ({"type": "text", "text": json.dumps(marked)}, False)):
        value = {"role": "user", "content": [block]}
        message, _ = parse_message(dialect, value, 0, json.dumps(value).encode())
        message.release_json()
        assert (message.kept_json is not None) == is_kept
        assert message.json == value


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
def test_a_history_ends_before_the_answer_that_is_begun(shape: str) -> None:
    """Trailing messages of the assistant are no history, whether they came as objects or as bytes."""
    messages = make_history(shape, 3)
    dialect = detect_provider(messages, None, None, "").live
    spoken = [parse_message(dialect, message, 0, json.dumps(message).encode())[0] for message in messages]
    for end in range(1, len(messages) + 1):
        expected = end
        while expected and spoken[expected - 1].is_from_assistant:
            expected -= 1
        assert find_history_end(dialect, messages[:end]) == find_history_end(dialect, spoken[:end]) == expected


def test_a_trim_is_looked_for_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that repeat, and end otherwise, are not compared at each place with all that follow."""
    counts = [0]
    compare = History._looks_the_same

    def count(history: History, value: Any, place: int) -> bool:
        counts[0] += 1
        return compare(history, value, place)

    monkeypatch.setattr(History, "_looks_the_same", count)
    same = {"role": "assistant", "content": "a"}
    task = {"role": "user", "content": "Go."}
    found = read([task, {"role": "assistant", "content": "b"}, *[same] * 2_000])
    assert found.find_trim([task, *[same] * 1_000, {"role": "user", "content": "c"}, *[same] * 900, task]) is None
    assert counts[0] <= 2 * (COMPARISONS_PER_MESSAGE + 1) * len(found) * 2
    assert found.find_trim([task, *[same] * 20]) == range(1, len(found) - 20)
