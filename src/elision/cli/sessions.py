"""`elision sessions`: every session of a store, what became of it and what hiding saved."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from elision.cli.declarations import Option
from elision.cli.options import Output, Pricing, StoreUrl, Tokens

if TYPE_CHECKING:
    from elision.lab.report.report import Report
    from elision.stores.store import SessionInfo, Store

#: Sessions shown where not all are asked for.
SHOWN: Final = 20


def sessions(
    *,
    store: StoreUrl = None,
    everything: Annotated[bool, Option("--all", help="Every session, not the first twenty.")] = False,
    sizes: Annotated[
        bool, Option("--sizes", help="What the store takes up, and its largest sessions; no log is read.")
    ] = False,
    pricing: Pricing,
    tokens: Tokens = "o200k",
    output: Output,
) -> None:
    """List the sessions of a store, the one changed last first, and what hiding saved in each.

    Forks, histories that the client rewrote and sub-agents stand below the session they came from; what a fork shares
    with it counts in both.
    """
    # Slow to import, and help needs none of it.
    from elision.config import load_settings
    from elision.stores.store_urls import locate_store

    found = load_settings()
    rates = pricing.choose()
    with output.open_store(store) as opened:
        if sizes:
            output.show(_build_sizes(opened, everything=everything))
            return
        from elision.cli.session_figures import FigureReader
        from elision.cli.session_names import ShortNames, walk_session_trees
        from elision.cli.sessions_report import ListedSession, build_sessions_report
        from elision.errors import StoreError
        from elision.trajectory.trajectory import find_task, read_task

        listed = opened.sessions()
        trees = walk_session_trees(listed)
        names = ShortNames(listed)
        reader = FigureReader(opened, locate_store(store or found.store), found.guards, rates, tokens)
        rows, encoded = [], []
        # One that cannot be read is a row that says so. JSON has the whole report of each.
        for front, info in trees if everything or output.json else islice(trees, SHOWN):
            row = ListedSession(front=front, info=info, name=names.shorten(info.key))
            data = encode_info(info)
            try:
                if output.json:
                    from elision.manager.session_json import encode_session_report

                    report = reader.load_report(info)
                    data |= {"task": find_task(report.head), **encode_session_report(report)}
                    row = replace(row, figures=reader.keep(info, report))
                else:
                    row = replace(row, task=read_task(opened.events(info.key)), figures=reader.read(info))
            except StoreError as error:
                data["fault"] = str(error)
                row = replace(row, fault=str(error))
            rows.append(row)
            encoded.append(data)
        reader.save()
    listing = {"sessions": encoded} if output.json else {}
    output.show(build_sessions_report(rows, len(listed), time.time(), listing, has_notes=not output.quiet))


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
