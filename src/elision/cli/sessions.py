"""`elision sessions`: every session of a store, what became of it and what hiding saved."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from elision.cli.declarations import Option
from elision.cli.options import Json, Model, Price, PriceSet, Quiet, StoreUrl, Tokens, choose_prices

if TYPE_CHECKING:
    from elision.stores.store import SessionInfo, Store
    from elision.strategies.guards import Guards
    from elision.trajectory.prices import Prices

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
    from elision.cli.session_names import walk_session_trees
    from elision.config import load_settings
    from elision.errors import StoreError
    from elision.stores.store_urls import open_for_reading

    found = load_settings()
    address = name_store(store or found.store, quiet=quiet)
    if sizes:
        _show_sizes(address, everything=everything, as_json=json)
        return
    rates = choose_prices(model, price, prices)
    with closing(open_for_reading(address)) as opened:
        if json:
            _print_json(opened, found.guards, rates, tokens)
            return
        from elision.cli.session_figures import FigureReader
        from elision.cli.sessions_table import ListedSession, render_sessions

        reader = FigureReader(opened, address, found.guards, rates, tokens)

        def load_row(front: str, info: SessionInfo) -> ListedSession:
            """A session that cannot be read is a row that says so."""
            try:
                return ListedSession(front=front, info=info, figures=reader.read(info))
            except StoreError as error:
                return ListedSession(front=front, info=info, fault=str(error))

        listed = opened.sessions()
        trees = walk_session_trees(listed)
        rows = [load_row(front, info) for front, info in (trees if everything else islice(trees, SHOWN))]
        reader.save()
    console = open_console()
    console.print(render_sessions(rows, len(listed), time.time(), console.width, has_notes=not quiet))


def _print_json(opened: Store, guards: Guards, rates: Prices | None, tokens: str) -> None:
    """Print every session with its whole report."""
    from elision.cli.outputs import print_json
    from elision.cli.session_names import walk_session_trees
    from elision.errors import StoreError
    from elision.manager.session_history import add_plateau_guard, load_session_log
    from elision.manager.session_json import encode_session_report
    from elision.trajectory.tokens import Sizer, make_counter

    sizer = Sizer(make_counter(tokens))
    rows = []
    for _, info in walk_session_trees(opened.sessions()):
        row = encode_info(info)
        try:
            log = load_session_log(opened, info, sizer, add_plateau_guard(guards), rates)
            row |= encode_session_report(log.build_report())
        except StoreError as error:
            row["fault"] = str(error)
        rows.append(row)
    print_json("sessions", {"sessions": rows})


def _show_sizes(url: str, *, everything: bool, as_json: bool) -> None:
    from elision.cli.console import open_console
    from elision.cli.store_tables import render_usage
    from elision.stores.store_urls import open_for_reading

    with closing(open_for_reading(url)) as opened:
        footprint = opened.footprint()
        largest = sorted(opened.sessions(), key=lambda info: (-info.raw_bytes, info.key))
    if as_json:
        from elision.cli.outputs import print_json

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
