"""The stores that the contract is held against: a name, and the URL of a fresh place in a folder.

A store joins every suite of this folder by one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.stores.pgbouncer import shared_pgbouncer
from tests.stores.postgres_server import make_fresh_url

STORES: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory:",
    "sqlite": lambda folder: f"sqlite:///{folder}/store.db",
    "linear-hash": lambda folder: f"linear-hash:///{folder}/store",
    "postgresql": lambda _: make_fresh_url(),
    "pgbouncer": lambda _: shared_pgbouncer().make_fresh_url(),
}
#: Those that a second opening, and a process that died, find again.
DURABLE = tuple(name for name in STORES if name != "memory")
