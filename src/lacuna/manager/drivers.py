"""The two drivers of a pass: what it yields is done here, by a thread or beside an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from lacuna.manager.scribe import Scribe
from lacuna.trajectory.plan import SummaryRequest

_T = TypeVar("_T")


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


async def run_async(steps: Steps[_T], scribe: Scribe) -> _T:
    """The same beside an event loop: store and summarizer never block it."""
    try:
        effect = next(steps)
        while True:
            try:
                if isinstance(effect, Io):
                    done = await asyncio.to_thread(effect.do)
                else:
                    done = await scribe.answer_async(effect)
            except Exception as error:  # noqa: BLE001 - as above
                effect = steps.throw(error)
            else:
                effect = steps.send(done)
    except StopIteration as end:
        found: _T = end.value
        return found
