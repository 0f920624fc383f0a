"""The two drivers of a pass: what it yields is done here, by a thread or beside an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from lacuna.manager.scribe import Scribe
from lacuna.trajectory.plan import SummaryRequest

_T = TypeVar("_T")
_log: Final = logging.getLogger("lacuna.manager")


@dataclass(frozen=True, slots=True)
class Io:
    """Something that may wait for the store; what it returns or raises is sent back."""

    do: Callable[[], Any]


#: A part of a pass: yields what takes time, and returns a `_T`.
Steps: TypeAlias = Generator[Io | SummaryRequest, Any, _T]


def run(steps: Steps[_T], scribe: Scribe) -> _T:
    """Run a pass to its end in this thread."""
    try:
        effect = next(steps)
        while True:
            try:
                done = effect.do() if isinstance(effect, Io) else scribe.answer(effect)
            except Exception as error:  # noqa: BLE001 - handed to the pass, which knows what may fail
                effect = steps.throw(error)
            else:
                effect = steps.send(done)
    except StopIteration as end:
        found: _T = end.value
        return found
    finally:
        steps.close()


async def run_async(steps: Steps[_T], scribe: Scribe) -> _T:
    """The same beside an event loop: store and summarizer never block it."""
    try:
        effect = next(steps)
        while True:
            try:
                if isinstance(effect, Io):
                    done = await _finished(effect)
                else:
                    done = await scribe.answer_async(effect)
            except Exception as error:  # noqa: BLE001 - as above
                effect = steps.throw(error)
            else:
                effect = steps.send(done)
    except StopIteration as end:
        found: _T = end.value
        return found
    finally:
        steps.close()


async def _finished(effect: Io) -> Any:
    """What `effect` returns. Where the pass is cancelled meanwhile its end is waited for: the next pass must not begin
    beside a write of this one."""
    # As `asyncio.to_thread` does it, but for its task.
    job = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, effect.do)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        if not job.cancelled() and (error := job.exception()) is not None:
            _log.warning("a pass was cancelled while the store failed: %s", type(error).__name__)
        raise
