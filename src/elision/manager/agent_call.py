"""One call of an agent's model: prepared, sent once more where it was too long, and recorded as the call that it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from elision.errors import BudgetError, ElisionError
from elision.manager.branch import SessionBranch
from elision.manager.context_view import ContextView


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
