"""Head and tail of a very long result; what lies between them is recalled by its handle."""

from __future__ import annotations

from collections.abc import Callable

from elision.strategies.birth_rules.left_out_lines import write_note


def keep_ends(text: str, limit: int, count_tokens: Callable[[str], int], handle: str = "") -> str:
    """Return head and tail of a text of more than `limit` tokens, together about as many, cut between lines.

    A line that is longer than its share is cut within.
    """
    tokens = count_tokens(text)
    if tokens <= limit:
        return text
    share = len(text) * limit // tokens // 2
    head_end = text.rfind("\n", share // 2, share) + 1 or share
    last_start = len(text) - share
    tail_start = text.find("\n", last_start, len(text) - share // 2) + 1 or last_start
    head, left_out, tail = text[:head_end], text[head_end:tail_start], text[tail_start:]
    if head.endswith("\n") and left_out.endswith("\n"):
        what = f"{left_out.count(chr(10)):,} lines"
    else:
        what = f"{len(left_out):,} characters"
    return f"{head.removesuffix(chr(10))}\n{write_note(what, handle)}\n{tail}"
