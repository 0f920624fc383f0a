"""Messages against those that were read: work per call is with what is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elision.manager.history import _ALWAYS_COMPARED, _SAMPLE_STRIDE, History
from elision.providers.detect import LIVE_DIALECTS
from tests.manager.agents import make_history


class Counted(dict[str, Any]):
    """A message that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return dict.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]


def read(messages: list[Any]) -> History:
    found = History(LIVE_DIALECTS["openai"], b"seed")
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


def test_an_old_object_that_was_changed_is_noticed() -> None:
    """Within as many calls as it takes to look at all of them."""
    messages = make_history("openai", 100)
    found = read(messages)
    messages[2]["content"] = "changed by its owner"
    places = [found.count_common(messages) for _ in range(_SAMPLE_STRIDE)]
    assert 2 in places
    messages[-1]["content"] = "changed as well"
    assert read(make_history("openai", 100)).count_common(messages) == 2


def test_other_objects_are_compared_whole() -> None:
    """A client that makes its messages anew each time is told apart at once."""
    found = read(make_history("openai", 100))
    others = make_history("openai", 100)
    assert found.count_common(others) == len(others)
    others[2] = {**others[2], "content": "another"}
    assert found.count_common(others) == 2
