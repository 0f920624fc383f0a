"""Any one call of the store fails or finds damage, whichever it is: `prepare` raises nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from elision import Advanced, Cache
from elision.errors import CorruptError, StoreError
from elision.stores.memory import MemoryStore
from tests import flat_options
from tests.manager.agents import LONG, make_history
from tests.soak import SOAK, pair_cases

#: The methods of a store that a call uses.
METHODS = ("create_with_events", "append", "length", "events", "locate", "info", "sessions", "turns")
ERRORS: dict[str, Callable[[], Exception]] = {
    "damaged": lambda: CorruptError("record 7 is damaged"),
    "failed": lambda: StoreError("the disk is full"),
    "wrong": lambda: KeyError("a bug of a store"),
}
#: Histories of the agent: it goes on, undoes a turn, goes another way, and begins again.
STEPS = (3, 4, 5, 3, 6, 7)


class FaultyStore(MemoryStore):
    """A store whose call number `fails_at` raises what `make_error` returns, and with `stays` each one after it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.fails_at = 0
        self.stays = False
        self.make_error: Callable[[], Exception] = ERRORS["failed"]

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in METHODS:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self.fails_at or (self.stays and 0 < self.fails_at < self.calls):
                raise self.make_error()
            return found(*given, **named)

        return call


OPTIONS: list[dict[str, Any]] = [{}, {"family": "f"}, {"write_behind": True}]


def run_agent(store: FaultyStore, options: dict[str, Any]) -> None:
    """Make the calls of two processes. Each view has every message, and what is hidden can be read again."""
    for process in range(2):
        with flat_options.open_context(
            "masking(window=2, schedule=every-turn)",
            store=store,
            session="s",
            **{"advanced": Advanced(cache=Cache(control="client")), **options},
        ) as context:
            for steps in STEPS:
                messages = make_history("openai", steps + process)
                view = context.prepare(messages)
                assert len(view.messages) == len(messages)
                for shown, given in zip(view.messages, messages, strict=True):
                    assert shown == given or "tokens hidden" in str(shown) or "[same as lines" in str(shown)
                # What a reference names is shown: whichever call failed, the lines are in the view.
                if "[same as lines" in str(view.messages):
                    assert any(LONG in str(message["content"]) for message in view.messages)
                context.record({"prompt_tokens": 1_000, "completion_tokens": 10})


@pytest.mark.parametrize(("way", "options"), pair_cases(product(ERRORS, [False, True]), OPTIONS))
def test_no_fault_of_a_store_call_reaches_the_agent(way: tuple[str, bool], options: dict[str, Any]) -> None:
    """The first call of the store, the second, and so on to the last: each fails once in all, with one of the errors,
    alone or with those behind it; in a soak all of them with each error, both ways."""
    error, stays = way
    counting = FaultyStore()
    run_agent(counting, options)
    assert counting.calls > len(STEPS)
    first, step = (1, 1) if SOAK else (1 + list(ERRORS).index(error) + len(ERRORS) * stays, 2 * len(ERRORS))
    for number in range(first, counting.calls + 1, step):
        store = FaultyStore()
        store.make_error, store.fails_at, store.stays = ERRORS[error], number, stays
        run_agent(store, options)
