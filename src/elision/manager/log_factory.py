"""Make the logs of one context manager: under its strategy and prices, with its extractors and redaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from elision.engine import Log, LogSetup
from elision.errors import CallbackError
from elision.manager.context_options import Options
from elision.manager.recall_definitions import RECALL_TOOL_DEFINITIONS
from elision.manager.recall_tools import RecallEntry
from elision.strategies.spec import describe_strategy
from elision.trajectory.events import Event, SessionOpened
from elision.trajectory.tokens import Sizer, make_counter

_log: Final = logging.getLogger("elision.manager")


class LogFactory:
    """Makes logs.

    notes: what the diagnostics of every call say about the options. extractor_failures: why the user's extractors
    failed, until the diagnostics report it.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.strategy = options.effective_strategy
        self.prices = options.find_prices()
        self.sizer = Sizer(make_counter(options.advanced.tokens)).count_as(self.prices.tokenizer)
        #: A list of its own: the table is a key in a cache, which must not keep the session in memory.
        self.extractor_failures: list[CallbackError] = []
        # Without the user's it stays the built-in table, in whose cache the digest finds what placeholders looked up.
        self.extractors = options.extractor_table
        if options.advanced.extractors:
            self.extractors = replace(self.extractors, report=self.extractor_failures.append)
        missing_prices = options.describe_missing_prices()
        self.notes = (missing_prices,) if missing_prices else ()
        if missing_prices:
            _warn_once(missing_prices)

    def make_log(self, events: Sequence[Event]) -> Log:
        """Return the log that has `events`."""
        strategy = self.strategy
        opened = find_opened_event(events)
        if opened is not None and opened.handles != strategy.handles:
            # Whether placeholders name handles is fixed with the first of them.
            strategy = replace(strategy, handles=opened.handles)
        setup = LogSetup(strategy, self.prices, self.sizer, self.extractors, self.options.advanced.redaction)
        return Log.fold(events, setup)

    def make_opened_event(self, entry: RecallEntry, *, is_served: bool) -> SessionOpened:
        """Return the first record of a new log.

        entry: when the recall tools enter. is_served: whether the model can call them, as far as is known now.
        """
        return SessionOpened(
            strategy=describe_strategy(self.strategy),
            dialect=self.options.advanced.dialect,
            handles=self.strategy.handles and is_served,
            offer=entry,
            tools=RECALL_TOOL_DEFINITIONS if entry in ("first", "start") else (),
            shadow=self.options.shadow,
            role=self.options.role,
        )


def find_opened_event(events: Sequence[Event]) -> SessionOpened | None:
    """Return the newest record that says how the session was opened."""
    for event in reversed(events):
        if isinstance(event, SessionOpened):
            return event
    return None


@lru_cache(maxsize=256)
def _warn_once(note: str) -> None:
    """Write `note` to the log, once a process: each session of the model has it."""
    _log.warning("%s", note)
