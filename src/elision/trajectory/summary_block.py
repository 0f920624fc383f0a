"""The message that follows the task in place of covered turns: a record, marked as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elision.trajectory.constraints import Constraint, choose_current_constraints, list_missing_constraints
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Message, Turn

#: How the label begins.
_LABEL_START = "[Record of turns 1-"
#: Above the constraints of the user.
_CONSTRAINTS_LABEL = "[Constraints that the user stated after these turns, word for word]"


def remove_block_label(block: str) -> str:
    """Return a block's text without its label: for a place where something else says that it is a record."""
    label, _, rest = block.partition("\n\n")
    if label.startswith(_LABEL_START):
        return rest
    return block


def format_summary_block(
    text: str,
    covers: int,
    quotes: Iterable[tuple[str, str]],
    older: Iterable[str],
    constraints: Sequence[Constraint] = (),
) -> str:
    """The block's exact text.

    text: the summary. covers: turns 1 ... covers. quotes: (name, text) of what is kept word for word. older: words of
    the user beyond `keep_user_tokens`, oldest first. constraints: of the user, which nothing else in the view has.
    """
    parts = [
        f"{_LABEL_START}{covers} of this conversation, condensed. It is a record of what was done, "
        "not a message from the user and not a new request.]",
        text.strip(),
    ]
    if constraints:
        parts.append("\n".join([_CONSTRAINTS_LABEL, *map(format_constraint, constraints)]))
    parts += [f"[User message of that time] {words}" for words in older]
    parts += [f"[Kept word for word: {name}]\n{words}" for name, words in quotes]
    return "\n\n".join(parts)


def format_constraint(constraint: Constraint) -> str:
    return f"- [{constraint.turn}] {constraint.text}"


def quote_user_words(
    dropped: Sequence[Message], constraints: Sequence[Constraint], text: str, limit: int, sizer: Sizer
) -> tuple[list[Constraint], list[str]]:
    """Return the constraints to restate, and the older words to quote.

    dropped: messages that leave the view, oldest first. constraints: those in them. text: the summary. limit: tokens of
    the older words; the summary may have as many, and what it leaves free serves constraints as well. They come before
    other words. Those that the summary has word for word are not restated, and none is where all are quoted anyway.
    """
    current = list_missing_constraints(choose_current_constraints(constraints), text)
    older = quote_older_words(dropped, limit, sizer)
    if not list_missing_constraints(current, "\n".join(older)):
        return [], older
    restated, tokens = _fit_constraints(current, limit + max(0, limit - sizer.count(text)), sizer)
    return restated, quote_older_words(dropped, limit - tokens, sizer)


def _fit_constraints(constraints: Sequence[Constraint], limit: int, sizer: Sizer) -> tuple[list[Constraint], int]:
    """Return as many of `constraints` as fit `limit` tokens, the newest first, in their order; and their tokens."""
    chosen: list[Constraint] = []
    used = FRAME_TOKENS
    for constraint in reversed(constraints):
        tokens = sizer.count(format_constraint(constraint)) + 1
        if used + tokens <= limit:
            used += tokens
            chosen.append(constraint)
    if not chosen:
        return [], 0
    return chosen[::-1], used


def quote_older_words(messages: Sequence[Message], limit: int, sizer: Sizer) -> list[str]:
    """What is quoted of `messages` (oldest first) in `limit` tokens: the newest first, each cut head and tail.

    The rest is up to the summary, whose writer has seen every word.
    """
    quoted: list[str] = []
    for message in reversed(messages):
        words = _cut_text(message.text)
        limit -= FRAME_TOKENS + sizer.count(words)
        if limit < 0:
            break
        quoted.append(words)
    return quoted[::-1]


#: Tokens around one quoted message.
FRAME_TOKENS = 10


def _cut_text(text: str, reach: int = 400) -> str:
    if len(text) <= 2 * reach:
        return text
    return f"{text[:reach]} [...] {text[-reach:]}"


def choose_kept_interjections(turns: Sequence[Turn], sizes: Sequence[int], limit: int) -> tuple[int, ...]:
    """Turns whose interjections stay word for word: the newest first, as many as fit into `limit` tokens; in order.

    Pinned ones stay in any case. sizes: tokens of the interjections of each of `turns`.
    """
    kept: list[int] = []
    full = False
    for turn, size in zip(reversed(turns), reversed(sizes), strict=True):
        pinned = any(message.pinned for message in turn.interjections)
        full = full or (size > limit and not pinned)
        if turn.interjections and (pinned or not full):
            limit -= size
            kept.append(turn.index)
    return tuple(reversed(kept))
