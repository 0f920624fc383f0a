"""The secret key of API-key hashes: made once, kept where all gateways on one store find it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from elision.errors import StoreError
from elision.gateway.settings import GatewaySettings
from elision.stores.store import KeepsSecret, Store
from elision.stores.store_urls import FILE_SCHEMES, parse_path

_BYTES: Final = 32


def load_gateway_secret(settings: GatewaySettings, store: Store) -> bytes:
    """Return the setting `gateway_secret`, or a random secret that is made once.

    It is kept beside a store in files, or in a database; for a store in memory it is not kept. Raises StoreError where
    it cannot be kept.
    """
    if settings.secret is not None:
        return settings.secret.encode()
    fresh = secrets.token_bytes(_BYTES)
    scheme, _, rest = settings.library.store.partition(":")
    if settings.off:
        return fresh
    if scheme in FILE_SCHEMES:
        return keep_in_file(Path(f"{parse_path(rest, scheme).rstrip('/')}.secret"), fresh)
    if isinstance(store, KeepsSecret):
        return store.keep_secret(fresh)
    return fresh


def keep_in_file(path: Path, fresh: bytes) -> bytes:
    """Store `fresh` at `path` for its owner alone; return it, or what is there already. Raises StoreError."""
    try:
        if not path.exists():
            _write_once(path, fresh)
        found = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise StoreError(
            f"{path}: the secret that API keys are hashed with cannot be kept here ({error.strerror}); make the folder "
            "writable, or give one: ELISION_GATEWAY_SECRET"
        ) from error
    except ValueError:
        found = b""
    if len(found) < _BYTES:
        raise StoreError(
            f"{path}: holds no secret ({2 * _BYTES} hex digits); restore the file, or delete it: then the sessions "
            "of every client start again"
        )
    return found


def _write_once(path: Path, fresh: bytes) -> None:
    """Write the whole file or nothing, and never over another's."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(fresh.hex().encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())
        os.link(beside, path)
    except FileExistsError:
        # Another gateway was first.
        pass
    finally:
        beside.unlink()
