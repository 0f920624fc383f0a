"""Where the time of a session goes: chosen functions timed from outside, each without what it calls of the others."""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeAlias

#: Part, whose attribute, which.
Part: TypeAlias = tuple[str, Any, str]


class Split:
    """seconds: by part, exclusive. For the thread it was made in; what other threads do is the waiter's."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._thread = threading.get_ident()
        self._stack: list[tuple[str, float]] = []

    @contextmanager
    def watching(self, parts: Iterable[Part]) -> Iterator[Split]:
        """While this lasts the functions of `parts` are timed."""
        before = [(owner, name, getattr(owner, name)) for _, owner, name in parts]
        for (part, owner, name), (_, _, function) in zip(parts, before, strict=True):
            setattr(owner, name, self._timed(part, function))
        try:
            yield self
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)

    def _timed(self, part: str, function: Any) -> Any:
        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != self._thread:
                return function(*arguments, **named)
            self._switch(part)
            try:
                return function(*arguments, **named)
            finally:
                self._back()

        return timed

    def _switch(self, part: str) -> None:
        now = self._clock()
        if self._stack:
            outer, since = self._stack[-1]
            self.seconds[outer] += now - since
        self._stack.append((part, now))

    def _back(self) -> None:
        now = self._clock()
        part, since = self._stack.pop()
        self.seconds[part] += now - since
        if self._stack:
            self._stack[-1] = (self._stack[-1][0], now)
