"""Which observations may be hidden, and from which call on. Each is a fold: it is shown every turn once.

Rules per tool, argument, tag and size: they refine what any strategy may hide (design 3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from elision.errors import SpecError
from elision.trajectory.plan import Key
from elision.trajectory.trajectory import join_argument_text
from elision.trajectory.turn import Observation, Turn


class Selector(Protocol):
    """One session's memory of what a strategy may hide."""

    def find_due_keys(self, turn: Turn) -> Iterator[tuple[int, Key]]:
        """(first call at which it may be hidden, observation), for whatever this turn settles."""
        ...


def list_keys(turn: Turn) -> Iterator[Key]:
    for position in range(1, len(turn.observations) + 1):
        yield turn.index, position


class OlderThan:
    """At call t the observations of turns i < t - window."""

    def __init__(self, window: int) -> None:
        self.window = window

    def find_due_keys(self, turn: Turn) -> Iterator[tuple[int, Key]]:
        for key in list_keys(turn):
            yield turn.index + self.window + 1, key


class AllButNewestResults:
    """All but the newest `keep` tool results, and never those of the newest turn."""

    def __init__(self, keep: int) -> None:
        self.keep_results = keep
        self.recent_keys: deque[Key] = deque()

    def find_due_keys(self, turn: Turn) -> Iterator[tuple[int, Key]]:
        self.recent_keys.extend(list_keys(turn))
        while len(self.recent_keys) > self.keep_results:
            key = self.recent_keys.popleft()
            # A result of this very turn waits until the turn is no longer the newest.
            yield turn.index + 1 + (key[0] == turn.index), key


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What holds for observations that match every pattern given.

    tool, args: glob patterns on the tool's name and on its decoded arguments. tag: a tag of the observation.
    keep:  never masked; quoted word for word when a summary covers its turn.
    after: masked after that many turns instead of the strategy's window; 1 is as soon as it is no longer the newest.
    below: never masked while smaller than that many tokens.
    verbatim: never folded, where the strategy folds repeated lines.
    """

    tool: str = "*"
    args: str = "*"
    tag: str = ""
    keep: bool = False
    after: int | None = None
    below: int = 0
    verbatim: bool = False

    def __post_init__(self) -> None:
        if self.after is not None and self.after < 1:
            raise SpecError(f"rule(after={self.after}): the newest turn is never masked; give 1 turn or more")
        if self.below < 0:
            raise SpecError(f"rule(below={self.below}): give a size in tokens, 0 or more")
        if not (self.keep or self.after or self.below or self.verbatim):
            raise SpecError("rule(...): has no effect; give keep=true, after=K, below=N or verbatim=true")

    def matches(self, turn: Turn, observation: Observation) -> bool:
        if self.tag and self.tag not in observation.tags:
            return False
        if not fnmatchcase(observation.tool, self.tool):
            return False
        if self.args == "*":
            return True
        action = turn.find_action(observation)
        return action is not None and fnmatchcase(join_argument_text(action), self.args)


#: Tags mean something without a rule (SWE-agent's own words).
TAG_RULES = (Rule(tag="keep_output", keep=True), Rule(tag="remove_output", after=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOutcome:
    """What the rules say of one observation: the strictest of all that match."""

    keep: bool = False
    after: int | None = None
    below: int = 0
    verbatim: bool = False


@dataclass(frozen=True, slots=True)
class RuleTable:
    """All rules of a strategy, tags' own included."""

    rules: tuple[Rule, ...] = ()

    def apply_rules(self, turn: Turn, observation: Observation) -> RuleOutcome:
        """Pins and `keep` win over everything; of several `after` the first given counts."""
        found = [rule for rule in (*self.rules, *TAG_RULES) if rule.matches(turn, observation)]
        return RuleOutcome(
            keep=turn.pinned or observation.pinned or any(rule.keep for rule in found),
            after=next((rule.after for rule in found if rule.after is not None), None),
            below=max((rule.below for rule in found), default=0),
            verbatim=any(rule.verbatim for rule in found),
        )
