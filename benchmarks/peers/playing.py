"""What the peers' scripts share: a session in, the seconds of each call out, as JSON. The standard library alone.

These scripts run in environments of their own, where nothing of Elision is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

#: Tokens at which the peers begin, and tool results they keep: as near to our own settings as theirs come.
BUDGET, KEEP = 100_000, 10
#: What "the model" answers when a peer asks for a summary: no model is waited for.
SUMMARY = "The agent looked for the cause of the failing tests, read files, ran commands and made some edits."


def session() -> dict[str, Any]:
    """The session that the script was given: `head`, and `turns` as lists of messages in OpenAI's shape."""
    found: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return found


def play(turns: list[list[Any]], call: Callable[[], object], add: Callable[[Any], object]) -> list[float]:
    """Seconds of each call: before each turn `call` prepares the context, behind it the turn's messages are added."""
    seconds = []
    for turn in turns:
        start = perf_counter()
        call()
        seconds.append(perf_counter() - start)
        for message in turn:
            add(message)
    return seconds


def tell(found: dict[str, list[float]], version: str) -> None:
    """Print what was measured. found: label -> seconds of each call."""
    print(json.dumps({"version": version, "seconds": found}))
