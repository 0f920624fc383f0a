"""A turn as two texts, for people who read it with SQL: what was called, and what came back."""

from __future__ import annotations

import re
from typing import Final

from elision.trajectory.turn import Turn

#: Between two results of one turn.
RESULT_BREAK: Final = "\n\n"

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def join_actions(turn: Turn) -> str:
    """Return the calls of `turn`, one a line: the text that was given, or the tool and its arguments as written."""
    texts = []
    for action in turn.actions:
        text = action.given_text
        texts.append(f"{action.name} {action.arguments}".strip() if text is None else text)
    return "\n".join(texts)


def join_observations(turn: Turn) -> str:
    """Return the results of `turn`, whole, with a blank line between two."""
    return RESULT_BREAK.join(observation.text for observation in turn.observations)


def make_readable(text: str) -> str:
    """Return `text` as a database keeps it, character by character: a NUL is ␀, a lone surrogate is \ufffd."""
    return _SURROGATE.sub("\ufffd", text.replace("\0", "␀"))
