"""Let the server clear old results up to our frontier: Anthropic's `clear_tool_uses_20250919`.

The messages stay as they were first sent, so thinking stays valid. The server keeps the newest `keep` tool uses and
clears every older result. A fixed `keep` rolls: each new call clears one more result and rewrites the cached prefix
from there on. So `keep` is set anew on each request to (all tool uses - those cleared so far), which holds the cut
still until we move it. Nothing forbids it: `keep` is a whole number, and the service keeps no state. It is not
documented as a recipe either, and was not tried against a live account; see docs/reference/providers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elision.providers.shared.json_reading import count_in, mapping_in, mappings_in, text_in
from elision.trajectory.plan import Edit, Key, lower_end
from elision.trajectory.turn import Turn

#: `anthropic-beta`, without which `context_management` is an unknown field.
CLEARING_BETA: Final = "context-management-2025-06-27"
CLEARING_EDIT: Final = "clear_tool_uses_20250919"
#: Prompt tokens from which the server clears. No minimum is documented; this one was seen accepted (September 2026).
TRIGGER_TOKENS: Final = 1_000


def list_tool_uses(turns: Iterable[Turn]) -> list[Key | None]:
    """Return the observation that answers each tool use, oldest first as the server counts them; None if none does.

    Parallel calls may be answered in another order than they were made in.
    """
    found: list[Key | None] = []
    for turn in turns:
        waiting: dict[str, list[Key]] = {}
        for position, observation in enumerate(turn.observations, start=1):
            if observation.role == "tool":
                waiting.setdefault(observation.action_id, []).append((turn.index, position))
        for action in turn.actions:
            if action.implicit:
                continue
            keys = waiting.get(action.id)
            found.append(keys.pop(0) if keys else None)
    return found


def count_uses_to_clear(is_masked: Iterable[bool | None]) -> int:
    """Return how many of the oldest tool uses the server shall clear.

    is_masked: for every tool use of the history, oldest first: True if our decision hides its result, False if it may
        not, None if the result is only too short to hide. Such a result is cleared with what is hidden after it: agents
        begin by writing files and making folders, and one short result held back all the rest.
    """
    count = 0
    for number, hides in enumerate(is_masked, start=1):
        if hides is False:
            break
        if hides:
            count = number
    return count


def keep_references(cleared: int, uses: Sequence[Key | None], folds: Iterable[Edit]) -> int:
    """Return how many of the oldest `uses` may be cleared, at most `cleared`: none that a result after them refers to.

    folds: results as they are sent, with the results that they refer to.
    """
    places = {key: place for place, key in enumerate(uses) if key is not None}
    spans = []
    for fold in folds:
        sources = [places[run.source] for run in fold.runs if run.source in places]
        if fold.key in places and sources:
            spans.append((min(sources), places[fold.key]))
    return lower_end(cleared, spans)


def build_clearing_edit(*, uses: int, cleared: int) -> dict[str, Any] | None:
    """Return the edit that clears the oldest `cleared` of `uses` tool uses; None if there is nothing to clear."""
    if cleared <= 0:
        return None
    return {
        "type": CLEARING_EDIT,
        "trigger": {"type": "input_tokens", "value": TRIGGER_TOKENS},
        "keep": {"type": "tool_uses", "value": max(uses - cleared, 0)},
    }


def add_clearing_edit(request: Mapping[str, Any], clearing: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Add `clearing` to the edits of `request`; None if it cannot be asked for, or there is nothing to ask.

    A client that already lets the server clear tool uses keeps its own edit; on-demand compaction allows no other edit.
    Edits of thinking must come first, so ours is last. The request is sent under `CLEARING_BETA`.
    """
    managing = mapping_in(request.get("context_management"))
    edits = mappings_in(managing.get("edits"))
    if clearing is None or request.get("compaction") or any(each.get("type") == CLEARING_EDIT for each in edits):
        return None
    return {**request, "context_management": {**managing, "edits": [*edits, dict(clearing)]}}


def has_own_edits(body_fields: Mapping[str, Any]) -> bool:
    """Return whether the client has the provider clear tool results, or compact the history.

    body_fields: fields of the request beside its messages. OpenAI's `context_management` is a list of edits, and that
    of Anthropic has one.
    """
    if body_fields.get("compaction"):
        return True
    managing = body_fields.get("context_management")
    edits = managing.get("edits") if isinstance(managing, Mapping) else managing
    if not isinstance(edits, list):
        return False
    kinds = [text_in(each.get("type")) for each in mappings_in(edits)]
    return any(kind.startswith(("clear_tool_uses", "compact")) for kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearingReport:
    """What the server reports that it cleared in one request: tool uses, turns of thinking, tokens of the prompt."""

    cleared_uses: int = 0
    cleared_thinking_turns: int = 0
    cleared_tokens: int = 0


def parse_clearing_report(response: Mapping[str, Any]) -> ClearingReport | None:
    """Read the `applied_edits` of a response, or of a stream's last `message_delta`; None if it has none."""
    applied = mapping_in(response.get("context_management")).get("applied_edits")
    if not isinstance(applied, list):
        return None
    edits = mappings_in(applied)
    return ClearingReport(
        cleared_uses=sum(count_in(each.get("cleared_tool_uses")) for each in edits),
        cleared_thinking_turns=sum(count_in(each.get("cleared_thinking_turns")) for each in edits),
        cleared_tokens=sum(count_in(each.get("cleared_input_tokens")) for each in edits),
    )
