"""The manifest: every file, folder, archive or stretch of a data set that a study reads, and the shards they form."""

from __future__ import annotations

import io
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from elision.errors import FormatError
from elision.formats.document import Document
from elision.formats.registry import read_document, read_runs
from elision.formats.source import group_files, is_candidate
from elision.study.study_folder import digest_bytes, is_local_system, open_url
from elision.trajectory.trajectory import Problem, Trajectory

#: A shard is closed when it holds so much. Small enough that little is lost with a worker, and large enough that
#: starting one costs nothing.
SHARD_BYTES: Final = 64 * 2**20
SHARD_UNITS: Final = 200
_ARCHIVES: Final = (".tar", ".tgz", ".tar.gz", ".zip", ".db")
_TABLE: Final = ".parquet"
#: Columns of a data set: the messages of a run, its name where there is one, and what else a row may say of it.
MESSAGES: Final = "messages"
ID_COLUMNS: Final = ("id", "run_id", "trajectory_id", "session_id", "instance_id", "uuid")
FACT_COLUMNS: Final = ("model", "day", "tag")
#: What marks an object's content, in this order; a local file has the time of its last change.
_VERSIONS: Final = ("ETag", "etag", "checksum", "md5Hash", "content_hash", "mtime", "LastModified", "last_modified")

