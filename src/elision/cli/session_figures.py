"""The figures of a session that `elision sessions` lists, kept from one listing to the next.

To read a log costs tens of milliseconds, and to count its tokens first loads a vocabulary for 0.4 s. So the figures of
a session are kept in the user's cache folder until the session changes. Names of sessions are kept as hashes only.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import platformdirs

if TYPE_CHECKING:
    from elision.manager.session_history import SessionReport
    from elision.stores.store import SessionInfo, Store
    from elision.strategies.guards import Guards
    from elision.trajectory.prices import Prices

#: Sessions whose figures are kept; those that were listed last.
MOST_KEPT: Final = 1_000


class SessionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a line of the listing shows.

    cost, saved, by_cache: USD; by_cache is what our cache breakpoints saved. priced_as: "" for the model's own prices.
    guard: which limit the session met, or that it makes no progress; "" for neither.
    """

    calls: int
    sent_tokens: int
    raw_tokens: int
    cost: float
    saved: float
    by_cache: float
    rewrites: int
    summaries: int
    failed_summaries: int
    model: str
    priced_as: str
    strategy: str
    shadow: bool
    guard: str


class _KeptFigures(msgspec.Struct, frozen=True):
    """Figures with the state of the session that they are of."""

    records: int
    changed: float
    figures: SessionFigures


class _KeptListing(msgspec.Struct):
    """The file. stamp: versions and limits on which figures depend. sessions: by the hash of store and name."""

    stamp: str
    sessions: dict[str, _KeptFigures]


class FigureReader:
    """Reads the figures of the sessions of one store, from their logs if they changed since the last listing.

    address: of the store. guards: of the settings. prices: instead of each model's own; then nothing is kept.
    tokens: how they are counted; only counts by o200k are kept.
    """

    def __init__(
        self, store: Store, address: str, guards: Guards, prices: Prices | None = None, tokens: str = "o200k"
    ) -> None:
        self._store = store
        self._address = address
        self._guards = guards
        self._prices = prices
        self._tokens = tokens
        self._is_kept = prices is None and tokens == "o200k"
        stamp = f"{_describe_versions()} {guards!r}"
        self._listing = _read_listing(stamp) if self._is_kept else _KeptListing(stamp, {})
        self._is_changed = False

    def read(self, info: SessionInfo) -> SessionFigures:
        """Return the figures of a session. Raises StoreError where its log cannot be read."""
        name = self._hash_name(info)
        kept = self._listing.sessions.get(name)
        if kept is not None and (kept.records, kept.changed) == (info.records, info.changed):
            return kept.figures
        # Slow to import, and not needed where the figures are kept.
        from elision.manager.session_history import add_plateau_guard, load_session_log
        from elision.trajectory.tokens import Sizer, make_counter

        sizer = Sizer(make_counter(self._tokens))
        log = load_session_log(self._store, info, sizer, add_plateau_guard(self._guards), self._prices)
        return self.keep(info, log.build_report())

    def keep(self, info: SessionInfo, report: SessionReport) -> SessionFigures:
        """Return the figures of a report; `save` writes them to the file."""
        figures = compute_figures(report)
        name = self._hash_name(info)
        self._listing.sessions.pop(name, None)
        self._listing.sessions[name] = _KeptFigures(info.records, info.changed, figures)
        self._is_changed = True
        return figures

    def save(self) -> None:
        """Write what is new for the next listing. Where that fails, the next one reads the logs again."""
        if not (self._is_kept and self._is_changed):
            return
        for name in list(self._listing.sessions)[:-MOST_KEPT]:
            del self._listing.sessions[name]
        path = find_listing_file()
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                    file.write(msgspec.json.encode(self._listing))
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def _hash_name(self, info: SessionInfo) -> str:
        identity = msgspec.json.encode((self._address, info.key, info.begun))
        return hashlib.blake2b(identity, digest_size=12).hexdigest()


def find_listing_file() -> Path:
    """Return the file that keeps the figures: ~/.cache/elision/listing.json on Linux, or as the platform has it."""
    return platformdirs.user_cache_path("elision", appauthor=False) / "listing.json"


def compute_figures(report: SessionReport) -> SessionFigures:
    """Return what the listing shows of a report."""
    from elision.manager.session_history import DEFAULT_PRICES

    end = report.final
    return SessionFigures(
        calls=len(report.calls),
        sent_tokens=report.sent_tokens,
        raw_tokens=report.raw_tokens,
        cost=end.costs.ours if end else 0.0,
        saved=end.costs.hiding if end else 0.0,
        by_cache=end.costs.caching if end else 0.0,
        rewrites=end.epoch - 1 if end else 0,
        summaries=end.summaries if end else 0,
        failed_summaries=report.failed_summary_count,
        model=report.model,
        priced_as="" if report.has_own_prices else DEFAULT_PRICES,
        strategy=report.strategy,
        shadow=report.shadow,
        guard=_describe_guard(report),
    )


def _describe_guard(report: SessionReport) -> str:
    end = report.final
    if end is not None and end.stop is not None:
        return {"max_turns": "turn limit", "max_cost_usd": "cost limit"}.get(end.stop.guard, end.stop.guard)
    if end is not None and end.hint is not None:
        return f"no progress: {end.hint.turns} turns"
    return ""


def _read_listing(stamp: str) -> _KeptListing:
    """Return what the file keeps; nothing where it is missing, damaged, or depends on other versions or limits."""
    try:
        found = msgspec.json.decode(find_listing_file().read_bytes(), type=_KeptListing)
    except (OSError, ValueError):
        return _KeptListing(stamp, {})
    return found if found.stamp == stamp else _KeptListing(stamp, {})


def _describe_versions() -> str:
    """Return the versions of what sets prices and figures."""
    found = []
    for name in ("elision", "genai-prices"):
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return " ".join(found)
