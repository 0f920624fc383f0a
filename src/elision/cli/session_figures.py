"""The figures of a session that `elision sessions` lists, kept from one listing to the next, and a saving in words.

To read a log costs tens of milliseconds, and to count its tokens first loads a vocabulary for 0.4 s. So the figures of
a session are kept in the user's cache folder until the session changes. Names of sessions are kept as hashes only.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import platformdirs

from elision.lab.report.figures import format_change, format_usd

if TYPE_CHECKING:
    from elision.manager.session_history import SessionReport
    from elision.stores.store import SessionInfo, Store
    from elision.strategies.guards import Guards
    from elision.telemetry.diagnostics import Costs
    from elision.trajectory.prices import Prices

#: Sessions whose figures are kept; those that were listed last.
MOST_KEPT: Final = 1_000


class SessionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a line of the listing shows.

    cost, saved, by_cache: USD; by_cache is what our cache breakpoints saved. priced_as: "" for the model's own prices.
    mode: "shadow" where requests are sent unchanged. guard: the limit that it met, or that it makes no progress.
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
    mode: str
    guard: str


class FigureReader:
    """Reads the figures of the sessions of one store, from their logs if they changed since the last listing.

    address: of the store. guards: of the settings. prices: instead of each model's own; then nothing is kept.
    tokens: how they are counted; only counts by o200k are kept.
    """

    def __init__(
        self, store: Store, address: str, guards: Guards, prices: Prices | None = None, tokens: str = "o200k"
    ) -> None:
        self._store = store
        self._guards = guards
        self._prices = prices
        self._tokens = tokens
        #: What figures depend on, besides their session.
        self._stamp = f"{address} {guards!r} {version('elision')} {version('genai-prices')}"
        self._kept: dict[str, tuple[int, float, SessionFigures]] = {}
        self._is_kept = prices is None and tokens == "o200k"
        self._is_changed = False
        if self._is_kept:
            # A file that is missing or damaged is made anew.
            with suppress(OSError, ValueError):
                self._kept = msgspec.json.decode(
                    find_listing_file().read_bytes(), type=dict[str, tuple[int, float, SessionFigures]]
                )

    def read(self, info: SessionInfo) -> SessionFigures:
        """Return the figures of a session. Raises StoreError where its log cannot be read."""
        records, changed, figures = self._kept.get(self._hash_name(info), (0, 0.0, None))
        if figures is not None and (records, changed) == (info.records, info.changed):
            return figures
        return self.keep(info, self.load_report(info))

    def load_report(self, info: SessionInfo) -> SessionReport:
        """Return the whole report of a session. Raises StoreError where its log cannot be read."""
        # Slow to import, and not needed where the figures are kept.
        from elision.manager.session_history import add_plateau_guard, load_session_log
        from elision.trajectory.tokens import Sizer, make_counter

        sizer = Sizer(make_counter(self._tokens))
        guards = add_plateau_guard(self._guards)
        return load_session_log(self._store, info, sizer, guards, self._prices).build_report()

    def keep(self, info: SessionInfo, report: SessionReport) -> SessionFigures:
        """Return the figures of a report; `save` writes them to the file."""
        figures = compute_figures(report)
        name = self._hash_name(info)
        self._kept.pop(name, None)
        self._kept[name] = info.records, info.changed, figures
        self._is_changed = True
        return figures

    def save(self) -> None:
        """Write what is new for the next listing. Where that fails, the next one reads the logs again."""
        if not (self._is_kept and self._is_changed):
            return
        path = find_listing_file()
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                    file.write(msgspec.json.encode(dict(list(self._kept.items())[-MOST_KEPT:])))
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def _hash_name(self, info: SessionInfo) -> str:
        identity = msgspec.json.encode((self._stamp, info.key, info.begun))
        return hashlib.blake2b(identity, digest_size=12).hexdigest()


def find_listing_file() -> Path:
    """Return the file that keeps the figures: ~/.cache/elision/listing.json on Linux, or as the platform has it."""
    return platformdirs.user_cache_path("elision", appauthor=False) / "listing.json"


def compute_figures(report: SessionReport) -> SessionFigures:
    """Return what the listing shows of a report."""
    from elision.manager.session_history import DEFAULT_PRICES

    end = report.final
    guard = ""
    if end is not None and end.stop is not None:
        guard = {"max_turns": "turn limit", "max_cost_usd": "cost limit"}.get(end.stop.guard, end.stop.guard)
    elif end is not None and end.hint is not None:
        guard = f"no progress: {end.hint.turns} turns"
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
        mode="shadow" if report.shadow else "",
        guard=guard,
    )


def choose_mood(saved_usd: float) -> str:
    """Return the mood of a saving: better, worse where it cost more, "" for nothing."""
    if saved_usd > 0:
        return "better"
    return "worse" if saved_usd < 0 else ""


def describe_hiding(costs: Costs) -> str:
    """`hiding saved $0.12 (−18 %)`: net, as a share of the bill of sending everything with the same cache."""
    change = format_change(costs.hiding_ratio)
    if costs.hiding < 0:
        return f"hiding cost {format_usd(-costs.hiding)} more ({change})"
    return f"hiding saved {format_usd(costs.hiding)} ({change})"
