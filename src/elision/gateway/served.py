"""One request that was served, as a value: the same facts for metrics, the log line and the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from elision.gateway.routes import Api
from elision.telemetry.diagnostics import Diagnostics
from elision.trajectory.usage import Usage

#: How a request went out. view: as decided. same: nothing was to be hidden. shadow: decided and not done. passed: not
#: ours to decide on (off, another path, unreadable). failed: we failed, so it went as it came. refused: not sent.
How: TypeAlias = Literal["view", "same", "shadow", "passed", "failed", "refused"]


@dataclass(slots=True, kw_only=True)
class Served:
    """One request, filled in as it goes.

    api:        None for what is passed through. session: its key in the store, "" where it has none.
    status:     of the answer that the client got; 0 where it went before there was one.
    added:      seconds from the request's last byte to the first byte towards the provider. waited: of them for another
                request of the same session.
    first:      seconds from there to the answer's first byte. whole: to its last.
    cause:      one word for what went wrong, "" where nothing did. why: a sentence without secrets.
    complete:   whether the answer came to its end.
    recalls:    calls of the recall tools that were answered here. rounds: requests to the provider.
    passes:     what each pass of it did: a recall takes one more, and so does a prompt that was too long.
    """

    api: Api | None = None
    path: str = ""
    how: How = "passed"
    session: str = ""
    status: int = 0
    bytes_in: int = 0
    bytes_up: int = 0
    bytes_out: int = 0
    added: float = 0.0
    waited: float = 0.0
    first: float = 0.0
    whole: float = 0.0
    stream: bool = False
    model: str = ""
    cause: str = ""
    why: str = field(default="", repr=False)
    complete: bool = False
    recalls: int = 0
    rounds: int = 0
    cache_miss: str = ""
    cleared_tokens: int = 0
    thinking_dropped: int = 0
    usage: Usage | None = None
    passes: list[Diagnostics] = field(default_factory=list, repr=False)

    @property
    def diagnostics(self) -> Diagnostics | None:
        """Of its newest pass."""
        if self.passes:
            return self.passes[-1]
        return None


#: Told of every request when it is over.
Watch: TypeAlias = Callable[[Served], None]
