"""`elision sessions check, gc, copy, export` and `import`: keeping, checking and moving what stores hold."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from elision.cli.declarations import Argument, Option
from elision.cli.options import Output, StoreUrl
from elision.errors import CorruptError, SettingError, StoreError, UnknownHandle

if TYPE_CHECKING:
    from elision.stores.session_copy import CopyResult
    from elision.stores.store import SessionInfo, Store

#: Refusals that are named.
_NAMED: Final = 3
SIZES: Final[Mapping[str, float]] = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
SPANS: Final[Mapping[str, float]] = {"s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def gc(
    *,
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
    output: Output,
) -> None:
    """Delete old sessions, and release unused space.

    Without a limit nothing is deleted. Forks keep what they share with a deleted session. With a limit, PostgreSQL
    keeps the space for new sessions, because releasing it would block writers.
    """
    # Slow to import, and help needs none of it.
    from elision.config import load_settings
    from elision.lab.report.figures import format_plural, format_size
    from elision.lab.report.report import Sentence

    now = time.time()
    lives = [_parse_ttl(each) for each in ttl or ()]
    oldest = None if older_than is None else now - parse_amount(older_than, "--older-than", SPANS)
    limit = None if max_bytes is None else int(parse_amount(max_bytes, "--max-bytes", SIZES))
    with output.open_store(store) as opened:
        if dry_run:
            _show_deletions(opened, lives, oldest, limit, now, output)
            return
        before = opened.footprint().stored_bytes
        expiring = list(_list_expired(opened.sessions(), lives, now))
        deleted = [info.key for info in expiring if _delete_unchanged(opened, info)]
        deleted += opened.purge(older_than=oldest, max_bytes=limit).sessions
        is_limited = bool(lives) or oldest is not None or limit is not None
        if not (is_limited and (store or load_settings().store).startswith("postgres")):
            opened.compact()
        freed = max(0, before - opened.footprint().stored_bytes)
    said = f"{format_plural(len(deleted), 'session')} deleted, {format_size(freed)} freed"
    output.answer("sessions gc", {"deleted": deleted, "freed_bytes": freed}, Sentence(said))


def _show_deletions(
    store: Store,
    lives: Sequence[tuple[str, float]],
    oldest: float | None,
    limit: int | None,
    now: float,
    output: Output,
) -> None:
    """Print what would be deleted."""
    from elision.cli import store_reports

    footprint = store.footprint()
    sessions = store.sessions()
    expired = {info.key for info in _list_expired(sessions, lives, now)}
    found = store_reports.list_deletions(footprint, sessions, expired, oldest=oldest, limit=limit)
    freed = store_reports.estimate_freed(footprint, found)
    data = {"deleted": [info.key for info, _ in found], "freed_bytes": freed}
    output.answer("sessions gc --dry-run", data, *store_reports.show_deletions(found, freed, now))


def parse_amount(text: str, option: str, units: Mapping[str, float]) -> float:
    """Return a number with one of `units` as bytes or seconds. Raises SettingError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text, re.IGNORECASE | re.ASCII)
    if not found or found[2].lower() not in units:
        examples = "2GB, 500MB, 1GiB" if units is SIZES else "30d, 12h, 2w"
        raise SettingError(f"{option} {text!r}: give a number with a unit, as in {examples}")
    return float(found[1]) * units[found[2].lower()]


def _parse_ttl(text: str) -> tuple[str, float]:
    """Return a pattern of families, and seconds. Raises SettingError."""
    pattern, _, age = text.rpartition("=")
    if not pattern:
        raise SettingError(f"--ttl {text!r}: give families and an age, as in 'k*/ci-*=7d'")
    return pattern, parse_amount(age, "--ttl", SPANS)


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
    *,
    store: StoreUrl = None,
    repair: Annotated[
        bool,
        Option("--repair", help="Rebuild a linear-hash store from what can be read; damaged files are kept."),
    ] = False,
    output: Output,
) -> None:
    """Read everything in a store and list damage; nothing changes without --repair."""
    if repair:
        _repair_store(output.name_store(store), output)
        return
    # Slow to import, and help needs none of it.
    from elision.cli import store_reports
    from elision.lab.report.figures import format_plural
    from elision.lab.report.report import Sentence

    with output.open_store(store) as opened:
        # First: where the store's own books are damaged, counting them would only fail.
        found = opened.check()
        footprint = None if found else opened.footprint()
    contents = {name: getattr(footprint, name) for name in ("sessions", "turns", "records")} if footprint else {}
    blocks = store_reports.show_findings(found)
    if footprint is not None:
        blocks = [Sentence(f"in order: {store_reports.describe_contents(footprint)}")]
    output.answer("sessions check", {**contents, "findings": [asdict(each) for each in found]}, *blocks)
    if found:
        lost = sum(finding.lost for finding in found)
        raise CorruptError(
            f"{format_plural(len(found), 'finding')}, {lost} with losses; `elision sessions copy` saves the rest"
        )


