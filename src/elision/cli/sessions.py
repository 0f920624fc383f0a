"""`elision sessions`: every session of a store, what became of it and what hiding saved."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from elision.cli.declarations import Option
from elision.cli.options import Json, Model, Price, PriceSet, Quiet, StoreUrl, Tokens, choose_prices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from elision.cli.session_figures import FigureReader
    from elision.cli.session_names import ShortNames
    from elision.cli.sessions_report import ListedSession
    from elision.lab.report.report import Report
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
    from elision.cli.console import name_store, open_notes
    from elision.cli.outputs import show_report
    from elision.config import load_settings
    from elision.stores.store_urls import open_existing

    found = load_settings()
    address = name_store(store or found.store, quiet=quiet)
    rates = choose_prices(model, price, prices)
    with closing(open_existing(address)) as opened:
        if sizes:
            report = _build_sizes(opened, everything=everything)
        else:
            from elision.cli.session_figures import FigureReader
            from elision.cli.session_names import ShortNames, walk_session_trees
            from elision.cli.sessions_report import build_sessions_report

            listed = opened.sessions()
            trees = walk_session_trees(listed)
            names = ShortNames(listed)
            shown = trees if everything or json else islice(trees, SHOWN)
            if json:
                rows, data = _load_reports(opened, shown, names, found.guards, rates, tokens)
            else:
                reader = FigureReader(opened, address, found.guards, rates, tokens)
                rows, data = _list_figures(opened, shown, names, reader), {}
            report = build_sessions_report(rows, len(listed), time.time(), data, has_notes=not quiet)
    show_report(report, {}, open_notes(quiet), as_json=json)


def _list_figures(
    opened: Store, shown: Iterable[tuple[str, SessionInfo]], names: ShortNames, reader: FigureReader
) -> list[ListedSession]:
    """Return a row for each session; one that cannot be read is a row that says so."""
    from elision.cli.sessions_report import ListedSession
    from elision.errors import StoreError
    from elision.trajectory.task_text import read_task

    rows = []
    for front, info in shown:
        name = names.shorten(info.key)
        try:
            task = read_task(opened.events(info.key))
            rows.append(ListedSession(front=front, info=info, name=name, task=task, figures=reader.read(info)))
        except StoreError as error:
            rows.append(ListedSession(front=front, info=info, name=name, fault=str(error)))
    reader.save()
    return rows


def _load_reports(
    opened: Store,
    shown: Iterable[tuple[str, SessionInfo]],
    names: ShortNames,
    guards: Guards,
    rates: Prices | None,
    tokens: str,
) -> tuple[list[ListedSession], dict[str, Any]]:
    """Return the rows, and every session with its whole report as JSON."""
    from elision.cli.session_figures import compute_figures
    from elision.cli.sessions_report import ListedSession
    from elision.errors import StoreError
    from elision.manager.session_history import add_plateau_guard, load_session_log
    from elision.manager.session_json import encode_session_report
    from elision.trajectory.task_text import find_task
    from elision.trajectory.tokens import Sizer, make_counter

    sizer = Sizer(make_counter(tokens))
    rows, encoded = [], []
    for front, info in shown:
        row = encode_info(info)
        name = names.shorten(info.key)
        try:
            report = load_session_log(opened, info, sizer, add_plateau_guard(guards), rates).build_report()
            task = find_task(report.head)
            row |= {"task": task, **encode_session_report(report)}
            rows.append(ListedSession(front=front, info=info, name=name, task=task, figures=compute_figures(report)))
        except StoreError as error:
            row["fault"] = str(error)
            rows.append(ListedSession(front=front, info=info, name=name, fault=str(error)))
        encoded.append(row)
    return rows, {"sessions": encoded}


def _build_sizes(opened: Store, *, everything: bool) -> Report:
    from elision.cli.sessions_report import build_sizes_report

    footprint = opened.footprint()
    largest = sorted(opened.sessions(), key=lambda info: (-info.raw_bytes, info.key))
    data = {
        "stored_bytes": footprint.stored_bytes,
        "raw_bytes": footprint.raw_bytes,
        "sessions": [encode_info(info) for info in largest],
    }
    return build_sizes_report(footprint, largest if everything else largest[:SHOWN], time.time(), data)


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
