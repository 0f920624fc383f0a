"""What a host is given: its folder, the models' scripts, the adapter under test; and what a host is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tests.adapters.recording import Message, Player, Recorder
from tests.adapters.scenarios import Run


@dataclass(slots=True)
class AdapterSettings:
    """What a hook makes an adapter with.

    store:   a URL that the processes of a scenario share; the checks read it afterwards.
    closing: functions that are called when the process ends, such as the `close` of a pool of sessions.
    """

    strategy: str
    model: str
    store: str
    closing: list[Callable[[], Any]] = field(default_factory=list)

    @property
    def options(self) -> dict[str, Any]:
        """The options of a context manager, its strategy apart."""
        return {"model": self.model, "store": self.store}


@dataclass(slots=True)
class Stage:
    """One process of a scenario.

    folder:   of the scenario: its processes leave each other the framework's stored histories there.
    settings: of the adapter. hook: makes the adapter of a framework; None for a run without one.
    service:  base URL of the provider that checks bound thinking; "" where the scenario has none.
    """

    folder: Path
    recorder: Recorder
    settings: AdapterSettings
    hook: Callable[..., Any] | None = None
    service: str = ""
    _children: dict[str, int] = field(default_factory=dict)

    def attach(self, *parts: Any) -> Any:
        """Return what the hook makes of its settings and of the `parts` that its host names; None without a hook."""
        return None if self.hook is None else self.hook(self.settings, *parts)

    def make_player(self, run: Run) -> Player:
        """Return the model of a run."""
        return Player(self.recorder, run.thread, run.model, run.steps)

    def make_child_player(self, run: Run) -> Player:
        """Return the model of the run's next sub-agent."""
        number = self._children.get(run.thread, 0)
        self._children[run.thread] = number + 1
        return Player(self.recorder, f"{run.thread}/{number + 1}", run.model, run.children[number])


class FrameworkHost(Protocol):
    """A framework's own agent loop with its own scripted model. One is made for each process of a scenario.

    What it does not override it inherits.

    PACKAGES: distributions whose versions a report names.
    MISSING:  scenarios that the framework cannot play, and why.
    USAGE:    what it tells of a call's usage: `full`, `cached` (not what was written), `prompt`, or `nothing`.
    """

    PACKAGES: ClassVar[tuple[str, ...]]
    MISSING: ClassVar[Mapping[str, str]]
    USAGE: ClassVar[str] = "full"

    def __init__(self, stage: Stage) -> None: ...

    async def run_all(self, runs: Sequence[Run]) -> list[str]:
        """Play runs at the same time."""
        return await asyncio.gather(*(self.run(run) for run in runs))

    async def run(self, run: Run) -> str:
        """Play a run to its end and return the agent's last text. Raises what the framework raises."""
        ...

    async def read_history(self, thread: str) -> list[Message]:
        """Return what the framework itself has stored of a thread."""
        ...
