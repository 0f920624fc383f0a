"""Trimming at birth: new results without what rules leave out, before any request holds them."""

from __future__ import annotations

from collections.abc import Callable

from elision.strategies.birth_rules import trim_at_birth
from elision.strategies.file_reads import find_file_read
from elision.strategies.rules import Rule, RuleOutcome, RuleTable
from elision.trajectory.assistant_text import join_argument_text
from elision.trajectory.content import Text
from elision.trajectory.encodable import make_encodable
from elision.trajectory.plan import Trim, make_handle
from elision.trajectory.recall_names import RECALL_COMMAND, reads_handles
from elision.trajectory.state import State
from elision.trajectory.tokens import make_counter
from elision.trajectory.turn import Observation, Turn


class Trimming:
    """One session's trims. sent_turns: those that a request held already; their results stay as they are."""

    def __init__(self, rules: tuple[Rule, ...], counter: str) -> None:
        self.sent_turns = 0
        self._rules = RuleTable(rules)
        self._can_trim = any(rule.can_trim for rule in rules)
        self._count = make_counter(counter).count

    def plan_trims(self, state: State, first_turn: int, *, names_handle: bool) -> tuple[Trim, ...]:
        """Return the new results that are shortened, from turn `first_turn` on.

        names_handle: whether what is left out can be recalled.
        """
        if not self._can_trim:
            return ()
        trims = []
        for turn in state.turns[max(self.sent_turns, first_turn - 1) :]:
            for position, observation in enumerate(turn.observations, start=1):
                key = (turn.index, position)
                ruling = self._rules.apply_rules(turn, observation)
                text = trim_result(ruling, turn, observation, self._count, make_handle(key) if names_handle else "")
                if text is not None:
                    trims.append(Trim(key, text))
        return tuple(trims)


def trim_result(
    ruling: RuleOutcome, turn: Turn, observation: Observation, count_tokens: Callable[[str], int], handle: str
) -> str | None:
    """Return what `ruling` shows of a new result; None for all of it.

    Of a file that was read nothing is left out but the middle: it may be a report itself, or edited next. Without a
    handle the middle stays too, since it could not be recalled. What was recalled is whole.
    """
    if ruling.keep or ruling.verbatim or not (ruling.trims or ruling.ends) or not _is_plain_text(observation):
        return None
    action = turn.find_action(observation)
    asked = join_argument_text(action) if action is not None else ""
    if reads_handles(observation.tool) or RECALL_COMMAND in asked:
        return None
    is_read = action is not None and find_file_read(action) is not None
    return trim_at_birth(
        observation.text,
        () if is_read else ruling.trims,
        count_tokens,
        ends=ruling.ends if handle else 0,
        handle=handle,
        asked=asked,
    )


def _is_plain_text(observation: Observation) -> bool:
    text = observation.text
    return all(isinstance(part, Text) for part in observation.content) and make_encodable(text) == text