def _repair_store(address: str, output: Output) -> None:
    from elision.cli import store_reports
    from elision.lab.report.figures import format_plural
    from elision.lab.report.report import Sentence
    from elision.stores.linear_hash.check import repair
    from elision.stores.store_urls import parse_path

    scheme, _, rest = address.partition(":")
    if scheme != "linear-hash":
        raise SettingError("--repair is for linear-hash stores; `elision sessions copy` rescues what another store has")
    done = repair(Path(parse_path(rest, address)))
    kept = [path.name for path in done.kept]
    data = {
        "sessions": done.sessions,
        "records": done.records,
        "findings": [asdict(each) for each in done.lost],
        "damaged_files": kept,
    }
    counted = f"{format_plural(done.sessions, 'session')} with {format_plural(done.records, 'record')} kept"
    said = f"{counted}, {len(done.lost)} lost; the damaged files are kept as {', '.join(kept)}"
    output.answer("sessions check --repair", data, *store_reports.show_findings(done.lost), Sentence(said))


def copy(
    *,
    source: Annotated[str, Argument(metavar="FROM", help="Address of the store to copy from.")],
    target: Annotated[str, Argument(metavar="TO", help="Address of the store to copy to; created if needed.")],
    output: Output,
) -> None:
    """Copy all sessions of one store into another, and compare both.

    Nothing is overwritten or deleted. After an interruption, run it again to continue.
    """
    from elision.stores.session_copy import copy_all
    from elision.stores.store_urls import open_store

    if source == target:
        raise SettingError(f"{source}: both addresses are the same; name another store to copy to")
    with output.open_store(source) as one, closing(open_store(output.name_store(target))) as two:
        _print_copies("sessions copy", copy_all(one, two), output)


def export(
    *,
    out: Annotated[Path, Option("--out", help="The file to write; - for standard output.")],
    session: Annotated[str | None, Argument(help="The session's name.")] = None,
    everything: Annotated[bool, Option("--all", help="All sessions.")] = False,
    log: Annotated[
        bool, Option("--log", help="Write complete logs for `elision sessions import`, not for replay.")
    ] = False,
    raw: Annotated[bool, Option("--raw", help="Keep secrets; otherwise they are replaced.")] = False,
    store: StoreUrl = None,
    output: Output,
) -> None:
    """Write stored sessions to a file: as runs that `elision replay` reads, or as logs that `import` reads."""
    if (session is None) != everything:
        raise SettingError("elision sessions export: name one session, or give --all")
    if output.json and str(out) == "-":
        raise SettingError("--json and --out - both write to standard output; name a file")
    # Slow to import, and help needs none of it.
    from elision.cli.store_reports import export_log, export_run, write_lines
    from elision.config import load_settings
    from elision.lab.report.figures import format_plural

    redaction = None if raw else load_settings().redaction
    write_session = export_log if log else export_run
    with output.open_store(store) as opened:
        chosen = [opened.info(session)] if session is not None else list(reversed(opened.sessions()))
        if not chosen:
            raise StoreError("there is no session in the store; nothing is written")
        write_lines(out, (line for each in chosen for line in write_session(opened, each, redaction)))
    if output.json:
        data = {"sessions": [each.key for each in chosen], "file": str(out), "redacted": not raw}
        output.answer("sessions export", data)
    elif str(out) != "-":
        kept = "" if raw else "; secrets were replaced, --raw keeps them"
        output.note(f"wrote {format_plural(len(chosen), 'session')} to {out}{kept}")


def import_(
    *,
    file: Annotated[Path, Argument(help="A file that `elision sessions export --log` wrote.")],
    store: StoreUrl = None,
    output: Output,
) -> None:
    """Read logs into a store, and compare both; nothing is overwritten."""
    from elision.stores.session_copy import LogFile, copy_all
    from elision.stores.store_urls import open_store

    logs = LogFile(file)
    with closing(open_store(output.name_store(store))) as opened:
        _print_copies("sessions import", copy_all(logs, opened), output)


def _print_copies(command: str, copies: Iterable[CopyResult | StoreError], output: Output) -> None:
    """Show what was copied. Raises StoreError if anything was not."""
    from elision.cli.store_reports import show_copies
    from elision.lab.report.figures import format_plural

    done = list(copies)
    refused = [str(each) for each in done if isinstance(each, StoreError)]
    kept = [asdict(each) for each in done if not isinstance(each, StoreError)]
    output.answer(command, {"copied": kept, "refused": refused}, *show_copies(done))
    if refused:
        raise StoreError(f"{format_plural(len(refused), 'session')} not copied: {'; '.join(refused[:_NAMED])}")
