"""Lines of covered results that the agent used after a summary of them was written, and that the summary lacks.

The measure is that of evidence: code-like items which the agent writes for the first time, and can only know from what
the summary replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elision.strategies.first_uses import FirstUses
from elision.summarizers.prose import ELLIPSIS, join_lines
from elision.trajectory.items import find_items, find_items_by_line
from elision.trajectory.plan import Summary, make_handle
from elision.trajectory.state import State

#: Share of a summary's limit that the lines may have.
LINES_SHARE = 0.25
#: Characters of a quoted line.
LINE_WIDTH = 200
#: Tokens of the label in front of the lines of one result.
_LABEL_TOKENS = 15


def quote_used_lines(state: State, uses: FirstUses, draft: Summary, max_tokens: int) -> list[tuple[str, str]]:
    """Return (name, lines) of the results that `draft` covers, for what the agent used since it was requested.

    Only items count that the draft lacks, and that no result after the covered turns had shown before they were used.
    What an earlier summary showed comes after the results. The lines have `LINES_SHARE` of `max_tokens` at most.
    """
    wanted = _list_missing_items(state, uses, draft)
    budget = int(LINES_SHARE * max_tokens)
    quotes: list[tuple[str, str]] = []
    for name, text in _list_sources(state, draft.covers):
        if not wanted:
            break
        lines: list[str] = []
        for line, items in _find_lines(text, wanted):
            cost = state.sizer.count(line) + 1 + (0 if lines else _LABEL_TOKENS)
            if cost <= budget:
                budget -= cost
                lines.append(line)
            # What does not fit here is too long at its next place as well.
            wanted -= items
        if lines:
            quotes.append((f"{name}, used since", "\n".join(lines)))
    return quotes


def _list_missing_items(state: State, uses: FirstUses, draft: Summary) -> set[str]:
    """Return the items that the agent used since `draft` was requested, and knew from what it covers alone."""
    shown = set(find_items(draft.block))
    by_turn = dict(uses.list_items(draft.requested_at))
    missing: set[str] = set()
    for turn in state.turns[draft.covers :]:
        missing.update(item for item in by_turn.get(turn.index, ()) if item not in shown)
        for observation in turn.observations:
            shown.update(find_items(observation.text))
    return missing


def _list_sources(state: State, covers: int) -> Iterator[tuple[str, str]]:
    """Yield name and text of what a summary of turns 1 ... `covers` replaces: the newest results first."""
    for turn in reversed(state.turns[state.covered_turns : covers]):
        for position, observation in enumerate(turn.observations, start=1):
            yield f"{make_handle((turn.index, position))} {observation.tool}".strip(), observation.text
    if state.summary is not None:
        yield f"summary of turns 1-{state.covered_turns}", state.summary.block


def _find_lines(text: str, wanted: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield lines of `text` that together show the items of `wanted`, each cut around the items that only it shows."""
    # Most texts have none of them, and a substring is found far faster than items.
    left = {item for item in wanted if item in text}
    for _, line, items in find_items_by_line(text, left):
        found = left.intersection(items)
        # A number at the beginning of a line may be its place in a file.
        found -= {item for item in found if item.isdigit() and line.lstrip().startswith(item)}
        if found:
            left -= found
            yield _cut_around(line, min(found, key=line.find)), found


def _cut_around(line: str, item: str) -> str:
    """Return `line` on one line, with `item` in it, in about `LINE_WIDTH` characters."""
    flat = join_lines(line)
    if len(flat) <= LINE_WIDTH:
        return flat
    start = max(0, flat.find(item) - LINE_WIDTH // 3)
    end = start + LINE_WIDTH
    return (ELLIPSIS if start else "") + flat[start:end].strip() + (ELLIPSIS if end < len(flat) else "")
