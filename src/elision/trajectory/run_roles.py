"""Who made a run: the agent itself, an agent that it started, or a side call, which is no step of a task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from elision.trajectory.turn import Head, Turn

#: What agents themselves ask for, what agents ask for that they started, and what is no step of a task: compactions,
#: titles, summaries, classifications.
Role: TypeAlias = Literal["main", "sub-agent", "side"]
ROLES: Final[tuple[Role, ...]] = ("main", "sub-agent", "side")
#: The same as a client says it; "" where it says nothing.
SaidRole: TypeAlias = Literal["main", "sub-agent", "side", ""]
ROLE_TITLES: Final[Mapping[Role, str]] = {"main": "main agents", "sub-agent": "sub-agents", "side": "side calls"}
#: Answers of a side call: one, or a second try.
_MOST_TURNS: Final = 2
#: Characters of instructions that are searched, from either end.
_SEARCHED: Final = 2_000
#: Characters of the longest answer that is a title, tags or a class. Whoever asks for an article gets more.
_LONGEST_LABEL: Final = 400
#: What Claude Code, opencode, Open WebUI, Gemini CLI and others ask beside their tasks: a label for something.
_LABEL: Final = re.compile(
    r"(?:generate|create|write|suggest|provide|produce|extract|respond with)\b.{0,60}\b(?:title|tags|headline)\b"
    r"|title generator"
    r"|\b(?:classify|categori[sz]e)\b.{0,60}\b(?:message|request|prompt|query|question|input)\b",
    re.IGNORECASE,
)
#: What they ask about a conversation as a whole.
_REVIEW: Final = re.compile(
    r"\bsummari[sz](?:e|es|ing)\b.{0,40}\b(?:conversation|chat|session|thread|transcript)"
    r"|\bsummary of (?:the|this|our) (?:conversation|chat|session)"
    r"|new conversation topic"
    r"|\bwho should (?:logically )?speak next",
    re.IGNORECASE,
)
#: How a user's message shows that it is about a conversation, which it quotes or which precedes it.
_QUOTED: Final = re.compile(
    r"\b(?:this|following) (?:\w+ )?(?:conversation|chat|session|thread|transcript)\b|\bfor the conversation\b"
    r"|\bchat history\b|\bconversation (?:so far|above|below|history)\b"
    r"|</?(?:conversation|chat_history|transcript|session)>"
    r"|^(?:user|human|assistant): ",
    re.IGNORECASE | re.MULTILINE,
)


def find_run_role(head: Head, turns: Sequence[Turn], *, is_started: bool, said: SaidRole = "") -> Role:
    """Return the role of a run. is_started: whether another run started it. said: its role as its client says it."""
    if said:
        return said
    if is_side_call(head, turns):
        return "side"
    return "sub-agent" if is_started else "main"


def is_side_call(head: Head, turns: Sequence[Turn]) -> bool:
    """Return whether a run only asks for a title, a summary or a class: no tools, no calls, at most two answers.

    What is asked is read in the instructions, which are the system prompt and the first message of the user. A person
    asks for titles too, so a label that a user's message asks for must be one of a conversation. A person also goes on
    talking, and gets long answers.
    """
    if head.tools or len(turns) > _MOST_TURNS or any(turn.actions or turn.interjections for turn in turns):
        return False
    has_short_answers = all(len(turn.text) <= _LONGEST_LABEL for turn in turns)
    for message in head.messages:
        ends = (message.text[:_SEARCHED], message.text[-_SEARCHED:])
        if any(map(_REVIEW.search, ends)):
            return True
        is_about_conversation = message.role != "user" or any(map(_QUOTED.search, ends))
        if has_short_answers and is_about_conversation and any(map(_LABEL.search, ends)):
            return True
    return False
