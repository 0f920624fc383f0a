"""`elision sessions`: every session of a store, what became of it and what hiding saved."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from elision.cli.declarations import Option
from elision.cli.options import Json, Model, Price, PriceSet, Quiet, StoreUrl, Tokens, choose_prices

if TYPE_CHECKING:
    from elision.cli.sessions_table import ListedSession
    from elision.stores.store import SessionInfo

#: Sessions shown where not all are asked for.
SHOWN: Final = 20


def sessions(
    store: StoreUrl = None,
    everything: Annotated[bool, Option("--all", help="Every session, not the first twenty.")] = False,
    sizes: Annotated[
        bool, Option("--sizes", help="What the store takes up, and its largest sessions; no log is read.")
    ] = False,
    model: Model = None,
    price: Price = None,
    prices: PriceSet = None,
    tokens: Tokens = "o200k",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the sessions of a store, the one changed last first, and what hiding saved in each.

    Forks, histories that the client rewrote and sub-agents stand below the session they came from; what a fork shares
    with it counts in both.
    """
    # Slow to import, and help needs none of it.
    from elision.cli.console import name_store, open_console
    from elision.cli.outputs import print_json
    from elision.cli.session_names import walk_session_trees
    from elision.config import load_settings
    from elision.errors import StoreError
    from elision.stores.store_urls import open_existing

    found = load_settings()
    address = name_store(store or found.store, quiet=quiet)
    if sizes:
        _show_sizes(address, everything=everything, as_json=json)
        return
    from elision.cli.sessions_table import ListedSession, render_sessions
    from elision.manager.session_history import add_plateau_guard, load_session_log
    from elision.trajectory.tokens import Sizer, make_counter

    rates = choose_prices(model, price, prices)
    sizer = Sizer(make_counter(tokens))
    guards = add_plateau_guard(found.guards)
    with closing(open_existing(address)) as opened:
        listed = opened.sessions()

        def load_row(front: str, info: SessionInfo) -> ListedSession:
            """A session that cannot be read is a row that says so."""
            try:
                report = load_session_log(opened, info, sizer, guards, rates).build_report()
                return ListedSession(front=front, info=info, account=report)
            except StoreError as error:
                return ListedSession(front=front, info=info, fault=str(error))

        trees = walk_session_trees(listed)
        rows = [load_row(front, info) for front, info in (trees if everything or json else islice(trees, SHOWN))]
    if json:
        print_json("sessions", {"sessions": [_encode_row(row) for row in rows]})
    else:
        console = open_console()
        console.print(render_sessions(rows, len(listed), time.time(), console.width, has_notes=not quiet))


def _show_sizes(url: str, *, everything: bool, as_json: bool) -> None:
    from elision.cli.console import open_console
    from elision.cli.outputs import print_json
    from elision.cli.store_tables import render_usage
    from elision.stores.store_urls import open_existing

    with closing(open_existing(url)) as opened:
        footprint = opened.footprint()
        largest = sorted(opened.sessions(), key=lambda info: (-info.raw_bytes, info.key))
    if as_json:
        print_json(
            "sessions --sizes",
            {
                "stored_bytes": footprint.stored_bytes,
                "raw_bytes": footprint.raw_bytes,
                "sessions": [encode_info(info) for info in largest],
            },
        )
        return
    open_console().print(render_usage(footprint, largest if everything else largest[:SHOWN], time.time()))


def _encode_row(row: ListedSession) -> dict[str, Any]:
    from elision.manager.session_json import encode_session_report

    shown = encode_info(row.info)
    if row.account:
        shown |= encode_session_report(row.account)
    if row.fault:
        shown["fault"] = row.fault
    return shown


def encode_info(info: SessionInfo) -> dict[str, Any]:
    """Return what a store knows of a session without reading its log, as JSON."""
    return {
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
