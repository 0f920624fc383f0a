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
#: What Claude Code, opencode, Open WebUI, Gemini CLI and others ask beside their tasks. Who asks for the title of
#: something else than a conversation has it as the task.
_TALK: Final = r"(?:conversation|chat|session|thread|transcript|dialog(?:ue)?)"
_SIDE: Final = re.compile(
    r"\b(?:generate|create|write|suggest|provide|produce|extract|respond with)"
    rf"\b.{{0,60}}\b(?:title|tags|headline)\b.{{0,80}}\b{_TALK}"
    rf"|\b{_TALK}\b.{{0,80}}\b(?:extract|generate|create|write)\b.{{0,60}}\b(?:title|tags|headline)\b"
    r"|\btitle generator"
    rf"|\bsummari[sz](?:e|es|ing)\b.{{0,40}}\b{_TALK}"
    rf"|\bsummary of (?:the|this|our) {_TALK}"
    r"|new conversation topic"
    r"|\b(?:classify|categori[sz]e)\b.{0,60}\b(?:message|request|prompt|query|question|input)\b"
    r"|\bwho should (?:logically )?speak next",
    re.IGNORECASE,
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

    What is asked is read in the instructions, which are the system prompt and the first message of the user.
    """
    if head.tools or len(turns) > _MOST_TURNS or any(turn.actions for turn in turns):
        return False
    texts = (message.text for message in head.messages)
    return any(_SIDE.search(text[:_SEARCHED]) or _SIDE.search(text[-_SEARCHED:]) for text in texts)
