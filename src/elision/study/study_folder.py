"""A study's folder, on disk or in an object store: files that appear whole, and the settings that its rows share.

`study.json` is written last of all that a study begins with, so where it is, the rest is. A study whose settings differ
is refused, since its rows would not add up.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import fsspec
import msgspec

from elision.errors import FormatError, OutputError, SpecError, describe_error

FORMAT: Final = "elision.study/1"
SETTINGS_FILE: Final = "study.json"
MANIFEST_FILE: Final = "manifest.parquet"
SAMPLE_FILE: Final = "sample.parquet"
#: How the name of a file begins that is not whole yet; nothing reads it.
_TEMPORARY: Final = ".writing-"


class StudyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What all rows of a study share.

    version: of Elision. paths: what was asked for. prices: of every run; each at its own
    model's if "". price_list, sample: digests. options: the rest of what was asked for, as JSON.
    """

    version: str
    paths: tuple[str, ...]
    prices: str
    price_list: str
    sample: str
    options: dict[str, Any]
    format: str = FORMAT

    @property
    def digest(self) -> str:
        """Return what tells rows of this plan from those of any other."""
        return digest_bytes(msgspec.json.encode(self, order="sorted"))

    def list_differences(self, other: StudyPlan) -> list[str]:
        """Return each setting that differs, with its value here and in `other`, as JSON."""
        mine, theirs = ({**msgspec.structs.asdict(plan), **plan.options, "options": None} for plan in (self, other))
        found = {name: (mine.get(name), theirs.get(name)) for name in sorted(mine.keys() | theirs.keys())}
        return [
            f"{name.replace('_', ' ')} {' / '.join(json.dumps(value, ensure_ascii=False) for value in values)}"
            for name, values in found.items()
            if values[0] != values[1]
        ]


def digest_bytes(data: bytes) -> str:
    """Return a short digest of `data`."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True)
class StudyFolder:
    """The folder at `url`: a local path, or what fsspec opens (`s3://bucket/study`)."""

    url: str

    @cached_property
    def _place(self) -> tuple[Any, str]:
        system, root = open_url(self.url)
        return system, root.rstrip("/")

    @property
    def is_local(self) -> bool:
        return is_local_system(self._place[0])

    def locate(self, name: str) -> str:
        """Return the address of the file or pattern `name`, as DuckDB takes it."""
        system, root = self._place
        return f"{root}/{name}" if self.is_local else str(system.unstrip_protocol(f"{root}/{name}"))

    @property
    def file_system(self) -> Any:
        return self._place[0]

    def exists(self, name: str) -> bool:
        system, root = self._place
        # A listing that another process has outdated must not count.
        system.invalidate_cache()
        return bool(system.exists(f"{root}/{name}"))

    def read(self, name: str) -> bytes:
        """Return a file's bytes. Raises FileNotFoundError."""
        system, root = self._place
        return bytes(system.cat_file(f"{root}/{name}"))

    def list_names(self, folder: str) -> set[str]:
        """Return the names of the whole files in `folder`; none if it is not there."""
        system, root = self._place
        system.invalidate_cache()
        try:
            names = system.ls(f"{root}/{folder}", detail=False)
        except FileNotFoundError:
            return set()
        found = {str(name).rstrip("/").rpartition("/")[2] for name in names}
        return {name for name in found if not name.startswith(_TEMPORARY)}

    def write(self, name: str, data: bytes) -> None:
        """Put a file there, whole or not at all; one that is there already is replaced. Raises OutputError."""
        try:
            self._write(name, data)
        except Exception as error:
            # fsspec's implementations have errors of their own; they have tried more than once.
            reason = getattr(error, "strerror", None) or describe_error(error)
            raise OutputError(
                f"{self.locate(name)}: cannot be written ({reason}); run the command again once it can:"
                " the study continues where it stopped"
            ) from error

    def _write(self, name: str, data: bytes) -> None:
        system, root = self._place
        target = f"{root}/{name}"
        if not self.is_local:
            # An object appears with its last byte.
            system.pipe_file(target, data)
            return
        folder, _, last = target.rpartition("/")
        temporary = f"{folder}/{_TEMPORARY}{secrets.token_hex(6)}-{last}"
        os.makedirs(folder, exist_ok=True)
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        system, root = self._place
        with suppress(FileNotFoundError):
            system.rm_file(f"{root}/{name}")

    def remove_leftovers(self, folders: tuple[str, ...]) -> None:
        """Remove what killed processes began to write. Nothing may be writing into the study."""
        for folder in folders if self.is_local else ():
            with suppress(FileNotFoundError):
                for entry in os.scandir(self.locate(folder)):
                    if entry.name.startswith(_TEMPORARY):
                        os.unlink(entry.path)

    def load_plan(self) -> StudyPlan | None:
        """Return the study's settings; None where no study is. Raises FormatError for a damaged or newer one."""
        try:
            data = self.read(SETTINGS_FILE)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise FormatError(f"{self.locate(SETTINGS_FILE)}: cannot be read ({describe_error(error)})") from error
        try:
            plan = msgspec.json.decode(data, type=StudyPlan)
        except msgspec.DecodeError as error:
            raise FormatError(f"{self.locate(SETTINGS_FILE)}: is not a study of Elision ({error})") from error
        if plan.format != FORMAT:
            raise FormatError(
                f"{self.locate(SETTINGS_FILE)}: its format is {plan.format}, and this version reads {FORMAT};"
                f" use Elision {plan.version}"
            )
        return plan

    def check_plan(self, plan: StudyPlan) -> None:
        """Raise SpecError if the study that is here was made with other settings than `plan`: names both."""
        found = self.load_plan()
        differences = found.list_differences(plan) if found else []
        if differences:
            raise SpecError(
                f"--out {self.url}: that study differs from what is asked for, and its rows would not add up with new"
                f" ones (there / here): {'; '.join(differences)}. Give the same options and version, or another --out"
            )


def open_url(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for `url`, and the path in it. Raises SpecError where what it needs is missing."""
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise SpecError(f"{url}: {error}; `pip install s3fs` for s3://, gcsfs for gs://, adlfs for az://") from error
    except ValueError as error:
        raise SpecError(f"{url}: cannot be opened ({error})") from error
    return system, str(path)


def is_local_system(system: Any) -> bool:
    """Return whether `system` is this machine's files."""
    return system.protocol == "file" or "file" in tuple(system.protocol)
