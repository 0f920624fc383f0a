"""Placeholders and folded results that a client gives back: a view of another process that became its history.

Within a process they are recognized as what was sent. In a new one the stored results take their place again, so
neither is stored as a result, and the session continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.manager.branch import SessionBranch
from elision.providers.live.client_messages import read_client_message
from elision.providers.live.pieces import LiveDialect
from elision.providers.shared.message_tags import take_tags
from elision.trajectory.content import Text
from elision.trajectory.events import PassDecided, TurnsDropped

#: Characters that a placeholder has at most, and what is in each.
_MOST: Final = 3_000
_MARK: Final = " tokens hidden"
#: What begins a line of a folded result, which may be of any length.
_REFERENCE: Final = "[same as "
#: How deep in a message a result's text is: content, block, content, block.
_DEPTH: Final = 4


def may_hold_placeholder(messages: Sequence[Any]) -> bool:
    """Return whether some text of plain `messages` may be a placeholder or a folded result. Nothing is parsed."""
    return any(isinstance(message, Mapping) and _has_mark(message, _DEPTH) for message in messages)


def restore_results(messages: Sequence[Any], dialect: LiveDialect, branch: SessionBranch) -> list[Any]:
    """Return `messages` with the results of `branch` in the place of what it showed for them."""
    results: dict[tuple[str, str], str] = {}
    turns = branch.log.state.turns
    for event in branch.log.events:
        if not isinstance(event, PassDecided | TurnsDropped):
            continue
        for each in event.edits:
            if each.kind not in ("mask", "fold"):
                continue
            turn, position = each.key
            observation = turns[turn - 1].observations[position - 1]
            # What is no text cannot be put back as it was.
            if len(observation.content) == 1 and isinstance(observation.content[0], Text):
                results[observation.action_id, each.text] = observation.text
    return [_restore_message(message, place, dialect, results) for place, message in enumerate(messages)]


def _restore_message(message: Any, place: int, dialect: LiveDialect, results: Mapping[tuple[str, str], str]) -> Any:
    if not isinstance(message, Mapping) or not _has_mark(message, _DEPTH):
        return message
    given, tags = take_tags(read_client_message(message, place, dialect))
    restored = dict(given)
    blocks = list(dialect.list_blocks(given) or ())
    for piece in dialect.split_message(given, place):
        if tags is not None or piece.result is None or len(piece.result.content) != 1:
            continue
        text = results.get((piece.result.action_id, getattr(piece.result.content[0], "text", "")))
        if text is None:
            continue
        if piece.location.blocks is None:
            return dialect.replace_result(given, text)
        block = piece.location.blocks[0]
        blocks[block] = dialect.replace_result(blocks[block], text)
        restored[dialect.content_field] = blocks
    return message if restored == given else restored


def _has_mark(value: Any, depth: int) -> bool:
    if isinstance(value, str):
        return _REFERENCE in value or (len(value) <= _MOST and value.endswith("]") and _MARK in value)
    if not depth:
        return False
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(_has_mark(each, depth - 1) for each in inner)
