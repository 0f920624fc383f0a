"""Whether an agent's edits must match the text of a file exactly, so that it needs what it read word for word."""

from __future__ import annotations

import json
import re
from typing import Final

from elision.trajectory.turn import Head, Turn

#: What edit tools call the text that they replace: `old_string`, `old_str`, `oldText`.
_OLD_TEXT: Final = re.compile(r'"old_?(?:string|str|text|content)"\s*:', re.IGNORECASE)
#: Tools whose argument has lines of the file around the change.
_PATCH_TOOL: Final = re.compile(r"apply_?patch", re.IGNORECASE)


def has_exact_edit_tool(head: Head) -> bool:
    """Return whether the head defines an edit tool that must match the file's text."""
    text = json.dumps(list(head.tools), default=dict)
    return bool(_OLD_TEXT.search(text) or _PATCH_TOOL.search(text))


def edits_exactly(turn: Turn) -> bool:
    """Return whether a call of `turn` edits in this way."""
    return any(_PATCH_TOOL.search(action.name) or _OLD_TEXT.search(action.arguments) for action in turn.actions)
