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
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Self, Unpack

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


class ContextManager(Calls, ManualTurns, Recall, Reports, Exchanges):
    """Keep the context of one agent's session small: the messages in, the next request out.

    A context manager serves one caller at a time. Others wait, in whichever thread or event loop they are.

    Options, all of them keywords but the first:

    - `strategy` (default `"masking"`): what may be hidden: a text such as `hybrid(window=10)`, a preset, or a
      Strategy.
    - `model` (default `""`): the model's name; its prices, window and rules apply.
    - `prices` (default `None`): name of a price set or model, or Prices in USD per million tokens; None: the
      model's own.
    - `store` (default `"sqlite:"`): a URL or a Store; `sqlite:` is a file in your state folder, `memory:` keeps
      nothing.
    - `session` (default `""`): the session's name, at most 400 characters; made up if empty.
    - `family` (default `""`): name shared by sessions: the one that has the given history continues, whichever
      process wrote it.
    - `parent` (default `""`): name of the session that started this one, for a sub-agent.
    - `dialect` (default `"auto"`): shape of the messages: `openai`, `openai-responses` or `anthropic`; `auto`
      detects it.
    - `observations` (default `"auto"`): which messages are results: `tools`, `user` for actions in plain text, or
      `auto`.
    - `summarizer` (default `None`): `digest`, `anthropic:MODEL`, `openai:MODEL`, `litellm:MODEL` or a function;
      None: the digest.
    - `background` (default `False`): whether the agent continues while a summary is written; above `hard` it
      waits.
    - `summary_seconds` (default `120.0`): seconds that a summary may take.
    - `guards` (default `None`): Guards that say when the run should stop; None: those of the preset.
    - `token_budget` (default `None`): largest view, in tokens; None: the strategy's budget, else the model's
      window.
    - `reserved_for_response` (default `None`): tokens kept for the response; None: the strategy's, which is 1,000
      by default.
    - `max_context_pct` (default `None`): share of the budget that may be used, 0 to 1; None: the strategy's, 0.85
      by default.
    - `on_event` (default `()`): function, or several, called with the Diagnostics of each call; errors are logged.
    - `extractors` (default `{}`): glob on the tool's name -> function that says what placeholders tell of its
      results.
    - `rules` (default `()`): Rules: which results may be hidden, and after how many turns.
    - `pin` (default `None`): function of a message; where it returns true, the message is never hidden.
    - `recall` (default `"auto"`): who offers the recall tools: `auto` adds them to `view.request`, the `caller` offers
      them itself, `never` turns recall off.
    - `thinking` (default `"auto"`): how thinking bound to its prefix is treated: `auto`, `defer`, `native`,
      `drop_block`, `ignore`.
    - `cache_control` (default `"auto"`): cache breakpoints: `auto` sets them, `gaps` once something is hidden or folded
      (OpenAI from 5.6 on: both), `client` never.
    - `cache_ttl` (default `"client"`): how long Anthropic keeps what is cached at Elision's breakpoints: as at those of
      the `client`, or `1h`.
    - `write_behind` (default `False`): whether a view that hides nothing new is returned before it is stored;
      `settle()` stores it.
    - `shadow` (default `False`): whether requests stay unchanged while everything is decided, priced and recorded.
    - `over_budget` (default `"raise"`): when no view fits: `raise` BudgetError, or `send` the smallest view.
    - `on_fault` (default `"send"`): when Elision fails: `send` the request unchanged, or `raise` the error.
    - `tokens` (default `"o200k"`): how tokens are counted: `o200k`, `cl100k` or `estimate`.
    - `redaction` (default `Redaction()`): which secrets are kept out of summaries, placeholders and logs.
    - `clock` (default `time.time`): function that returns the time in seconds since the epoch.

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

        options: settings or options, which override those. Raises SettingError, which names the place and the remedy.
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
        values: dict[str, Any] = {**found.options(), "summarizer": writer, "redaction": found.redaction, **options}
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
