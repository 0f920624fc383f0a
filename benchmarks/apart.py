"""Work in a process of its own: caches are cold, and memory is the work's alone."""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


def apart(work: Callable[[Path], _T]) -> _T:
    """What `work` returns in a fork of this process, given an empty folder that is gone afterwards.

    Raises RuntimeError where it fails; its traceback is on standard error.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def child(out: Connection) -> None:
        folder = Path(tempfile.mkdtemp(prefix="elision-bench-"))
        try:
            out.send(work(folder))
        finally:
            shutil.rmtree(folder)

    process = context.Process(target=child, args=(there,))
    process.start()
    there.close()
    try:
        found: _T = here.recv()
    except EOFError:
        raise RuntimeError("the measured process failed") from None
    finally:
        process.join()
    return found


def peak() -> float:
    """The most memory that this process had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
