"""`elision store`: what stores take up, and keeping, checking and moving what is in them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final

import typer

from elision.cli import store_tables as tables
from elision.cli.amounts import format_size, parse_duration, parse_size
from elision.cli.console import open_console
from elision.cli.options import StoreUrl
from elision.cli.store_files import export_log, export_run, write_lines
from elision.config import load_settings
from elision.errors import CorruptError, SettingError, StoreError, UnknownHandle
from elision.lab.report.figures import format_plural
from elision.stores.linear_hash.check import repair
from elision.stores.log_file import LogFile
from elision.stores.session_copy import CopyResult, copy_all
from elision.stores.store import SessionInfo, Store
from elision.stores.store_urls import open_existing, open_store, parse_path

store = typer.Typer(
    help="Stored sessions: their size, retention, checks, moving, export and import.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)
#: Refusals that are named.
_NAMED: Final = 3


@store.command("du")
def du(
    url: StoreUrl = None,
    everything: Annotated[bool, typer.Option("--all", help="Every session, not the largest twenty.")] = False,
) -> None:
    """Show what a store takes up, and which sessions most of it is."""
    with _open_configured_store(url) as opened:
        footprint = opened.footprint()
        sessions = opened.sessions()
    largest = sorted(sessions, key=lambda info: (-info.raw_bytes, info.key))
    shown = largest if everything else largest[: tables.SHOWN]
    open_console().print(tables.render_usage(footprint, shown, time.time()))


@store.command("gc")
def gc(
    url: StoreUrl = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Delete sessions not changed for so long: 30d, 12h, 2w.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option("--max-bytes", help="Then delete the oldest until so much is left: 2GB, 500MB.")
    ] = None,
    ttl: Annotated[
        list[str] | None,
        typer.Option(
            "--ttl",
            help="First, delete those of families like this after so long: 'k*/ci-*=7d'; the first that fits counts.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be deleted, and delete nothing.")] = False,
) -> None:
    """Delete old sessions, then give back the space that nothing uses.

    Without a limit nothing is deleted. Forks keep what they share with a session that goes. With a limit, PostgreSQL
    keeps the space for new sessions, since to give it back would stop all that write.
    """
    now = time.time()
    lives = [_parse_ttl(each) for each in ttl or ()]
    oldest = None if older_than is None else now - parse_duration(older_than, "--older-than")
    limit = None if max_bytes is None else parse_size(max_bytes, "--max-bytes")
    console = open_console()
    with _open_configured_store(url) as opened:
        if dry_run:
            footprint = opened.footprint()
            sessions = opened.sessions()
            expired = {info.key for info in _list_expired(sessions, lives, now)}
            console.print(tables.render_deletions(footprint, sessions, expired, oldest=oldest, limit=limit, now=now))
            return
        before = opened.footprint().stored_bytes
        deleted = sum(_delete_unchanged(opened, info) for info in _list_expired(opened.sessions(), lives, now))
        deleted += len(opened.purge(older_than=oldest, max_bytes=limit).sessions)
        is_limited = bool(lives) or oldest is not None or limit is not None
        if not (is_limited and (url or load_settings().store).startswith("postgres")):
            opened.compact()
        after = opened.footprint().stored_bytes
    console.print(f"{format_plural(deleted, 'session')} deleted, {format_size(max(0, before - after))} freed")


def _parse_ttl(text: str) -> tuple[str, float]:
    """Return a pattern of families, and seconds. Raises SettingError."""
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


@store.command("fsck")
def fsck(
    url: StoreUrl = None,
    mend: Annotated[
        bool,
        typer.Option("--repair", help="Rebuild a linear-hash store from what can be read; damaged files are kept."),
    ] = False,
) -> None:
    """Read everything in a store and list what is wrong; nothing is changed without --repair."""
    address = url or load_settings().store
    if mend:
        _repair_store(address)
        return
    with _open_configured_store(address) as opened:
        # First: where the store's own books are damaged, this tells, and counting them would only fail.
        found = opened.check()
        footprint = None if found else opened.footprint()
    console = open_console()
    if footprint is not None:
        console.print(f"in order: {tables.describe_contents(footprint)}")
        return
    console.print(tables.render_findings(found))
    lost = sum(finding.lost for finding in found)
    raise CorruptError(
        f"{format_plural(len(found), 'finding')}, {lost} with losses; `elision store migrate` saves what can be read"
    )


def _repair_store(address: str) -> None:
    scheme, _, rest = address.partition(":")
    if scheme != "linear-hash":
        raise SettingError("--repair is for linear-hash stores; `elision store migrate` saves what another holds")
    done = repair(Path(parse_path(rest, address)))
    console = open_console()
    if done.lost:
        console.print(tables.render_findings(list(done.lost)))
    kept = ", ".join(path.name for path in done.kept)
    told = f"{format_plural(done.sessions, 'session')} with {format_plural(done.records, 'record')} kept"
    console.print(f"{told}, {len(done.lost)} lost; the damaged files are kept as {kept}")


@store.command("migrate")
def migrate(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Address of the store to copy from.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Address of the store to copy to; made if needed.")],
) -> None:
    """Copy all sessions of one store into another, and compare both.

    Nothing is overwritten, and nothing is deleted. Run it again after an interruption: it goes on where it stopped.
    """
    if source == target:
        raise SettingError(f"{source}: both addresses are the same; name another store to copy to")
    with closing(open_existing(source)) as one, closing(open_store(target)) as two:
        _print_copies(copy_all(one, two))


@store.command("export")
def export(
    out: Annotated[Path, typer.Option("--out", help="The file to write; - for standard output.")],
    session: Annotated[str | None, typer.Argument(help="Its name.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions.")] = False,
    log: Annotated[
        bool, typer.Option("--log", help="Everything that is kept, for `elision store import`; not for replay.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Leave secrets in; otherwise they are replaced.")] = False,
    url: StoreUrl = None,
) -> None:
    """Write stored sessions to a file: as runs that `elision replay` reads, or as logs that `import` reads."""
    if (session is None) != everything:
        raise SettingError("elision store export: name one session, or give --all")
    redaction = None if raw else load_settings().redaction
    write_session = export_log if log else export_run
    with _open_configured_store(url) as opened:
        chosen = [opened.info(session)] if session is not None else list(reversed(opened.sessions()))
        if not chosen:
            raise StoreError("there is no session in the store; nothing is written")
        write_lines(out, (line for each in chosen for line in write_session(opened, each, redaction)))
    if str(out) != "-":
        open_console(stderr=True).print(
            f"wrote {format_plural(len(chosen), 'session')} to {out}"
            + ("" if raw else "; secrets were replaced, --raw keeps them"),
            markup=False,
            highlight=False,
        )


@store.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="What `elision store export --log` wrote.")],
    url: StoreUrl = None,
) -> None:
    """Read logs into a store, and compare both; nothing is overwritten."""
    logs = LogFile(file)
    with closing(open_store(url or load_settings().store)) as opened:
        _print_copies(copy_all(logs, opened))


def _open_configured_store(url: str | None) -> closing[Store]:
    return closing(open_existing(url or load_settings().store))


def _print_copies(copies: Iterable[CopyResult | StoreError]) -> None:
    """Show what was copied. Raises StoreError if anything was not."""
    done = list(copies)
    open_console().print(tables.render_copies(done))
    refused = [str(each) for each in done if isinstance(each, StoreError)]
    if refused:
        raise StoreError(f"{format_plural(len(refused), 'session')} not copied: {'; '.join(refused[:_NAMED])}")