SCHEMA: Final = pa.schema(
    [
        ("url", pa.string()),
        ("row_group", pa.int32()),
        ("is_folder", pa.bool_()),
        ("size", pa.int64()),
        ("version", pa.string()),
        ("shard", pa.int32()),
        ("content", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Unit:
    """What is read in one piece. row_group: of a Parquet file; -1 for any other. version: changes with the content."""

    url: str
    size: int
    version: str
    row_group: int = -1
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Shard:
    """Units that one task reads."""

    number: int
    units: tuple[Unit, ...]

    @property
    def content(self) -> str:
        """Return what changes with what the shard holds."""
        parts = (f"{unit.url}\0{unit.row_group}\0{unit.size}\0{unit.version}\n" for unit in self.units)
        return digest_bytes("".join(parts).encode())

    def name_part(self, plan: str) -> str:
        """Return the name of the shard's files: other content or another plan has another name."""
        return _name_part(self.number, self.content, plan)


def _name_part(number: int, content: str, plan: str) -> str:
    return f"part-{number:06}-{digest_bytes((plan + content).encode())}.parquet"


def list_units(paths: Sequence[str]) -> list[Unit]:
    """Return everything at or below `paths` that may hold runs, sorted. Raises FormatError where there is nothing."""
    found: dict[tuple[str, int], Unit] = {}
    for path in paths:
        units = list(_list_path(path))
        if not units:
            raise FormatError(f"{path}: there is no such file or folder, or no file in it is named like a recording")
        found.update({(unit.url, unit.row_group): unit for unit in units})
    for url, _ in found:
        if url != clean_text(url):
            raise FormatError(f"{clean_text(url)}: the name of the file is not UTF-8; rename it")
    return [found[key] for key in sorted(found)]


def clean_text(text: str) -> str:
    """Return `text` as Parquet takes it: lone surrogates, which recordings may hold, become their escapes."""
    return text.encode(errors="backslashreplace").decode()


def pick_fields(value: object, names: Iterable[str]) -> dict[str, Any]:
    """Return some attributes of `value`, as columns of a row."""
    return {name: getattr(value, name) for name in names}


def _list_path(path: str) -> Iterator[Unit]:
    system, root = open_url(path)
    try:
        base, names = _find_files(system, root)
    except Exception as error:
        # fsspec's implementations have errors of their own, such as that for missing credentials.
        raise FormatError(f"{path}: cannot be listed ({error})") from error
    if base is None:
        for name, info in names.items():
            yield from _list_file(system, name, info)
        return
    groups = group_files(sorted(names))
    folders: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        if name in groups:
            folders[groups[name]].append(name)
        elif is_candidate(name) or name.lower().endswith((*_ARCHIVES, _TABLE)):
            yield from _list_file(system, f"{base}/{name}", names[name])
    for folder, own in folders.items():
        marks = "".join(f"{name}\0{_find_version(names[name])}\n" for name in own)
        yield Unit(
            url=_name_url(system, f"{base}/{folder}".rstrip("/")),
            size=sum(names[name]["size"] or 0 for name in own),
            version=digest_bytes(marks.encode()),
            is_folder=True,
        )


def _find_files(system: Any, root: str) -> tuple[str | None, dict[str, Mapping[str, Any]]]:
    """Return the folder that `root` names, whole or by a pattern, and the files below it by their path from there.

    For a file, which is read whatever its name, there is no folder; it may not exist.
    """
    if any(sign in root for sign in "*?["):
        files = {name: info for name, info in system.glob(root, detail=True).items() if info["type"] == "file"}
        base = root[: min(root.index(sign) for sign in "*?[" if sign in root)].rpartition("/")[0]
    elif system.isdir(root):
        files, base = system.find(root, detail=True), root.rstrip("/")
    else:
        return None, {root: system.info(root)} if system.exists(root) else {}
    return base, {name.removeprefix(f"{base}/"): info for name, info in files.items()}


def _list_file(system: Any, path: str, info: Mapping[str, Any]) -> Iterator[Unit]:
    url, size, version = _name_url(system, path), int(info["size"] or 0), _find_version(info)
    if not path.lower().endswith(_TABLE):
        yield Unit(url, size, version)
        return
    try:
        with system.open(path, "rb") as file:
            footer = pq.ParquetFile(file).metadata
            sizes = [footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)]
    except (OSError, pa.ArrowException):
        # The shard that reads it says what is wrong.
        sizes = [size]
    yield from (Unit(url, part, version, row_group=number) for number, part in enumerate(sizes))


def _name_url(system: Any, path: str) -> str:
    """Return the address of a file; of one on this machine its path, as other commands print it."""
    return path if is_local_system(system) else str(system.unstrip_protocol(path))


def _find_version(info: Mapping[str, Any]) -> str:
    return next((str(info[name]) for name in _VERSIONS if info.get(name)), "")


def cut_shards(units: Iterable[Unit]) -> list[Shard]:
    """Return `units` in shards of at most `SHARD_BYTES` and `SHARD_UNITS`; a larger unit is a shard of its own."""
    shards: list[Shard] = []
    own: list[Unit] = []
    size = 0
    for unit in units:
        if own and (size + unit.size > SHARD_BYTES or len(own) >= SHARD_UNITS):
            shards.append(Shard(len(shards), tuple(own)))
            own, size = [], 0
        own.append(unit)
        size += unit.size
    return [*shards, Shard(len(shards), tuple(own))] if own else shards


def encode_manifest(shards: Sequence[Shard]) -> bytes:
    """Return the manifest as Parquet: a row for each unit, with the number and content of its shard."""
    rows = [
        pick_fields(unit, Unit.__slots__) | {"shard": shard.number, "content": content}
        for shard in shards
        for content in [shard.content]
        for unit in shard.units
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), buffer, compression="zstd")
    return buffer.getvalue()


def decode_manifest(data: bytes) -> list[Shard]:
    """Return the shards of a manifest."""
    units: dict[int, list[Unit]] = defaultdict(list)
    for row in pq.read_table(io.BytesIO(data), columns=[*Unit.__slots__, "shard"]).to_pylist():
        units[row.pop("shard")].append(Unit(**row))
    return [Shard(number, tuple(units[number])) for number in sorted(units)]


def list_parts(data: bytes, plan: str) -> list[str]:
    """Return the names of all shards' files, in their order, without reading what they hold."""
    found = pq.read_table(io.BytesIO(data), columns=["shard", "content"]).group_by(["shard", "content"]).aggregate([])
    return [_name_part(row["shard"], row["content"], plan) for row in found.sort_by("shard").to_pylist()]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the place of a run says of it: `day=` and `tag=` of folders, or columns of a data set. "" where nothing."""

    day: str = ""
    tag: str = ""


def read_unit(unit: Unit) -> Iterator[tuple[Trajectory, RunFacts] | Problem]:
    """Yield every run of a unit with what its place says of it, and every Problem, both under the unit's address.

    Raises OSError where the unit cannot be fetched; a unit that is gone is a Problem.
    """
    named = dict(part.split("=", 1) for part in reversed(unit.url.split("/")) if "=" in part)
    facts = RunFacts(day=named.get("day", ""), tag=named.get("tag", ""))
    try:
        if unit.row_group >= 0:
            yield from _read_row_group(unit, facts)
            return
        with _fetch(unit) as local:
            for found in read_runs(local):
                file = found.file.replace(str(local), unit.url, 1)
                if isinstance(found, Problem):
                    yield Problem(file=file, line=found.line, reason=found.reason, kind=found.kind)
                else:
                    yield replace(found, file=file), facts
    except FileNotFoundError:
        yield Problem(file=unit.url, line=None, reason="no longer exists; it did when the study began")
    except FormatError as error:
        reason = str(error).partition("; formats known:")[0].partition(" Formats known:")[0]
        yield Problem(file=unit.url, line=None, reason=reason.partition(": ")[2] or reason)


@contextmanager
def _fetch(unit: Unit) -> Iterator[Path]:
    """Give a local copy of a unit, under its own name; what is on this machine is read where it is."""
    system, path = open_url(unit.url)
    if is_local_system(system):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="elision-") as folder:
        local = Path(folder) / (path.rstrip("/").rpartition("/")[2] or "runs")
        system.get(path, str(local), recursive=unit.is_folder)
        yield local


def _read_row_group(unit: Unit, facts: RunFacts) -> Iterator[tuple[Trajectory, RunFacts] | Problem]:
    """Yield the runs of a stretch of a data set: a row is a run, `messages` a list of messages or JSON of one."""
    system, path = open_url(unit.url)
    try:
        with system.open(path, "rb") as file:
            table = pq.ParquetFile(file)
            columns = {name: name for name in table.schema_arrow.names}
            if MESSAGES not in columns:
                listed = ", ".join(list(columns)[:12])
                yield Problem(file=unit.url, line=None, reason=f"has no column `{MESSAGES}`; it has: {listed}")
                return
            id_column = next((name for name in ID_COLUMNS if name in columns), "")
            wanted = [name for name in (MESSAGES, id_column, "tools", *FACT_COLUMNS) if name in columns]
            before = sum(table.metadata.row_group(number).num_rows for number in range(unit.row_group))
            rows = table.iter_batches(64, row_groups=[unit.row_group], columns=wanted, use_threads=False)
            number = before
            for batch in rows:
                for row in batch.to_pylist():
                    number += 1
                    yield from _read_row(unit, row, number, str(row.get(id_column) or f"row {number}"), facts)
    except pa.ArrowException as error:
        yield Problem(file=unit.url, line=None, reason=f"cannot be read as Parquet ({error})")


def _read_row(
    unit: Unit, row: Mapping[str, Any], number: int, name: str, facts: RunFacts
) -> Iterator[tuple[Trajectory, RunFacts] | Problem]:
    own = RunFacts(**{key: str(row.get(key) or getattr(facts, key)) for key in ("day", "tag")})
    messages = row[MESSAGES]
    try:
        # Arrow gives every message the fields of all; those that it lacks are null.
        content = {key: _drop_nulls(row[key]) for key in ("model", "tools") if row.get(key)}
        content[MESSAGES] = json.loads(messages) if isinstance(messages, str) else _drop_nulls(messages)
    except ValueError as error:
        yield Problem(file=unit.url, line=number, reason=f"its messages are not JSON ({error})")
        return
    document = Document(path=unit.url, data=json.dumps(content, default=str).encode())
    try:
        found = list(read_document(document, named=True))
    except FormatError as error:
        yield Problem(file=unit.url, line=number, reason=str(error).partition(": ")[2].partition("; formats known:")[0])
        return
    runs = [item for item in found if isinstance(item, Trajectory)]
    for item in found:
        if isinstance(item, Problem):
            yield Problem(file=unit.url, line=number, reason=item.reason, kind=item.kind)
        else:
            yield replace(item, file=unit.url, id=name if len(runs) == 1 else f"{name} {item.id}"), own


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_drop_nulls(each) for each in value]
    return value
