"""Small runs for the tests of summarizers."""

from __future__ import annotations

import json
from typing import Any

from elision.trajectory.plan import SummaryRequest
from elision.trajectory.turn import Action, Message, Observation, Turn, make_content


def make_turn(
    index: int,
    text: str = "",
    *,
    tool: str = "bash",
    result: str | None = None,
    error: bool | None = None,
    user: str = "",
    **arguments: Any,
) -> Turn:
    """Return a turn with `text` and, if it has arguments, one call with `result`."""
    action = Action(id="a", name=tool, arguments=json.dumps(arguments))
    seen = Observation(action_id="a", tool=tool, content=make_content(result or ""), error=error)
    return Turn(
        index=index,
        content=make_content(text),
        actions=(action,) if arguments else (),
        observations=(seen,) if arguments and result is not None else (),
        interjections=(Message(role="user", content=make_content(user)),) if user else (),
    )


def make_request(
    *turns: Turn, previous: str = "", task: str = "Mend the parser.", max_tokens: int = 2_000
) -> SummaryRequest:
    """Return a request for a summary of `turns`."""
    return SummaryRequest(previous=previous, task=task, turns=turns, max_tokens=max_tokens)


def make_filler_turn(index: int, size: int = 3_000) -> Turn:
    """Return a turn so long that a digest of it and its neighbours is shorter than they are."""
    return make_turn(index, "Let me look.", command=f"cat notes{index}.md", result="plain words here " * (size // 17))
