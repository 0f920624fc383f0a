"""The task of a session in one line: what people know it by, where its name is a hash."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from elision.trajectory.control_characters import escape_controls
from elision.trajectory.events import Event, HeadSet
from elision.trajectory.turn import Head

#: Characters of a task that are kept.
MAX_TASK_CHARS: Final = 300
#: Characters of a message that are searched for it.
_MAX_SEARCHED: Final = 100_000
#: Records among which the head of a log is.
_FIRST_RECORDS: Final = 4
#: Blocks that clients put before the user's own words.
_CLIENT_BLOCKS: Final = re.compile(
    r"<(system-reminder|environment_context|user_instructions|command-message)>.*?</\1>", re.DOTALL
)
#: A tag around the task, such as <pr_description>.
_OPENING_TAG: Final = re.compile(r"\A<[a-z]+[_-][a-z_-]+>\s*")


def find_task(head: Head) -> str:
    """Return the beginning of the first user message in one line, without blocks of the client; "" for none.

    Nothing in it acts on a terminal.
    """
    for message in head.messages:
        if message.role == "user":
            text = _CLIENT_BLOCKS.sub(" ", message.text[:_MAX_SEARCHED]).strip()
            line = " ".join(escape_controls(_OPENING_TAG.sub("", text, count=1)).split())
            if line:
                return line if len(line) <= MAX_TASK_CHARS else f"{line[: MAX_TASK_CHARS - 1]}…"
    return ""


def read_task(events: Iterable[Event]) -> str:
    """Return the task of a log from its first records; "" if they have none."""
    for event in islice(events, _FIRST_RECORDS):
        if isinstance(event, HeadSet):
            return find_task(event.head)
    return ""
