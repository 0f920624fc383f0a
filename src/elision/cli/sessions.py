"""`elision sessions`: every session of a store, what became of it and what hiding saved."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final

import typer

from elision.cli import sessions_table as table
from elision.cli.console import open_console
from elision.cli.options import Model, Price, PriceSet, StoreUrl, Tokens, choose_prices
from elision.cli.session_names import walk_session_trees
from elision.config import load_settings
from elision.errors import StoreError
from elision.manager.session_history import add_plateau_guard, load_session_log
from elision.manager.session_json import encode_session_report
from elision.stores.store import SessionInfo, Store
from elision.stores.store_urls import open_existing
from elision.strategies.guards import Guards
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer, make_counter

#: Sessions shown where not all are asked for.
SHOWN: Final = 20


def sessions(
    store: StoreUrl = None,
    everything: Annotated[bool, typer.Option("--all", help="Every session, not the newest twenty.")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Names, sizes and times alone; no log is read.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")] = False,
    model: Model = None,
    price: Price = None,
    prices: PriceSet = None,
    tokens: Tokens = "o200k",
) -> None:
    """List the sessions of a store, the one changed last first, and what hiding saved in each.

    Forks, histories that the client rewrote and sub-agents stand below the session they came from; what a fork shares
    with it counts in both.
    """
    if model or price or prices:
        rates = choose_prices(model, price, prices)
    else:
        rates = None
    found = load_settings()
    opened = open_existing(store or found.store)
    try:
        listed = opened.sessions()
        ordered = list(walk_session_trees(listed))
        if everything or json:
            shown = ordered
        else:
            shown = list(islice(ordered, SHOWN))
        read = _RowLoader(opened, Sizer(make_counter(tokens)), add_plateau_guard(found.guards), rates, fast=fast)
        rows = (read.load_row(front, info) for front, info in shown)
        if json:
            _write_rows(rows)
        else:
            console = open_console()
            console.print(table.render_sessions(list(rows), len(listed), time.time(), console.width, fast=fast))
    finally:
        opened.close()


class _RowLoader:
    """Makes rows, each from its session's log unless that takes too long. rates: instead of each model's own."""

    def __init__(self, store: Store, sizer: Sizer, guards: Guards, rates: Prices | None, *, fast: bool) -> None:
        self._store = store
        self._sizer = sizer
        self._guards = guards
        self._rates = rates
        self._fast = fast

    def load_row(self, front: str, info: SessionInfo) -> table.ListedSession:
        """A session that cannot be read is a row that says so."""
        if self._fast:
            return table.ListedSession(front=front, info=info)
        try:
            log = load_session_log(self._store, info, self._sizer, self._guards, self._rates)
            return table.ListedSession(front=front, info=info, account=log.build_report())
        except StoreError as error:
            return table.ListedSession(front=front, info=info, fault=str(error))


def _write_rows(rows: Iterator[table.ListedSession]) -> None:
    for row in rows:
        info = row.info
        told: dict[str, Any] = {
            "format": "elision.session/1",
            "session": info.key,
            "family": info.family,
            "parent": info.parent,
            "relation": info.relation,
            "begun": info.begun,
            "changed": info.changed,
            "turns": info.turns,
            "records": info.records,
            "bytes": info.raw_bytes,
        }
        if row.account:
            told |= encode_session_report(row.account)
        else:
            told |= {}
        told |= {"fault": row.fault} if row.fault else {}
        typer.echo(json_module.dumps(told))
