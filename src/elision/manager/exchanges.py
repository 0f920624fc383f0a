"""Messages that the client never saw: those that were sent to the provider in place of one message of the client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from elision.manager.branch import session_name
from elision.manager.drivers import LeaveLoop, Steps, StoreCall
from elision.manager.history import History
from elision.manager.opened_session import OpenedSession
from elision.manager.outgoing_request import IncomingRequest
from elision.manager.prepared_calls import make_incoming_request
from elision.stores.store import Store
from elision.trajectory.events import Event, RecallExchanged

#: Branches of one session that are looked at, those that changed last.
_MAX_BRANCHES: Final = 16


class Exchanges:
    """The exchanges of a session: recorded with it, and found again."""

    def __init__(self, opened: OpenedSession) -> None:
        self._opened = opened

    def record(self, *, node: str, messages: Sequence[str], results: Sequence[str] = ()) -> bool:
        """Record the messages that the provider was sent in place of one message of the client; see `RecallExchanged`.

        They are durable with the next write. Returns False where there is no session to record them in.
        """
        branch = self._opened.preparer.branch
        if branch is None:
            return False
        self._opened.end_work()
        call = branch.log.state.calls
        branch.log.record_event(RecallExchanged(call=call, node=node, messages=tuple(messages), results=tuple(results)))
        return True

    def list_events(self) -> list[RecallExchanged]:
        """Return what `record` recorded in the present history, oldest first; a fork has what it shares."""
        branch = self._opened.preparer.branch
        if branch is None:
            return []
        return _select_exchanges(branch.log.events)

    async def reload_async(self) -> list[RecallExchanged]:
        """Do as `list_events`, after the records of other processes were read where the log is shared (`family`).

        Raises ConflictError.
        """
        return await self._opened.run_async(self._load_exchanges())

    def find_stored(self, messages: Sequence[Any], *, tools: Any = None, system: Any = None) -> list[RecallExchanged]:
        """Return the exchanges of the stored session that begins like `messages`; [] if none does.

        The present history stays. Where two exchanges have the same `node`, the later one counts. Raises DialectError,
        StoreError.
        """
        return self._opened.run(self._find_stored_exchanges(make_incoming_request(messages, tools, system)))

    async def find_stored_async(
        self, messages: Sequence[Any], *, tools: Any = None, system: Any = None
    ) -> list[RecallExchanged]:
        """Do as `find_stored`, with the store off the event loop."""
        return await self._opened.run_async(self._find_stored_exchanges(make_incoming_request(messages, tools, system)))

    def _load_exchanges(self) -> Steps[list[RecallExchanged]]:
        yield from self._opened.preparer.follower.load_news()
        return self.list_events()

    def _find_stored_exchanges(self, incoming: IncomingRequest) -> Steps[list[RecallExchanged]]:
        follower = self._opened.preparer.follower
        call = follower.read_call(incoming, "")
        yield LeaveLoop(partial(follower.choose_place, call.request))
        history = follower.read_history(call)
        family = self._opened.options.advanced.family or self._opened.preparer.session
        found: list[RecallExchanged] = yield StoreCall(lambda: _find_in_store(self._opened.store, family, history))
        return found


def _select_exchanges(events: Iterable[Event]) -> list[RecallExchanged]:
    """Return the exchanges among the events of one log, oldest first."""
    return [event for event in events if isinstance(event, RecallExchanged)]


def _find_in_store(store: Store, family: str, history: History) -> list[RecallExchanged]:
    """Return the exchanges of the stored session that begins like `history`; [] if none does. Raises StoreError.

    Those of its other branches come first: what the history says up to its first exchange does not tell them apart.
    """
    found = store.locate(family, history.list_nodes())
    if found is None:
        return []
    exchanges: dict[RecallExchanged, None] = {}
    for key in [*_list_other_branches(store, family, found[0]), found[0]]:
        exchanges |= dict.fromkeys(_select_exchanges(store.events(key)))
    return list(exchanges)


def _list_other_branches(store: Store, family: str, key: str) -> Iterator[str]:
    """Yield the keys of the session's other branches, the one that changed last at the end."""
    akin = [
        info.key for info in store.sessions() if info.family == family and session_name(info.key) == session_name(key)
    ]
    return reversed([each for each in akin if each != key][:_MAX_BRANCHES])
