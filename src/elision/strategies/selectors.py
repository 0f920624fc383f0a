"""What may be hidden, and from which call on: observations, which selectors choose, and old turns, by triggers.

Each is a session's own. Rules per tool, argument, tag and size refine what any strategy may hide (design 3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias

from elision.errors import SpecError
from elision.strategies.decision_context import DecisionContext
from elision.trajectory.plan import Key
from elision.trajectory.state import State
from elision.trajectory.trajectory import join_argument_text
from elision.trajectory.turn import Observation, Turn

#: Returns the tokens that the pending masking would save in turns 1 ... n.
CountSavedTokens: TypeAlias = Callable[[int], int]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A number of tokens that the user set and that is exceeded now. The strategy acts at this call, whatever the
    schedule finds.

    name:         the option that sets it.
    tokens:       its value, by our count of tokens.
    covers:       newest turns that a summary may cover, in order of preference.
    least_turns:  new turns that a summary must cover if it does not help enough; see `Policy`.
    limits_view:  whether the view itself exceeds it, so that masking helps too.
    is_strict:    whether no view may exceed it if that can be avoided, however little an act frees.
    """

    name: str
    tokens: int
    covers: tuple[int, ...]
    least_turns: int = 1
    limits_view: bool = False
    is_strict: bool = False


class SummaryTrigger(Protocol):
    """Decides from the state alone. Its work does not grow with the history."""

    def find_due_turn(self, state: State, context: DecisionContext, count_saved: CountSavedTokens) -> int:
        """Return the newest turn that a summary may cover at this call; 0 for no summary now."""
        ...

    def find_crossed_thresholds(
        self, state: State, context: DecisionContext, count_saved: CountSavedTokens
    ) -> tuple[Threshold, ...]:
        """Return the thresholds in tokens that the view, or a part of it, exceeds at this call."""
        ...

    def find_last_outside_tail(self, state: State, call: int) -> int:
        """Return the newest turn that a summary may cover at call `call`, due or not; 0 or less for none."""
        ...

    def count_calls_until(self, state: State, call: int) -> int | None:
        """Return the calls until the number of turns alone makes a summary due; None if that cannot be known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRhythm:
    """The numbers of turns by which a strategy acts.

    window: newest turns whose results stay as they are. turns: after so many since the last summary comes the next; 0
    for none. tail: the newest turns, which it leaves out. counts_tokens: whether tokens make one due as well.
    """

    window: int = 0
    turns: int = 0
    tail: int = 0
    counts_tokens: bool = False

    @property
    def wait(self) -> int:
        """How many calls after the first turn that a summary leaves out the next summary may come."""
        return max(self.turns, self.tail + 1) + 1


class GrowthTrigger:
    """Cover all but the newest `tail` turns: once `turns` follow the summary, or those to cover exceed `tokens`."""

    def __init__(self, turns: int, tail: int, tokens: int | None) -> None:
        self.turns = turns
        self.tail = tail
        self.tokens = tokens

    def find_due_turn(self, state: State, context: DecisionContext, count_saved: CountSavedTokens) -> int:
        covers = self.find_last_outside_tail(state, context.call)
        if covers <= state.covered_turns:
            return 0
        if context.call - 1 - state.covered_turns >= self.turns:
            return covers
        if self.tokens is not None and self._count_visible_tokens(state, covers) > self._count_limit(context):
            return covers
        return 0

    def find_crossed_thresholds(
        self, state: State, context: DecisionContext, count_saved: CountSavedTokens
    ) -> tuple[Threshold, ...]:
        covers = self.find_last_outside_tail(state, context.call)
        if self.tokens is None or covers <= state.covered_turns:
            return ()
        # A placeholder is cheaper than a summary: what masking can do is not a reason to summarize.
        if self._count_visible_tokens(state, covers) - count_saved(covers) <= self._count_limit(context):
            return ()
        return (Threshold(name="summarize_tokens", tokens=self._count_limit(context), covers=(covers,)),)

    def find_last_outside_tail(self, state: State, call: int) -> int:
        return call - 1 - self.tail

    def _count_limit(self, context: DecisionContext) -> int:
        assert self.tokens is not None
        return context.scale_part(self.tokens)

    def count_calls_until(self, state: State, call: int) -> int | None:
        return max(0, state.covered_turns + self.turns + 1 - call)

    def _count_visible_tokens(self, state: State, covers: int) -> int:
        # Tokens of the view, not raw ones: no masking lowers the raw ones, and every call would be due.
        start = state.track.count_tokens_before(state.turn_places[state.covered_turns + 1])
        end = state.turn_places.get(covers + 1)
        if end is None:
            return state.track.tokens - start
        return state.track.count_tokens_before(end) - start


class ViewSizeTrigger:
    """Cover old turns once the view exceeds `hard` tokens, or `soft` after more than `after` calls; see `TwoTier`."""

    def __init__(self, keep: int, soft: int, hard: int, after: int, fewest: int) -> None:
        self.keep = keep
        self.soft = soft
        self.hard = hard
        self.after = after
        self.fewest = fewest

    def find_due_turn(self, state: State, context: DecisionContext, count_saved: CountSavedTokens) -> int:
        # A placeholder is cheaper than a summary: what masking can do is not a reason to summarize.
        tokens = state.track.tokens - count_saved(len(state.turns))
        if self._find_crossed(tokens, context) is None:
            return 0
        covers = self.find_last_outside_tail(state, context.call)
        if covers - state.covered_turns >= self.fewest:
            return covers
        return 0

    def find_crossed_thresholds(
        self, state: State, context: DecisionContext, count_saved: CountSavedTokens
    ) -> tuple[Threshold, ...]:
        # What the view exceeds once everything pending is masked comes first: masking alone does not help there.
        masked = self._find_crossed(state.track.tokens - count_saved(len(state.turns)), context)
        shown = self._find_crossed(state.track.tokens, context)
        crossed = dict.fromkeys(found for found in (masked, shown) if found is not None)
        return tuple(self._make_threshold(state, context, name, tokens) for name, tokens in crossed)

    def _make_threshold(self, state: State, context: DecisionContext, name: str, tokens: int) -> Threshold:
        covers = [self.find_last_outside_tail(state, context.call)]
        is_strict = name == "hard"
        if is_strict:
            # Turns of text alone have no results to count. A conversation full of them would grow without end.
            covers.append(context.call - 1 - self.keep)
        return Threshold(
            name=name,
            tokens=tokens,
            covers=tuple(covers),
            least_turns=self.fewest,
            limits_view=True,
            is_strict=is_strict,
        )

    def find_last_outside_tail(self, state: State, call: int) -> int:
        """Return the newest turn before the turns of the newest `keep` results."""
        left = self.keep
        for turn in reversed(state.turns):
            if turn.index <= state.covered_turns:
                break
            left -= len(turn.observations)
            if left <= 0:
                return turn.index - 1
        return 0

    def count_calls_until(self, state: State, call: int) -> int | None:
        return None

    def _find_crossed(self, tokens: int, context: DecisionContext) -> tuple[str, int] | None:
        """Return the name and the value of the threshold that a view of `tokens` exceeds."""
        hard = context.scale_view(self.hard)
        if tokens > hard:
            return "hard", hard
        soft = context.scale_view(self.soft)
        if tokens > soft and context.call - 1 > self.after:
            return "soft", soft
        return None
