"""The library's entry point: an agent's messages in, the context of its next call out.

    with ContextManager("hybrid(window=10)", model="claude-sonnet-4-5", store="sqlite:///agent.db") as context:
        view = context.prepare(messages, tools=tools)
        response = client.messages.create(**view.request, ...)
        context.record(response)

Its methods are in one class for each of the things that it keeps: calls, turns added by hand, the raw history (recall),
reports, and exchanges that the client never saw.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Self, Unpack

from elision.manager.advanced_options import Advanced, document_rows, gather_options
from elision.manager.calls import Calls
from elision.manager.context_options import (
    ContextOptions,
    Options,
    check_option_names,
    check_positions,
    show_option_signature,
)
from elision.manager.exchanges import Exchanges
from elision.manager.manual_turns import ManualTurns
from elision.manager.observation_recall import Recall
from elision.manager.reports import Reports
from elision.strategies.strategy import Strategy
from elision.summarizers.factory import make_summarizer
from elision.telemetry.diagnostics import Fault

if TYPE_CHECKING:
    from elision.config import Settings

#: Types that a setting may have. An option of another type is passed on as it is.
_SETTING_TYPES: Final = (str, int, float, bool)

_log: Final = logging.getLogger("elision.manager")


@partial(document_rows, table=Options)
class ContextManager(Calls, ManualTurns, Recall, Reports, Exchanges):
    """Keep the context of one agent's session small: the messages in, the next request out.

    A context manager serves one caller at a time. Others wait, in whichever thread or event loop they are.

    Options, all of them keywords but the first. The others are in `Advanced`, and what belongs to a strategy is in its
    text: `"masking(window=5, rules=[rule(tool=plan, keep=true)], budget=budget(reserved=500))"`.

    {rows}

    Raises SpecError, SettingError, PriceError for options without a meaning, StoreError where the store cannot be
    opened.
    """

    @show_option_signature
    def __init__(
        self, strategy: str | Strategy = "masking", *misplaced: Never, **options: Unpack[ContextOptions]
    ) -> None:
        check_positions(type(self).__name__, misplaced)
        check_option_names(options)
        super().__init__(Options(strategy=strategy, **options))
        self._closed = False

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None, **options: Any) -> ContextManager:
        """Return a context manager with the settings of the environment and elision.toml.

        options: settings or options, which override those; of `advanced` what is not a default. Raises SettingError,
        which names the place and the remedy.
        """
        from elision.config import KEYS, load_settings, resolve_name  # other callers need none of it

        surroundings = os.environ if environment is None else environment
        known = {
            name: value
            for name, value in options.items()
            if resolve_name(name) in KEYS and isinstance(value, _SETTING_TYPES)
        }
        rest = {name: value for name, value in options.items() if name not in known}
        return cls.from_settings(load_settings(surroundings, None, **known), surroundings, **rest)

    @classmethod
    def from_settings(
        cls, found: Settings, environment: Mapping[str, str] | None = None, **options: Any
    ) -> ContextManager:
        """Return a context manager with settings that were read already; `options` override them.

        environment: variables in which the summarizer's key is looked up; the process's own if None.
        """
        writer = None
        if found.is_given("summarizer"):
            writer = make_summarizer(
                found.summarizer,
                environment=os.environ if environment is None else environment,
                **found.summarizer_options(),
            )
        given = gather_options({**found.options(), "summarizer": writer, "redaction": found.redaction})
        options["advanced"] = given["advanced"].merge(options.get("advanced", Advanced()))
        values = {**given, **options}
        return cls(values.pop("strategy"), **values)

    @classmethod
    def from_checked(cls, options: Options) -> ContextManager:
        """Return a context manager with options that were checked already."""
        context = cls.__new__(cls)
        super().__init__(context, options)
        context._closed = False
        return context

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Write the unsaved records, and close the store if it was opened here. A second call does nothing."""
        with self._enter():
            if self._closed:
                return
            self._closed = True
            self._summary_runner.close()
            try:
                fault = self._run(self._calls.settle())
                if fault is not None:
                    _log.error("session %s: its last records could not be written: %s", self.session, fault.what)
            finally:
                if self._owns_store:
                    self._store.close()

    def settle(self) -> Fault | None:
        """Write the unsaved records: those of a view that was returned before it was stored, and what was recorded.

        Returns what failed, None where nothing did; the next call tries again. Never raises.
        """
        return self._run(self._calls.settle())

    async def settle_async(self) -> Fault | None:
        """Do as `settle`, with the store off the event loop. Raises only CancelledError."""
        return await self._run_async(self._calls.settle())
