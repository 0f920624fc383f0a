"""Keep the report of every session of a store up to date by reading only what is new.

A session's totals are kept. Its report, which holds its whole log, is kept if there is room, and read again from the
store when it is needed. Other processes write to the same store: it is listed again on every question, at most once in
`LISTING_SECONDS`. `SessionTrees` finds the sessions that belong together: a tree of agents has one bill.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from elision.errors import ElisionError
from elision.gateway.dashboard.totals import SavingsTotals, compute_totals, count_shared_calls
from elision.manager.session_history import LogReader, SessionReport, add_plateau_guard
from elision.providers.provider_table import PROVIDERS
from elision.stores.store import SessionInfo, Store
from elision.strategies.guards import Guards
from elision.trajectory.plan import Key
from elision.trajectory.prices import Prices
from elision.trajectory.run_roles import ROLES, Role
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import find_task
from elision.trajectory.turn import Action, Turn

#: Seconds for which a listing of the store is taken as new.
LISTING_SECONDS: Final = 0.5
#: Points of a session's small picture.
MAX_POINTS: Final = 60
#: Bytes of logs, before compression, of which accounts are kept.
KEPT_BYTES: Final = 64_000_000
#: Sessions of which totals are kept.
KEPT_ROWS: Final = 50_000
#: Characters of a command that the API gives.
MAX_COMMAND_CHARS: Final = 400
#: Arguments that are the command by themselves.
_COMMANDS: Final = ("command", "cmd", "code", "query", "path", "file_path")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session in one line.

    own_totals: of its own calls, without those that its parent made.
    calls:      calls in its log. shared_calls: those of them that its parent made.
    priced:     whether its model's own prices are known.
    points:     (raw, sent) tokens of the context over its calls, in at most `MAX_POINTS` steps.
    shadow:     whether its requests are forwarded unchanged.
    task, api:  the first words of the user, and the API of its client.
    hint:       what a guard reports, "" for nothing. fault: why it could not be read.
    role:       of the agent whose session it is.
    """

    info: SessionInfo
    own_totals: SavingsTotals
    calls: int = 0
    shared_calls: int = 0
    model: str = ""
    strategy: str = ""
    priced: bool = True
    points: tuple[tuple[int, int], ...] = ()
    shadow: bool = False
    task: str = ""
    api: str = ""
    hint: str = ""
    fault: str = ""
    role: Role = "main"


