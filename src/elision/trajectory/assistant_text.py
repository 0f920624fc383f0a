"""What an agent wrote itself in a turn: reasoning, text and decoded arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elision.trajectory.turn import Action, Turn

#: Values nested deeper are left out: they are not written by hand.
_DEEPEST = 8


def _iterate_strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            if depth < _DEEPEST:
                yield from _iterate_strings(inner, depth + 1)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def join_argument_text(action: Action) -> str:
    """Return the decoded arguments of `action`, a value a line; unchanged if they are no JSON object."""
    decoded = action.decoded_arguments
    if decoded:
        return "\n".join(_iterate_strings(dict(decoded)))
    return action.arguments


def join_assistant_text(turn: Turn) -> str:
    """Return everything that the agent wrote in `turn`, decoded; implicit actions are in the text already."""
    calls = (join_argument_text(action) for action in turn.actions if not action.implicit)
    return "\n".join(filter(None, (turn.reasoning, turn.text, *calls)))
