"""`elision sessions`: every session of a store, what became of it and what hiding saved."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Iterator
from contextlib import closing
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
from elision.stores.store import SessionInfo
from elision.stores.store_urls import open_existing
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
    rates = choose_prices(model, price, prices)
    found = load_settings()
    sizer = Sizer(make_counter(tokens))
    guards = add_plateau_guard(found.guards)
    with closing(open_existing(store or found.store)) as opened:
        listed = opened.sessions()

        def load_row(front: str, info: SessionInfo) -> table.ListedSession:
            """A session that cannot be read is a row that says so."""
            if fast:
                return table.ListedSession(front=front, info=info)
            try:
                report = load_session_log(opened, info, sizer, guards, rates).build_report()
                return table.ListedSession(front=front, info=info, account=report)
            except StoreError as error:
                return table.ListedSession(front=front, info=info, fault=str(error))

        trees = walk_session_trees(listed)
        rows = (load_row(front, info) for front, info in (trees if everything or json else islice(trees, SHOWN)))
        if json:
            _write_rows(rows)
        else:
            console = open_console()
            console.print(table.render_sessions(list(rows), len(listed), time.time(), console.width, fast=fast))


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
        if row.fault:
            told["fault"] = row.fault
        typer.echo(json_module.dumps(told))
