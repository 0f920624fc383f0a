"""Stores by URL: `memory:`, `sqlite:///agent.db`, `postgresql://...`, `linear-hash:///folder`.

As everywhere, three slashes begin a path from the working folder and four an absolute one. `sqlite:` alone is the
default: `elision/sessions.db` in the user's state folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from elision.errors import StoreError
from elision.stores.memory import MemoryStore
from elision.stores.sqlite import SqliteStore
from elision.stores.sqlite_file import BUSY_SECONDS
from elision.stores.store import Store
from elision.stores.store_errors import DamagedStoreError, missing_store_error, set_aside

#: The store that is used where nobody names one.
DEFAULT_STORE: Final = "sqlite:"


def find_state_folder() -> Path:
    """Return the folder for what Elision keeps: ~/.local/state/elision on Linux, or as the platform has it."""
    return platformdirs.user_state_path("elision", appauthor=False).absolute()


def locate_store(url: str) -> str:
    """Return `url`; for the default store, the address with its path."""
    scheme, _, rest = url.partition(":")
    path, _, options = rest.partition("?")
    if scheme != "sqlite" or path:
        return url
    return f"sqlite:///{find_state_folder() / 'sessions.db'}{'?' if options else ''}{options}"


def open_store(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Store:
    """Open the store at `url`, made if it is not there, to be read and written.

    busy_seconds: how long a SQLite store waits while another process writes. Raises StoreError, also where it cannot be
    written; MissingExtra.
    """
    return _open_kind(url, busy_seconds, read_only=False)


def _open_kind(url: str, busy_seconds: float, *, read_only: bool) -> Store:
    scheme, colon, _ = url.partition(":")
    kind = STORE_KINDS.get(scheme)
    if not colon or kind is None:
        meant = f"; did you mean sqlite:///{url}? Or" if url and not colon else ";"
        raise StoreError(
            f"{_hide_credentials(url)!r} is not the address of a store{meant} give one of: {', '.join(FORMS)}"
        )
    return kind.open(locate_store(url).partition(":")[2], busy_seconds, read_only)


def open_or_replace(url: str, *, busy_seconds: float = BUSY_SECONDS) -> tuple[Store, str]:
    """Do as `open_store`; a store that is too damaged to be opened is set aside, and a new one begun in its place.

    Return also what was done, "" for nothing.
    """
    try:
        return open_store(url, busy_seconds=busy_seconds), ""
    except DamagedStoreError as damaged:
        done = describe_set_aside(damaged, set_aside(damaged))
        return open_store(url, busy_seconds=busy_seconds), done


def describe_set_aside(damaged: DamagedStoreError, kept: Path) -> str:
    """Return what was done about a damaged store, and the command that saves what can be read."""
    scheme = "linear-hash" if kept.is_dir() else "sqlite"
    command = f"elision sessions copy {scheme}:///{kept} {scheme}:///{damaged.path}"
    return f"{damaged}. It is kept as {kept.name}, and a new store was begun; `{command}` copies what can be read"


def open_existing(url: str, *, read_only: bool = False) -> Store:
    """Open the store at `url`, which must be there. Raises MissingStore, StoreError, MissingExtra."""
    url = locate_store(url)
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        raise StoreError("memory: keeps nothing beyond its process; name a store that does")
    if scheme in FILE_SCHEMES and not Path(parse_path(rest, scheme)).exists():
        raise missing_store_error(_hide_credentials(url))
    return _open_kind(url, BUSY_SECONDS, read_only=read_only)


def open_for_reading(url: str) -> Store:
    """Do as `open_existing`, and write nothing: methods that change something raise StoreError.

    Another process may write to it meanwhile.
    """
    return open_existing(url, read_only=True)


def parse_path(rest: str, scheme: str) -> str:
    """Return the path after `scheme:`. Raises StoreError if there is none."""
    path = rest.removeprefix("///")
    if scheme == "sqlite":
        path, _ = _split_turns(path)
    if not path or path.startswith("//"):
        raise StoreError(f"{scheme}: no path in it; three slashes begin one from here, four an absolute one")
    return path


def _open_sqlite(rest: str, busy_seconds: float, read_only: bool) -> Store:
    path = parse_path(rest, "sqlite")
    if path == ":memory:":
        raise StoreError("sqlite: keeps sessions in a file; memory: keeps them in this process only")
    folder = Path(path).parent
    if read_only:
        return SqliteStore(Path(path), read_only=True)
    if folder == find_state_folder():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{folder}: the folder for sessions cannot be made ({error.strerror}); name another store with --store "
                "or ELISION_STORE"
            ) from error
    return SqliteStore(Path(path), busy_seconds=busy_seconds, shows_turns=_split_turns(rest)[1])


def _split_turns(rest: str) -> tuple[str, bool]:
    """Return `rest` without its option, and whether that is `?turns=full`. Raises StoreError for another value."""
    path, mark, value = rest.partition("?turns=")
    if mark and value not in ("full", "none"):
        raise StoreError(f"turns={value[:20]!r} in the SQLite URL: full, or none for no tables of whole turns")
    return path, value == "full"


def _open_linear_hash(rest: str, _busy_seconds: float, read_only: bool) -> Store:
    # Its dozen modules take a tenth of the time of `from elision import ContextManager`.
    from elision.stores.linear_hash.store import LinearHashStore

    return LinearHashStore(parse_path(rest, "linear-hash"), read_only=read_only)


def _open_postgres(rest: str, _busy_seconds: float, read_only: bool) -> Store:
    # psycopg is an extra, and loading it takes longer than all the rest of a store.
    from elision.stores.postgres.store import open_postgres

    return open_postgres(rest, read_only=read_only)


def _hide_credentials(url: str) -> str:
    """Return `url` without what may be a password."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"[:80]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """The stores of one scheme.

    form:        how addresses are written.
    open:        opens a store, of what follows `SCHEME:` in its address, the seconds to wait while another process
                 writes, and whether it is only read. It makes one that is not there.
    is_in_files: whether the address is the path of a file or folder. is_shared: whether several processes may use one.
    """

    form: str
    open: Callable[[str, float, bool], Store]
    is_in_files: bool = False
    is_shared: bool = False


_POSTGRES: Final = StoreKind(form="postgresql://HOST/DATABASE", open=_open_postgres, is_shared=True)
#: Scheme -> its stores. A further kind is a file of its own and a row here.
STORE_KINDS: Final[Mapping[str, StoreKind]] = {
    "memory": StoreKind(form="memory:", open=lambda *_: MemoryStore()),
    "sqlite": StoreKind(form="sqlite:///FILE", open=_open_sqlite, is_in_files=True, is_shared=True),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "linear-hash": StoreKind(form="linear-hash:///FOLDER", open=_open_linear_hash, is_in_files=True),
}
#: Stores that are files or folders.
FILE_SCHEMES: Final = tuple(scheme for scheme, kind in STORE_KINDS.items() if kind.is_in_files)
#: How the addresses of stores are written.
FORMS: Final = tuple(dict.fromkeys(kind.form for kind in STORE_KINDS.values()))
