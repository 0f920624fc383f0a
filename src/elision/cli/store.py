"""`elision sessions check, gc, copy, export` and `import`: keeping, checking and moving what stores hold."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from elision.cli.declarations import Argument, Option
from elision.cli.options import Json, Quiet, StoreUrl
from elision.errors import CorruptError, SettingError, StoreError, UnknownHandle

if TYPE_CHECKING:
    from elision.stores.session_copy import CopyResult
    from elision.stores.store import SessionInfo, Store

#: Refusals that are named.
_NAMED: Final = 3


def gc(
    store: StoreUrl = None,
    older_than: Annotated[
        str | None, Option("--older-than", help="Delete sessions that have not changed for this long: 30d, 12h, 2w.")
    ] = None,
    max_bytes: Annotated[
        str | None, Option("--max-bytes", help="Then delete the oldest until this much is left: 2GB, 500MB.")
    ] = None,
    ttl: Annotated[
        list[str] | None,
        Option(
            "--ttl",
            help="First delete sessions of matching families after this long: 'k*/ci-*=7d'; the first match counts.",
        ),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="List what would be deleted, and delete nothing.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Delete old sessions, and release unused space.

    Without a limit nothing is deleted. Forks keep what they share with a deleted session. With a limit, PostgreSQL
    keeps the space for new sessions, because releasing it would block writers.
    """
    # Slow to import, and help needs none of it.
    from elision.cli import store_tables as tables
    from elision.cli.amounts import format_size, parse_duration, parse_size
    from elision.cli.console import open_console
    from elision.cli.outputs import print_json
    from elision.config import load_settings
    from elision.lab.report.figures import format_plural
    from elision.lab.report.terminal import print_blocks

    now = time.time()
    lives = [_parse_ttl(each) for each in ttl or ()]
    oldest = None if older_than is None else now - parse_duration(older_than, "--older-than")
    limit = None if max_bytes is None else parse_size(max_bytes, "--max-bytes")
    console = open_console()
    with _open_configured_store(store, quiet=quiet) as opened:
        if dry_run:
            footprint = opened.footprint()
            sessions = opened.sessions()
            expired = {info.key for info in _list_expired(sessions, lives, now)}
            found = tables.list_deletions(footprint, sessions, expired, oldest=oldest, limit=limit)
            if json:
                names = [info.key for info, _ in found]
                print_json(
                    "sessions gc --dry-run", {"deleted": names, "freed_bytes": tables.estimate_freed(footprint, found)}
                )
            else:
                print_blocks(tables.show_deletions(footprint, found, now), console)
            return
        before = opened.footprint().stored_bytes
        expiring = list(_list_expired(opened.sessions(), lives, now))
        deleted = [info.key for info in expiring if _delete_unchanged(opened, info)]
        deleted += opened.purge(older_than=oldest, max_bytes=limit).sessions
        is_limited = bool(lives) or oldest is not None or limit is not None
        if not (is_limited and (store or load_settings().store).startswith("postgres")):
            opened.compact()
        after = opened.footprint().stored_bytes
    freed = max(0, before - after)
    if json:
        print_json("sessions gc", {"deleted": deleted, "freed_bytes": freed})
    else:
        console.print(f"{format_plural(len(deleted), 'session')} deleted, {format_size(freed)} freed")


def _parse_ttl(text: str) -> tuple[str, float]:
    """Return a pattern of families, and seconds. Raises SettingError."""
    from elision.cli.amounts import parse_duration

    pattern, _, age = text.rpartition("=")
    if not pattern:
        raise SettingError(f"--ttl {text!r}: give families and an age, as in 'k*/ci-*=7d'")
    return pattern, parse_duration(age, "--ttl")


def _list_expired(
    sessions: Iterable[SessionInfo], lives: Sequence[tuple[str, float]], now: float
) -> Iterator[SessionInfo]:
    """Yield the sessions that have not changed for as long as the first pattern that fits their family allows."""
    for info in sessions:
        life = next((seconds for pattern, seconds in lives if fnmatchcase(info.family, pattern)), None)
        if life is not None and info.changed < now - life:
            yield info


def _delete_unchanged(opened: Store, info: SessionInfo) -> bool:
    """Delete a session, and return that; not one that was continued, or deleted, since it was listed."""
    try:
        if opened.length(info.key) != info.records:
            return False
        opened.delete(info.key)
    except UnknownHandle:
        return False
    return True