class SessionCache:
    """The sessions of `store`. Several threads may use it; they wait for one another.

    prices: instead of each model's own. clock: seconds, for `LISTING_SECONDS` and time limits.
    """

    def __init__(
        self,
        store: Store,
        guards: Guards | None = None,
        prices: Prices | None = None,
        *,
        kept_bytes: int = KEPT_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self._guards = add_plateau_guard(guards or Guards())
        self._prices = prices
        self._clock = clock
        self._sizer = Sizer(make_counter())
        self._lock = threading.RLock()
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[str, tuple[LogReader, int]] = OrderedDict()
        self._rows: OrderedDict[str, SessionRow] = OrderedDict()
        self._listing: list[SessionInfo] = []
        self._listed_at = float("-inf")

    @property
    def kept_count(self) -> int:
        """Return how many reports are kept."""
        return len(self._kept)

    def list_sessions(self) -> list[SessionInfo]:
        """Return all sessions, the one changed last first. Raises StoreError."""
        with self._lock:
            if self._clock() - self._listed_at >= LISTING_SECONDS:
                self._listing = self.store.sessions()
                self._listed_at = self._clock()
                keys = {info.key for info in self._listing}
                # What the store has deleted is forgotten.
                for kept in (self._kept, self._rows):
                    for key in kept.keys() - keys:
                        del kept[key]
            return self._listing

    def load_account(self, key: str) -> tuple[SessionReport, int]:
        """Return a session's report, and its number of amended turns: where that grew, earlier calls may have changed.

        Raises UnknownHandle, StoreError; CorruptError where its log is no session's.
        """
        with self._lock:
            info = self.store.info(key)
            reading = self._read_log(info)
            return reading.build_report(info), reading.amendments

    def iterate_rows(self, infos: Sequence[SessionInfo], seconds: float) -> Iterator[SessionRow | None]:
        """Yield each session's row; None for those that are not read yet, and not within `seconds` either."""
        end = self._clock() + seconds
        for info in infos:
            with self._lock:
                row = self._rows.get(info.key)
                if (row is None or row.info != info) and self._clock() <= end:
                    row = self._rows[info.key] = self._make_row(info)
                    self._rows.move_to_end(info.key)
                    if len(self._rows) > KEPT_ROWS:
                        self._rows.popitem(last=False)
            yield row

    def _make_row(self, info: SessionInfo) -> SessionRow:
        try:
            account = self._read_log(info).build_report(info)
        except ElisionError as error:
            return SessionRow(info=info, own_totals=SavingsTotals(), fault=str(error))
        begun = count_shared_calls(account)
        end = account.final
        note = (end.stop or end.hint) if end is not None else None
        return SessionRow(
            info=info,
            own_totals=compute_totals(account, begun),
            calls=len(account.calls),
            shared_calls=begun,
            model=account.model,
            strategy=account.strategy,
            priced=account.has_own_prices,
            points=_make_points(account),
            shadow=account.shadow,
            task=find_task(account.head),
            api=describe_api(account.dialect),
            hint=str(note) if note is not None else "",
            role=account.role,
        )

    def _read_log(self, info: SessionInfo) -> LogReader:
        """Read the session's log to its end."""
        kept, _ = self._kept.pop(info.key, (None, 0))
        if kept is not None and kept.info.begun == info.begun:
            new = list(self.store.events(info.key, kept.records))
            if kept.can_continue_with(new):
                kept.read_events(new)
                return self._keep_reading(info, kept)
        reading = LogReader(info, self._sizer, self._guards, self._prices)
        reading.read_events(list(self.store.events(info.key)))
        return self._keep_reading(info, reading)

    def _keep_reading(self, info: SessionInfo, reading: LogReader) -> LogReader:
        """Keep the newest readers, as many as there is room for, and at least this one."""
        self._kept[info.key] = reading, info.raw_bytes
        while len(self._kept) > 1 and sum(size for _, size in self._kept.values()) > self._kept_bytes:
            self._kept.popitem(last=False)
        return reading


def _make_points(account: SessionReport) -> tuple[tuple[int, int], ...]:
    """Return the largest context of each stretch of calls, for at most `MAX_POINTS` stretches.

    A call that only returns what was recalled has no raw prompt: the one before it stays.
    """
    sizes, raw = [], 0
    for each in account.calls:
        raw = each.raw_tokens or raw
        sizes.append((max(raw, each.sent_tokens), each.sent_tokens))
    step = max(1, -(-len(sizes) // MAX_POINTS))
    pieces = [sizes[start : start + step] for start in range(0, len(sizes), step)]
    return tuple((max(raw for raw, _ in piece), max(sent for _, sent in piece)) for piece in pieces)


# -- trees of agents ---------------------------------------------------------------------------------------------------


class SessionTrees:
    """Which sessions of a listing belong together.

    They came from one another, or their client gave them one id: side calls have that of the agent they serve.
    """

    def __init__(self, infos: Sequence[SessionInfo]) -> None:
        self.infos = infos
        self._by_key = {info.key: info for info in infos}
        self._started = defaultdict[str, list[SessionInfo]](list)
        self._of_family = defaultdict[str, list[SessionInfo]](list)
        for info in infos:
            if info.parent != info.key:
                self._started[info.parent].append(info)
            self._of_family[info.family].append(info)

    def list_branches(self, key: str) -> Sequence[SessionInfo]:
        """Return the sessions that came from session `key`."""
        return self._started.get(key, ())

    def find_tree(self, root: SessionInfo) -> list[SessionInfo]:
        """Return the sessions that belong to `root`, itself included, which may be newer than the listing."""
        found: dict[str, SessionInfo] = {}
        waiting = [root]
        while waiting:
            info = waiting.pop()
            if info.key in found:
                continue
            found[info.key] = info
            waiting += self._started.get(info.key, ())
            # A family without an id is all that one credential has.
            if "/" in info.family:
                waiting += self._of_family.get(info.family, ())
            if info.parent in self._by_key:
                waiting.append(self._by_key[info.parent])
        return list(found.values())


def render_roles(rows: Iterable[SessionRow]) -> dict[str, Any]:
    """Render what each role cost that occurs, in calls of its own. usd: as reported, else at the simulated cache."""
    found: dict[str, list[SavingsTotals]] = defaultdict(list)
    for row in rows:
        found[row.role].append(row.own_totals)
    return {
        role: {
            "sessions": len(found[role]),
            "calls": sum(each.calls for each in found[role]),
            "usd": sum(each.ours.total for each in found[role]),
        }
        for role in ROLES
        if role in found
    }


# -- names for people --------------------------------------------------------------------------------------------------


def describe_api(dialect: str) -> str:
    """Return the name of the API that the client speaks; "" if the log does not say."""
    return PROVIDERS[dialect].title if dialect in PROVIDERS else ""


def find_command(turns: Sequence[Turn], key: Key) -> str:
    """Return what the tool was called with, in one line; "" if the log does not say."""
    number, position = key
    if not 1 <= number <= len(turns):
        return ""
    turn = turns[number - 1]
    if turn.index != number or not 1 <= position <= len(turn.observations):
        return ""
    action = turn.find_action(turn.observations[position - 1])
    if action is None:
        return ""
    return _cut(" ".join(_describe_arguments(action).split()), MAX_COMMAND_CHARS)


def _describe_arguments(action: Action) -> str:
    """Return the command alone if there is one; otherwise names and values."""
    arguments: Mapping[str, Any] = action.decoded_arguments
    if not arguments:
        return action.arguments[: 4 * MAX_COMMAND_CHARS].strip().removeprefix("{}")
    for name in _COMMANDS:
        value = arguments.get(name)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = " ".join(value)
        if isinstance(value, str) and value:
            others = {other: each for other, each in arguments.items() if other != name}
            return " ".join(filter(None, (value[: 4 * MAX_COMMAND_CHARS], _list_values(others))))
    return _list_values(arguments)


def _list_values(arguments: Mapping[str, Any]) -> str:
    values = []
    for name, value in islice(arguments.items(), 20):
        text = value if isinstance(value, str) else json.dumps(value)
        values.append(f"{name}={_cut(' '.join(text[:400].split()), 80)}")
    return " ".join(values)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
