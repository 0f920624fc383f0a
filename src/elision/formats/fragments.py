"""Whether consecutive assistant messages are fragments of one response, or a response each.

Recorders write a response in several messages: a message for each block, an empty one where they left a block out. A
request holds what is new since the one before, so a second response without any message between is the exception: it
needs a sign. Counted as a call each, 179 calls of a recorded run were 407, at twice the price.
"""

from __future__ import annotations

from dataclasses import dataclass

from elision.trajectory.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """What an assistant message records of the response that it belongs to; "" or None where it records nothing.

    id:       of the response.
    model:    that answered.
    speaker:  which of several agents.
    usage:    of the whole response; recorders repeat it with each fragment, the output perhaps not final.
    is_final: the response stopped here, and the model was called again to continue it.
    """

    id: str = ""
    model: str = ""
    speaker: str = ""
    usage: Usage | None = None
    is_final: bool = False


def is_same_response(earlier: Fragment, later: Fragment, *, is_adjacent: bool) -> bool:
    """Return whether two assistant messages are one response. is_adjacent: no result or message comes between."""
    if earlier.id and later.id:
        return earlier.id == later.id
    if not is_adjacent or earlier.is_final or earlier.speaker != later.speaker:
        return False
    if earlier.model and later.model and earlier.model != later.model:
        return False
    return (
        earlier.usage is None
        or later.usage is None
        or _list_prompt_counts(earlier.usage) == _list_prompt_counts(later.usage)
    )


def _list_prompt_counts(usage: Usage) -> tuple[int, int, int]:
    """Return the counts of what was sent: a second request would be longer by the first response."""
    return usage.input, usage.cache_read, usage.cache_write
