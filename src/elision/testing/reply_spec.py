"""What an answer holds, whichever API returns it: the reply, its usage, and what it repeats of its request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elision.testing.recorded_run import RecordedReply
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySpec:
    """One answer.

    model: as the request named it. id: unique among the answers, without the prefix that each API gives it.
    created: seconds since the epoch. tools: of the request. include_usage: whether a chat stream ends with the usage.
    signature: of the thinking. dropped: what became of the request's own thinking (`input_transformations`).
    """

    reply: RecordedReply
    usage: Usage
    model: str
    id: str
    created: int = 0
    tools: Sequence[Any] = ()
    include_usage: bool = False
    signature: str = ""
    dropped: Sequence[dict[str, Any]] = ()


def decode_input(call: Action) -> dict[str, Any]:
    """Return a call's arguments as an object. What is none (of a free-form tool) is put under one name."""
    if call.decoded_arguments or call.arguments.strip() in ("", "{}"):
        return dict(call.decoded_arguments)
    return {"input": call.arguments}
