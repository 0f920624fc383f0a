"""The record of one request: the same facts for metrics, the log line and the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from elision.providers.provider import Api
from elision.telemetry.diagnostics import Diagnostics
from elision.trajectory.usage import Usage

#: How a request went out. view: as decided. same: nothing was to be hidden. shadow: decided and not done. passed: not
#: ours to decide on (off, another path, unreadable). failed: we failed, so it went as it came. refused: not sent.
Disposition: TypeAlias = Literal["view", "same", "shadow", "passed", "failed", "refused"]


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request, filled in while it is served.

    api:                None for what is passed through. session: its key in the store, "" where it has none.
    status:             of the response that the client got; 0 where the client left before there was one.
    added_seconds:      from the request's last byte to the first byte sent upstream. waited_seconds: the part of that
                        spent waiting for another request of the same session.
    first_byte_seconds: from the request's last byte to the response's first. total_seconds: to the response's last.
    cause:              one word for what went wrong, "" where nothing did. why: a sentence without secrets.
    is_complete:        whether the response reached its end.
    reached_limit:      the limit that the session or its key has reached, "" for none; the response's headers name it.
    hint:               that the agent makes no progress, as known before the response, whose headers have it.
    role:               of what asks: `main`, `sub-agent` or `side`; "" where it passed unread.
    namespace:          whose API key it has, as a hash. taken_usd: what was taken of its dollars for it.
    recalls:            recall calls that the gateway answered. rounds: requests to the provider.
    is_pinned:          whether its tools were sent as its session first had them.
    step_diagnostics:   one entry a step: a recall needs one more, and so does a prompt that was too long.
    """

    api: Api | None = None
    path: str = ""
    how: Disposition = "passed"
    session: str = ""
    status: int = 0
    bytes_in: int = 0
    bytes_up: int = 0
    bytes_out: int = 0
    added_seconds: float = 0.0
    waited_seconds: float = 0.0
    first_byte_seconds: float = 0.0
    total_seconds: float = 0.0
    is_stream: bool = False
    model: str = ""
    cause: str = ""
    why: str = field(default="", repr=False)
    is_complete: bool = False
    reached_limit: str = field(default="", repr=False)
    hint: str = field(default="", repr=False)
    recalls: int = 0
    rounds: int = 0
    is_pinned: bool = False
    cache_miss: str = ""
    cleared_tokens: int = 0
    thinking_dropped: int = 0
    usage: Usage | None = None
    role: str = ""
    namespace: str = field(default="", repr=False)
    taken_usd: float | None = None
    step_diagnostics: list[Diagnostics] = field(default_factory=list, repr=False)

    def add_step(self, diagnostics: Diagnostics) -> None:
        """Add the diagnostics of a step. A prompt that does not fit its budget is something that went wrong."""
        self.step_diagnostics.append(diagnostics)
        for fault in diagnostics.faults:
            if fault.kind == "budget" and not diagnostics.shadow:
                self.cause, self.why = "budget", fault.what

    @property
    def budget_note(self) -> str:
        """Return what was done to bring the prompt into its budget; "" for nothing, or where it went as it came."""
        if self.how in ("shadow", "failed"):
            return ""
        return "; ".join(each.budget_note for each in self.step_diagnostics if each.budget_note)

    @property
    def diagnostics(self) -> Diagnostics | None:
        """Return those of its newest step."""
        if self.step_diagnostics:
            return self.step_diagnostics[-1]
        return None


#: Told of every request when it is over.
RequestListener: TypeAlias = Callable[[RequestRecord], None]
