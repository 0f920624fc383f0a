"""One call of an agent's model: prepared, sent once more where it was too long, and recorded with its usage.

Usage is read as any provider reports it, and as agent frameworks do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, is_dataclass
from types import TracebackType
from typing import Any, Self

from elision.errors import BudgetError, DialectError, ElisionError
from elision.manager.branch import SessionBranch
from elision.manager.context_view import ContextView
from elision.providers.live.client_messages import convert_to_json
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.json_reading import Json, count_in, mapping_in
from elision.trajectory.usage import Usage


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A prepared call. number: of the call in `branch`, which is None where preparing failed."""

    view: ContextView
    branch: SessionBranch | None
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallActions:
    """What a call asks of its context manager.

    prepare, prepare_async: prepare its messages. record: usage of a prepared call. note_overflow: returns whether an
    error says that the prompt was too long, and has the next preparation make it shorter.
    """

    prepare: Callable[[], PreparedCall]
    prepare_async: Callable[[], Awaitable[PreparedCall]]
    record: Callable[[Any, PreparedCall], None]
    note_overflow: Callable[[BaseException], bool]


class AgentCall:
    """One call of the model, as `ContextManager.call` returns it, for `with` and `async with`.

    view: what to send, from the beginning of the block on; another one after `retry`.
    """

    def __init__(self, actions: CallActions) -> None:
        self._actions = actions
        self._prepared: PreparedCall | None = None
        self._is_retried = False

    @property
    def view(self) -> ContextView:
        """What to send. Raises ElisionError outside of the block."""
        return self._get_prepared().view

    def record(self, usage: Any) -> None:
        """Record the usage of this very call, whatever was prepared meanwhile; see `ContextManager.record`.

        Usage of a history that was left meanwhile is stored with the next call, or by `settle`. Raises DialectError.
        """
        self._actions.record(usage, self._get_prepared())

    def retry(self, error: BaseException) -> bool:
        """Return whether to send `view` once more, since `error` says that the prompt was too long.

        The view is a shorter one then. Returns False for any other error, a second time, and where no shorter view can
        be made: raise the error on.
        """
        if self._is_retried or not self._actions.note_overflow(error):
            return False
        try:
            return self._replace_view(self._actions.prepare())
        except BudgetError:
            return False

    async def retry_async(self, error: BaseException) -> bool:
        """Do as `retry`, with the store and the summarizer off the event loop."""
        if self._is_retried or not self._actions.note_overflow(error):
            return False
        try:
            return self._replace_view(await self._actions.prepare_async())
        except BudgetError:
            return False

    def __enter__(self) -> Self:
        self._prepared = self._actions.prepare()
        return self

    async def __aenter__(self) -> Self:
        self._prepared = await self._actions.prepare_async()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The next call is to be shorter where this one was too long, and was not sent again.
        if isinstance(error, Exception) and not isinstance(error, ElisionError) and not self._is_retried:
            self._actions.note_overflow(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _replace_view(self, prepared: PreparedCall) -> bool:
        """Take another view, unless it is no shorter."""
        self._is_retried = True
        # Counts cannot be compared: the error may have shown that the prompt has more tokens than were counted.
        if prepared.branch is None or prepared.view.request == self.view.request:
            return False
        self._prepared = prepared
        return True

    def _get_prepared(self) -> PreparedCall:
        if self._prepared is None:
            raise ElisionError("the call is not prepared yet: use it in a `with` or `async with` block")
        return self._prepared


def find_usage(value: Any) -> Usage | None:
    """Return the usage that `value` is or has: ours, JSON, or an object of a provider's package; None if it has none.

    It may also be LangChain's `usage_metadata`, or Pydantic AI's `RequestUsage`, or a message that has it.
    Chunks and events of a stream may have one too. Raises DialectError for what can have none: a text, a stream.
    """
    if value is None or isinstance(value, Usage):
        return value
    counts = _read_counts(value)
    for provider in PROVIDERS.values():
        for name in provider.usage_fields:
            if isinstance(counts.get(name), dict):
                return find_usage(counts[name])
    if "input_tokens" in counts:
        if "cache_read_tokens" in counts:
            return _parse_pydantic_ai(counts)
        if "input_token_details" in counts or ("total_tokens" in counts and "input_tokens_details" not in counts):
            return _parse_langchain(counts)
    for provider in PROVIDERS.values():
        if not provider.usage_signs.isdisjoint(counts):
            return provider.parse_usage(counts)
    return None


def _read_counts(value: Any) -> dict[str, Any]:
    """Return `value` as JSON. Raises DialectError for what can have no usage, and for counts below 0."""
    counts = convert_to_json(_convert_dataclass(value))
    if not isinstance(counts, dict):
        raise DialectError(
            f"record: {type(value).__name__} reports no usage; give the response or its usage, and of a stream the "
            'last chunk (OpenAI chat: with stream_options={"include_usage": True}) or the final message'
        )
    negative = next((name for name, count in counts.items() if isinstance(count, int) and count < 0), None)
    if negative is not None:
        raise DialectError(f"record: {negative} is {counts[negative]}; give the usage as the provider reported it")
    # The last event of a stream of the Responses API has the response.
    response = counts.get("response")
    return response if isinstance(response, dict) else counts


def _convert_dataclass(value: Any) -> Any:
    """Return a dataclass, and those in its fields, as mappings; anything else as it is."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {field.name: _convert_dataclass(getattr(value, field.name, None)) for field in fields(value)}


def _parse_langchain(counts: Json) -> Usage:
    """Read LangChain's `usage_metadata`, whose `input_tokens` include the cache whichever the provider.

    Writes are in `cache_creation`, or, where the time that entries live is known, in a field for each of the times.
    Anthropic's own usage has no total. Source: langchain-anthropic 1.7 and langchain-core 1.7.
    """
    details = mapping_in(counts.get("input_token_details"))
    hour = count_in(details.get("ephemeral_1h_input_tokens"))
    by_time = hour + count_in(details.get("ephemeral_5m_input_tokens"))
    return Usage.from_inclusive(
        prompt=count_in(counts.get("input_tokens")),
        output=count_in(counts.get("output_tokens")),
        cache_read=count_in(details.get("cache_read")),
        cache_write=max(by_time, count_in(details.get("cache_creation"))),
        cache_write_1h=hour,
    )


def _parse_pydantic_ai(counts: Json) -> Usage | None:
    """Read Pydantic AI's `RequestUsage`, whose `input_tokens` include the cache whichever the provider.

    Returns None where the response had none. Source: pydantic-ai 2.68.
    """
    if count_in(counts.get("unmeasured_requests")):
        return None
    return Usage.from_inclusive(
        prompt=count_in(counts.get("input_tokens")),
        output=count_in(counts.get("output_tokens")),
        cache_read=count_in(counts.get("cache_read_tokens")),
        cache_write=count_in(counts.get("cache_write_tokens")),
        cache_write_1h=count_in(counts.get("cache_write_1h_tokens")),
    )
