"""What may be masked now: every observation that became due, with the placeholder that it would get.

A fold over the turns and decisions of one session, as its policy is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import TypeAlias

from elision.strategies.fold_ledger import FoldLedger
from elision.strategies.gist import KnownIdentifiers
from elision.strategies.placeholder import Placeholders
from elision.strategies.selectors import Rule, RuleOutcome, RuleTable, Selector
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import Edit, Key
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Head, Turn

#: How placeholders are written -> result and call -> the placeholder that the result gets at that call.
PlaceholderTexts: TypeAlias = dict[Placeholders, dict[tuple[Key, int], str]]


@dataclass(frozen=True, slots=True)
class MaskCandidate:
    """An observation that may be replaced by `text` from call `since_call` on, and the tokens that saves."""

    key: Key
    text: str
    saved_tokens: int
    since_call: int


class MaskCandidates:
    """The candidates of one session.

    pending:      what may be masked now, by key. first_pending: the first in the view.
    protected:    observations that a rule keeps. not_shortened: those that are not longer than their placeholder.
    hidden_tokens: raw tokens of what is masked.
    early:        candidates of this pass alone, which is under pressure and does not wait until they are due.
    waiting:      what is so short where it is folded that masking it saves nothing; it is masked with its source.
    """

    def __init__(
        self,
        placeholders: Placeholders,
        selector: Selector | None,
        rules: tuple[Rule, ...],
        counter: str,
        ledger: FoldLedger,
    ) -> None:
        """Begin without a turn. selector: of this session alone. counter: of tokens, for the sizes that decide.

        ledger: the folds that rely on what is masked.
        """
        self.placeholders = placeholders
        self.pending: dict[Key, MaskCandidate] = {}
        self.waiting: dict[Key, MaskCandidate] = {}
        self.early: set[Key] = set()
        self.first_pending: Key | None = None
        self.protected: list[Key] = []
        self.not_shortened: set[Key] = set()
        self.hidden_tokens = 0
        self._saved_tokens = 0
        self._ledger = ledger
        self._selector = selector
        self._rules = RuleTable(rules)
        self._text_sizer = Sizer(make_counter(counter))
        self._known = KnownIdentifiers()
        self._identified_turns = 0
        self._learned_call = 0
        self._rulings: dict[Key, RuleOutcome] = {}
        self._due_keys: dict[int, list[Key]] = defaultdict(list)
        self._settled_keys: set[Key] = set()
        self._open_keys: list[Key] = []
        self._first_open = 0
        self._shared_texts: dict[tuple[Key, int], str] | None = None

    def share_texts(self, texts: PlaceholderTexts) -> None:
        """Take placeholders from `texts`, and leave new ones there.

        texts: of sessions with the same head and turns, none of which is ever amended. What a placeholder says of a
        result follows from those and the call.
        """
        self._shared_texts = texts.setdefault(self.placeholders, {})

    # -- the fold ------------------------------------------------------------------------------------------------

    def set_head(self, head: Head) -> None:
        if self.placeholders.writes_gists:
            self._known.add_head(head)

    def add_turn(self, turn: Turn) -> list[Key]:
        """Take note when each observation of `turn` becomes due. Return those that a rule keeps."""
        kept: list[Key] = []
        for position, observation in enumerate(turn.observations, start=1):
            key = (turn.index, position)
            ruling = self._rules.apply_rules(turn, observation)
            self._rulings[key] = ruling
            if ruling.keep:
                kept.append(key)
                continue
            self._open_keys.append(key)
            if ruling.after is not None:
                self._due_keys[turn.index + ruling.after + 1].append(key)
        self.protected += kept
        self._settled_keys.update(kept)
        if self._selector is not None:
            for call, key in self._selector.find_due_keys(turn):
                # A rule's `after` replaces the strategy's own notion of age.
                if not self._rulings[key].after:
                    self._due_keys[max(call, turn.index + 1)].append(key)
        return kept

    def replace_user_words(self, turn: Turn) -> None:
        """Take note that the user's words after the newest turn are now those of `turn`."""
        if self._identified_turns == turn.index:
            # They are read when they are needed. What is known must not depend on when that was.
            self._known.replace_newest_words(turn)

    def record_decision(self, state: State, event: PassDecided) -> None:
        """Drop the candidates that `event`, which is in `state` already, has masked or covered."""
        masks = event.masks
        due = self.pending.keys() | self.waiting.keys()
        masked_early = [mask.key for mask in masks if mask.key in self.early or mask.key not in due]
        for mask in masks:
            self._drop(mask.key)
            self._settled_keys.add(mask.key)
            self.hidden_tokens += state.count_own_tokens(mask.key)
        if event.summary is not None:
            self.drop_covered(state, event.summary.covers)
        elif masks:
            self.first_pending = min(self.pending, default=None)
        self.drop_early()
        if masked_early:
            self._settle_short_until(state, max(masked_early), event.call)

    def drop_covered(self, state: State, covers: int) -> None:
        """Drop the candidates of turns 1 ... `covers`, which no view shows any more."""
        for key in [key for key in (*self.pending, *self.waiting) if key[0] <= covers]:
            self._drop(key)
        self.hidden_tokens = sum(map(state.count_own_tokens, state.hidden))
        self.first_pending = min(self.pending, default=None)

    def find_stable_length(self, state: State) -> int | None:
        """Return the number of segments before the first observation that a later pass may rewrite; None for none."""
        while self._first_open < len(self._open_keys):
            key = self._open_keys[self._first_open]
            if key not in self._settled_keys and key[0] > state.covered_turns:
                return state.observation_places[key]
            self._first_open += 1
        return None

    def collect_due(self, state: State, call: int) -> None:
        """Add the candidates that are due by call `call`."""
        # Of a pass that was broken off. No log has it, and another process would not have what it left.
        self.drop_early()
        # Also what became due at calls that were not made here: an adopted history has turns without calls.
        for due in range(self._learned_call + 1, call + 1):
            for key in self._due_keys.pop(due, ()):
                self.add_candidate(state, key, due)
        self._learned_call = max(self._learned_call, call)

    def add_candidate(self, state: State, key: Key, call: int) -> None:
        """Make `key` a candidate from call `call` on if masking is allowed and saves tokens."""
        if not self._may_become_candidate(state, key):
            return
        text = self._write_shorter(state, key, call)
        if text is None:
            self._settle_short(state, key)
        else:
            self._add(state, key, text, call)

    def add_early_candidate(self, state: State, key: Key, call: int) -> None:
        """Make `key` a candidate of this pass, before it is due, if masking is allowed and saves tokens.

        Nothing of it outlasts the pass but the decision that is recorded.
        """
        if not self._may_become_candidate(state, key):
            return
        text = self._write_shorter(state, key, call)
        if text is not None:
            self.early.add(key)
            self._add(state, key, text, call)

    def _may_become_candidate(self, state: State, key: Key) -> bool:
        is_known = key in self._settled_keys or key in self.pending or key in self.waiting
        return not is_known and key[0] > state.covered_turns

    def _write_shorter(self, state: State, key: Key, call: int) -> str | None:
        """Return the placeholder of `key`; None where a rule keeps what is so small, or it would not be shorter."""
        text = None if self._shared_texts is None else self._shared_texts.get((key, call))
        if text is None:
            observation = state.find_observation(key)
            turn = state.turns[key[0] - 1]
            text = self.placeholders.write_placeholder(key, turn, observation, self._known_before(state, call))
            if self._shared_texts is not None:
                self._shared_texts[key, call] = text
        size = self._count_shown(state, key)
        if size < self._rulings[key].below or size <= self._text_sizer.count_text(text):
            return None
        return text

    def _count_shown(self, state: State, key: Key) -> int:
        """Return the size of `key` where nothing of it is folded.

        It is in o200k tokens whatever the model, so that the counter does not change what is masked (design 5).
        """
        return self._text_sizer.count_observation(state.find_observation(key))

    def _settle_short(self, state: State, key: Key) -> None:
        """Take note that `key` is too short to be masked, now and later."""
        self._settled_keys.add(key)
        if self._count_shown(state, key) >= self._rulings[key].below:
            self.not_shortened.add(key)

    def _settle_short_until(self, state: State, last: Key, call: int) -> None:
        """Settle what was too short for call `call`, whose pass masked results up to `last` before they were due.

        It follows from the recorded decision, whether the pass was made here or not.
        """
        for place in range(self._first_open, len(self._open_keys)):
            key = self._open_keys[place]
            if key > last:
                return
            if self._may_become_candidate(state, key) and self._write_shorter(state, key, call) is None:
                self._settle_short(state, key)

    def measure_again(self, state: State, keys: Iterable[Key]) -> None:
        """Note that those of `keys` that may be masked are shown in another way, so masking saves something else."""
        for key in keys:
            found = self.pending.get(key) or self.waiting.get(key)
            if found is not None:
                self._drop(key)
                self._add(state, key, found.text, found.since_call)

    def _add(self, state: State, key: Key, text: str, call: int) -> None:
        saved_tokens = state.find_segment(key).tokens - state.sizer.count_text(text)
        candidate = MaskCandidate(key, text, saved_tokens, call)
        if candidate.saved_tokens <= 0 and state.find_fold(key) is not None:
            self.waiting[key] = candidate
            self._ledger.set_mask_tokens(key, -candidate.saved_tokens)
            return
        self.pending[key] = candidate
        self._saved_tokens += candidate.saved_tokens
        self._ledger.set_leaving(key, leaves=True)
        if self.first_pending is None:
            self.first_pending = key
        else:
            self.first_pending = min(self.first_pending, key)

    def drop_early(self, but: Set[Key] = frozenset()) -> None:
        """Drop the candidates of this pass alone, save those of `but`; a later pass may add them again."""
        dropped = self.early - but
        if not dropped:
            return
        for key in dropped:
            self._drop(key)
        self.early -= dropped
        self.first_pending = min(self.pending, default=None)

    def _drop(self, key: Key) -> None:
        candidate = self.pending.pop(key, None)
        if candidate is not None:
            self._saved_tokens -= candidate.saved_tokens
            self._ledger.set_leaving(key, leaves=False)
        if self.waiting.pop(key, None) is not None:
            self._ledger.set_mask_tokens(key, None)

    def count_ahead_characters(self, state: State) -> int:
        """Return about how many characters `look_ahead` reads."""
        due = self._due_keys.get(len(state.turns) + 2, ())
        read = [state.find_observation(key) for key in due if self._may_become_candidate(state, key)]
        if read and self.placeholders.writes_gists:
            for turn in state.turns[self._identified_turns :]:
                read += turn.observations
        return sum(len(observation.text) for observation in read)

    def look_ahead(self, state: State) -> Iterator[None]:
        """Write the placeholders that the next call needs, one a step, with what is known by now.

        The call writes them again, since its turn may add to what is known; what it looks up is in caches then.
        """
        for key in list(self._due_keys.get(len(state.turns) + 2, ())):
            if self._may_become_candidate(state, key):
                known = self._known_before(state, len(state.turns) + 1)
                self.placeholders.write_placeholder(key, state.turns[key[0] - 1], state.find_observation(key), known)
                yield

    def _known_before(self, state: State, call: int) -> KnownIdentifiers:
        """Return the identifiers known before call `call`. Calls ascend; nothing is read until something is masked.

        Without gists nothing is read at all.
        """
        if not self.placeholders.writes_gists:
            return self._known
        while self._identified_turns < min(call - 1, len(state.turns)):
            self._known.add_turn(state.turns[self._identified_turns])
            self._identified_turns += 1
        return self._known

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def pending_tokens(self) -> int:
        """What masking everything pending saves, less what is unfolded then."""
        return self._saved_tokens - self._ledger.leaving_tokens

    def make_masks(self, keys: Iterable[Key]) -> tuple[Edit, ...]:
        """Return the candidates of `keys` as masks, in the order of the view."""
        found = {**self.waiting, **self.pending}
        return tuple(Edit(key, "mask", found[key].text) for key in sorted(keys))

    def make_masks_after(self, turn: int) -> tuple[Edit, ...]:
        """Return the candidates after turn `turn` as masks, in the order of the view."""
        return self.make_masks(key for key in self.pending if key[0] > turn)

    def count_tokens_after(self, turn: int, *, covers: bool = False) -> int:
        """Return the tokens that masking all candidates after turn `turn` would save, less what is unfolded then.

        covers: whether a summary covers the turns up to that one.
        """
        if turn <= 0:
            return self.pending_tokens
        saved = sum(candidate.saved_tokens for key, candidate in self.pending.items() if key[0] > turn)
        return saved - self._ledger.measure_exposure(turn, covers=covers).estimated

    def count_tokens_within(self, turns: int) -> int:
        """Return the tokens that masking all candidates of turns 1 ... `turns` would save."""
        if turns >= self._learned_call - 1:
            return self.pending_tokens
        return sum(candidate.saved_tokens for key, candidate in self.pending.items() if key[0] <= turns)