def check(
    store: StoreUrl = None,
    repair: Annotated[
        bool,
        Option("--repair", help="Rebuild a linear-hash store from what can be read; damaged files are kept."),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read everything in a store and list damage; nothing changes without --repair."""
    # Slow to import, and help needs none of it.
    from elision.cli import store_tables as tables
    from elision.cli.console import name_store, open_console
    from elision.cli.outputs import print_json
    from elision.cli.sessions_report import describe_contents
    from elision.config import load_settings
    from elision.lab.report.figures import format_plural
    from elision.lab.report.terminal import print_blocks

    if repair:
        _repair_store(name_store(store or load_settings().store, quiet=quiet), as_json=json)
        return
    with _open_configured_store(store, quiet=quiet) as opened:
        # First: where the store's own books are damaged, counting them would only fail.
        found = opened.check()
        footprint = None if found else opened.footprint()
    if json:
        contents = {name: getattr(footprint, name) for name in ("sessions", "turns", "records")} if footprint else {}
        print_json("sessions check", {**contents, "findings": [asdict(each) for each in found]})
    elif footprint is not None:
        open_console().print(f"in order: {describe_contents(footprint)}")
    else:
        print_blocks(tables.show_findings(found), open_console())
    if found:
        lost = sum(finding.lost for finding in found)
        raise CorruptError(
            f"{format_plural(len(found), 'finding')}, {lost} with losses; `elision sessions copy` saves the rest"
        )


def _repair_store(address: str, *, as_json: bool) -> None:
    from elision.cli import store_tables as tables
    from elision.cli.console import open_console
    from elision.cli.outputs import print_json
    from elision.lab.report.figures import format_plural
    from elision.lab.report.terminal import print_blocks
    from elision.stores.linear_hash.check import repair
    from elision.stores.store_urls import parse_path

    scheme, _, rest = address.partition(":")
    if scheme != "linear-hash":
        raise SettingError("--repair is for linear-hash stores; `elision sessions copy` rescues what another store has")
    done = repair(Path(parse_path(rest, address)))
    if as_json:
        lost = [asdict(each) for each in done.lost]
        kept_as = [path.name for path in done.kept]
        print_json(
            "sessions check --repair",
            {"sessions": done.sessions, "records": done.records, "findings": lost, "damaged_files": kept_as},
        )
        return
    console = open_console()
    if done.lost:
        print_blocks(tables.show_findings(list(done.lost)), console)
    kept = ", ".join(path.name for path in done.kept)
    told = f"{format_plural(done.sessions, 'session')} with {format_plural(done.records, 'record')} kept"
    console.print(f"{told}, {len(done.lost)} lost; the damaged files are kept as {kept}")


def copy(
    source: Annotated[str, Argument(metavar="FROM", help="Address of the store to copy from.")],
    target: Annotated[str, Argument(metavar="TO", help="Address of the store to copy to; created if needed.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Copy all sessions of one store into another, and compare both.

    Nothing is overwritten or deleted. After an interruption, run it again to continue.
    """
    from elision.cli.console import name_store
    from elision.stores.session_copy import copy_all
    from elision.stores.store_urls import open_existing, open_store

    if source == target:
        raise SettingError(f"{source}: both addresses are the same; name another store to copy to")
    one_address, other_address = (name_store(each, quiet=quiet) for each in (source, target))
    with closing(open_existing(one_address)) as one, closing(open_store(other_address)) as two:
        _print_copies("sessions copy", copy_all(one, two), as_json=json)


def export(
    out: Annotated[Path, Option("--out", help="The file to write; - for standard output.")],
    session: Annotated[str | None, Argument(help="The session's name.")] = None,
    everything: Annotated[bool, Option("--all", help="All sessions.")] = False,
    log: Annotated[
        bool, Option("--log", help="Write complete logs for `elision sessions import`, not for replay.")
    ] = False,
    raw: Annotated[bool, Option("--raw", help="Keep secrets; otherwise they are replaced.")] = False,
    store: StoreUrl = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write stored sessions to a file: as runs that `elision replay` reads, or as logs that `import` reads."""
    if (session is None) != everything:
        raise SettingError("elision sessions export: name one session, or give --all")
    if json and str(out) == "-":
        raise SettingError("--json and --out - both write to standard output; name a file")
    # Slow to import, and help needs none of it.
    from elision.cli.console import open_notes
    from elision.cli.outputs import print_json
    from elision.cli.store_files import export_log, export_run, write_lines
    from elision.config import load_settings
    from elision.lab.report.figures import format_plural

    redaction = None if raw else load_settings().redaction
    write_session = export_log if log else export_run
    with _open_configured_store(store, quiet=quiet) as opened:
        chosen = [opened.info(session)] if session is not None else list(reversed(opened.sessions()))
        if not chosen:
            raise StoreError("there is no session in the store; nothing is written")
        write_lines(out, (line for each in chosen for line in write_session(opened, each, redaction)))
    if json:
        print_json(
            "sessions export", {"sessions": [each.key for each in chosen], "file": str(out), "redacted": not raw}
        )
    elif str(out) != "-":
        open_notes(quiet).print(
            f"wrote {format_plural(len(chosen), 'session')} to {out}"
            + ("" if raw else "; secrets were replaced, --raw keeps them"),
            markup=False,
            highlight=False,
        )


def import_(
    file: Annotated[Path, Argument(help="A file that `elision sessions export --log` wrote.")],
    store: StoreUrl = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read logs into a store, and compare both; nothing is overwritten."""
    from elision.cli.console import name_store
    from elision.config import load_settings
    from elision.stores.log_file import LogFile
    from elision.stores.session_copy import copy_all
    from elision.stores.store_urls import open_store

    logs = LogFile(file)
    with closing(open_store(name_store(store or load_settings().store, quiet=quiet))) as opened:
        _print_copies("sessions import", copy_all(logs, opened), as_json=json)


def _open_configured_store(url: str | None, *, quiet: bool) -> closing[Store]:
    from elision.cli.console import name_store
    from elision.config import load_settings
    from elision.stores.store_urls import open_existing

    return closing(open_existing(name_store(url or load_settings().store, quiet=quiet)))


def _print_copies(command: str, copies: Iterable[CopyResult | StoreError], *, as_json: bool) -> None:
    """Show what was copied. Raises StoreError if anything was not."""
    from elision.cli.console import open_console
    from elision.cli.outputs import print_json
    from elision.cli.store_tables import show_copies
    from elision.lab.report.figures import format_plural
    from elision.lab.report.terminal import print_blocks

    done = list(copies)
    refused = [str(each) for each in done if isinstance(each, StoreError)]
    if as_json:
        kept = [asdict(each) for each in done if not isinstance(each, StoreError)]
        print_json(command, {"copied": kept, "refused": refused})
    else:
        print_blocks(show_copies(done), open_console())
    if refused:
        raise StoreError(f"{format_plural(len(refused), 'session')} not copied: {'; '.join(refused[:_NAMED])}")
