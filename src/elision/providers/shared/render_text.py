"""Render views as one text, for agents that send a single prompt string instead of messages.

The form is that of the published managers, to the byte:

    SYSTEM PROMPT
    TASK

    [Summary through turn 33:
    SUMMARY
    ]

    Turn 34:
    Reasoning: WHAT THE AGENT THOUGHT AND SAID
    Action: ITS CALL
    Observation: THE RESULT, OR ITS PLACEHOLDER

A further call of the same turn has lines of its own, as have messages of the user between the turns (`User: ...`). The
text is a function of the view alone. Tool definitions are left out: such an agent names its tools in the system prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from elision.providers.shared.base_renderer import describe_part
from elision.trajectory.content import Content, Text
from elision.trajectory.summary_block import remove_block_label
from elision.trajectory.turn import Action, Message, Observation, Turn
from elision.trajectory.view import Segment

#: Segments that belong to the request and not to the conversation, or that nobody recorded.
_NOT_SHOWN: Final = ("hidden", "tools", "recall")


def render_text(segments: Iterable[Segment], covers: int = 0) -> str:
    """Return `segments`, those of a view in order, as one text. covers: the newest turn that its summary covers."""
    return "\n".join(_list_parts(segments, covers))


def format_text_summary(block: str, covers: int) -> str:
    """Return the block of a summary of turns 1 ... `covers` as the text has it."""
    return f"\n[Summary through turn {covers}:\n{remove_block_label(block)}\n]"


def _list_parts(segments: Iterable[Segment], covers: int) -> Iterator[str]:
    turn: list[Segment] = []
    for segment in segments:
        if turn and not (segment.turn == turn[0].turn and isinstance(segment.source, Observation)):
            yield _format_turn(turn)
            turn = []
        if segment.kind in _NOT_SHOWN:
            continue
        match segment.source:
            case Turn() | Observation():
                turn.append(segment)
            case Message() if segment.kind == "head":
                yield _join_content(segment.source.content)
            case Message():
                yield f"\n{segment.source.role.capitalize()}: {_join_content(segment.source.content)}\n"
            case _:
                yield format_text_summary(segment.text, covers)
    if turn:
        yield _format_turn(turn)


def _format_turn(segments: Sequence[Segment]) -> str:
    """Return a turn: the segment of its assistant message, and those of its results."""
    turn = segments[0].source
    assert isinstance(turn, Turn)
    said = [words for words in (turn.reasoning, _join_content(turn.content)) if words]
    lines = [f"Turn {turn.index}:", "Reasoning: " + "\n".join(said)]
    results = list(segments[1:])
    for action in turn.actions:
        # An action of a text protocol is a part of what was said.
        if not action.implicit:
            lines.append(f"Action: {_format_action(action)}")
        result = _find_result(results, action)
        if result is not None:
            results.remove(result)
            lines.append(_format_result(result))
    lines += [_format_result(result) for result in results]
    return "\n" + "\n".join(lines) + "\n"


def _find_result(results: Sequence[Segment], action: Action) -> Segment | None:
    """Return the first of `results` that answers `action`."""
    for result in results:
        if isinstance(result.source, Observation) and result.source.action_id == action.id:
            return result
    return None


def _format_action(action: Action) -> str:
    """Return a call: the bare text where it was given as one, else the tool's name and its arguments as JSON."""
    text = action.given_text
    return f"{action.name} {action.arguments}" if text is None else text


def _format_result(segment: Segment) -> str:
    text = segment.text
    if segment.kind == "observation" and isinstance(segment.source, Observation):
        text = _join_content(segment.source.content)
    return f"Observation: {text}"


def _join_content(parts: Content) -> str:
    """Return the text of `parts`; parts that are no text as a note, sealed reasoning as nothing."""
    texts = [part.text if isinstance(part, Text) else describe_part(part) for part in parts]
    return "\n".join(text for text in texts if text)
