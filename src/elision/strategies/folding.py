"""Folding at birth: lines of a new result that the view shows already become one line that names the place.

A source is always shown whole where a fold refers to it. A pass that hides one has what refers to it refer to another
place, or shows it whole again. What refers comes later in the prompt, so the pass rewrites it anyway. Where an agent's
edits must match what it read word for word, what it reads of files stays whole.
"""

from __future__ import annotations

import json
import posixpath
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from elision.strategies.fold_ledger import FoldLedger, SourceNames, count_back, name_turn
from elision.strategies.placeholder import Placeholders
from elision.strategies.repeated_lines import LineIndex, fold_observation
from elision.strategies.selectors import Rule, RuleTable
from elision.trajectory.events import PassDecided, TurnsDropped
from elision.trajectory.foreign_text import make_encodable
from elision.trajectory.plan import Edit, Key, make_handle
from elision.trajectory.state import State
from elision.trajectory.tokens import make_counter
from elision.trajectory.turn import Action, Head, Observation, Text, Turn

_PATH_KEYS = ("path", "file_path", "filename", "file", "notebook_path", "target_file")
_READ = re.compile(r"^(read|view|open|cat|get)([_-]?file.*)?$", re.IGNORECASE)
_EDIT = re.compile(r"edit|write|patch|replace|insert|create", re.IGNORECASE)
_SHELL = re.compile(r"bash|shell|command|terminal|execute|run", re.IGNORECASE)
_CAT = re.compile(r"^(?:cd\s+(?P<folder>\S+)\s*&&\s*)?(?P<verb>cat(?: -n)?|head|tail|nl)\s+(?P<file>[\w./~-]+)\s*$")

#: What edit tools call the text that they replace: `old_string`, `old_str`, `oldText`.
_OLD_TEXT: Final = re.compile(r'"old_?(?:string|str|text|content)"\s*:', re.IGNORECASE)
#: Tools whose argument has lines of the file around the change.
_PATCH_TOOL: Final = re.compile(r"apply_?patch", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """What a pass folds, and shows whole again; masked: observations to mask with the source that they refer to."""

    edits: tuple[Edit, ...] = ()
    masked: tuple[Key, ...] = ()


class Folding:
    """One session's folds: a fold over the same events as the state.

    ledger: what hiding their sources would add. folded_tokens: what folding left out of results as they arrived.
    """

    def __init__(
        self, placeholders: Placeholders, rules: tuple[Rule, ...], counter: str, *, folds_results: bool
    ) -> None:
        """Begin without a turn. placeholders: say whether a reference names a handle or a turn, and describe the call.

        counter: of the tokens that a run has to save. folds_results: whether new results are folded; a log may have
        folds in any case.
        """
        self.placeholders = placeholders
        self.ledger = FoldLedger()
        self.folded_tokens = 0
        self._rules = RuleTable(rules)
        self._index = LineIndex() if folds_results else None
        self._count = make_counter(counter).count
        #: How each indexed observation is shown: its fold, or None where it is whole.
        self._shown: dict[Key, Edit | None] = {}
        #: What references say of the calls of turns 1 ... `_described_turns`, and which results a text may mean. It is
        #: learned when the first reference is written.
        self._described_turns = 0
        #: The turn that was described last, and its calls: the newest one may be replaced.
        self._described: tuple[Turn, dict[Key, str]] | None = None
        self._calls: dict[Key, str] = {}
        self._alike: dict[str, list[Key]] = {}
        #: What was read -> its newest result.
        self._results: dict[FileRead, Key] = {}
        self._edits_exactly = False
        self._sent_turns = 0
        self._covered_turns = 0

    # -- deciding ------------------------------------------------------------------------------------------------

    def plan_folds(
        self,
        state: State,
        hidden: Iterable[Key],
        covers: int,
        mask_instead: Mapping[Key, object],
        fold_from: int | None,
        *,
        is_bound: bool = False,
    ) -> FoldPlan:
        """Return what a pass does that hides `hidden` and covers turns 1 ... `covers`; 0 for no new summary.

        mask_instead: observations that are masked rather than shown whole. fold_from: the first turn whose new results
        may be folded; None for none. is_bound: whether the provider clears results itself, up to the last one hidden,
        and texts that thinking is bound to stay.
        """
        gone = set(hidden)
        if covers:
            gone.update(self._list_covered(state, covers))
        edits: dict[Key, Edit] = {}
        masked: list[Key] = []
        if gone:
            if is_bound:
                self._drop_sources_with(gone)
            else:
                masked = self._spread(gone, covers, mask_instead)
            edits = self._refold_dependents(state, gone, covers, is_bound=is_bound)
        for key in self._list_new(state):
            if key not in gone and key[0] > covers:
                may_fold = fold_from is not None and key[0] >= fold_from and self._may_fold(state, key)
                fold = self._find_fold(state, key, is_bound=is_bound) if may_fold else None
                self._show(state, key, fold)
                if fold is not None:
                    edits[key] = fold
        return FoldPlan(tuple(edits[key] for key in sorted(edits)), tuple(sorted(masked)))

    def plan_dropped(self, state: State, covers: int) -> FoldPlan:
        """Return what changes where the client drops turns 1 ... `covers`, and results refer to lines of them."""
        gone = set(self._list_covered(state, covers))
        edits = self._refold_dependents(state, gone, covers, is_bound=False)
        return FoldPlan(tuple(edits[key] for key in sorted(edits)))

    def _refold_dependents(
        self, state: State, gone: Collection[Key], covers: int, *, is_bound: bool
    ) -> dict[Key, Edit]:
        """Return how results are shown that referred to those that are gone: folded otherwise, or whole again."""
        self._drop_sources(gone)
        edits: dict[Key, Edit] = {}
        waiting = list({each for key in gone for each in self.ledger.list_dependents(key)})
        heapify(waiting)
        newest: Key | None = None
        while waiting:
            key = heappop(waiting)
            if key in gone or key == newest or key[0] <= covers:
                continue
            fixed = state.fixed.get(key) if is_bound and key[0] < len(state.turns) else None
            if fixed is not None and fixed.kind == "fold":
                # Thinking follows it.
                continue
            newest = key
            before = state.find_fold(key)
            fold = self._find_fold(state, key, is_bound=is_bound)
            if fold == before:
                continue
            self._show(state, key, fold)
            edits[key] = fold or Edit(key, "whole")
            # Its lines are at other places than before, and others of them may be folded.
            for each in self.ledger.list_dependents(key):
                heappush(waiting, each)
        return edits

    def _spread(self, gone: set[Key], covers: int, mask_instead: Mapping[Key, object]) -> list[Key]:
        """Add to `gone` what is masked with its source. Return it."""
        masked = []
        waiting = list(gone)
        while waiting:
            for key in self.ledger.list_dependents(waiting.pop()):
                if key in mask_instead and key not in gone and key[0] > covers:
                    gone.add(key)
                    masked.append(key)
                    waiting.append(key)
        return masked

    def _may_fold(self, state: State, key: Key) -> bool:
        """Return whether a new result may be folded: it is text, no rule keeps it whole, and no edit needs it so."""
        turn = state.turns[key[0] - 1]
        observation = state.find_observation(key)
        text = observation.text
        if not text.isascii() and make_encodable(text) != text:
            return False
        ruling = self._rules.apply_rules(turn, observation)
        if ruling.keep or ruling.verbatim:
            return False
        read = _find_read(turn, observation)
        if read is None:
            return True
        earlier = self._results.get(read)
        if earlier is not None and state.find_fold(earlier) and state.find_observation(earlier).text == text:
            # An agent that reads the same again may not have found what the fold refers to.
            return False
        return not self._edits_exactly

    def _find_fold(self, state: State, key: Key, *, is_bound: bool) -> Edit | None:
        observation = state.find_observation(key)
        if self._index is None or not _is_text(observation):
            return None
        names = SourceNames(
            make_handle if self.placeholders.names_handle else name_turn,
            lambda source: self._describe_call(state, source, key),
        )
        fold = fold_observation(self._index, key, observation.text, self._count, names)
        if fold is not None and is_bound and not self._are_sources_fixed(state, fold):
            return None
        return fold

    def _are_sources_fixed(self, state: State, fold: Edit) -> bool:
        """Return whether messages that stay as they were first sent show the sources of `fold` as the view does.

        They do unless a source was folded where no thinking was bound, or shown in another way there since.
        """
        for run in fold.runs:
            source = run.source
            if source[0] > self._sent_turns:
                continue
            shown, fixed = state.find_fold(source), state.fixed.get(source)
            if (shown and shown.text) != (fixed and fixed.text):
                return False
        return True

    def _describe_call(self, state: State, source: Key, key: Key) -> str:
        """Return which call gave `source`, so that no other call before result `key` is meant."""
        self._learn_calls(state)
        beside: dict[Key, str] = {}
        if key[0] == len(state.turns) and key[1] > 1:
            # Only what precedes `key` in its turn can be meant.
            beside = self._describe_turn(state.turns[-1])
        call = beside.get(source) or self._calls[source]
        alike = self._alike.get(call, []) + [each for each in beside if beside[each] == call]
        before = bisect_left(alike, key)
        if before < 2:
            return call
        return count_back(call, before - 1 - bisect_left(alike, source))

    def _learn_calls(self, state: State) -> None:
        """Take note of the calls of all turns but the newest, which may be replaced."""
        for turn in state.turns[self._described_turns : -1]:
            for each, call in self._describe_turn(turn).items():
                self._calls[each] = call
                self._alike.setdefault(call, []).append(each)
        self._described_turns = max(self._described_turns, len(state.turns) - 1)

    def _describe_turn(self, turn: Turn) -> dict[Key, str]:
        """Return what references say of the calls of `turn`. It is kept of the turn that was asked for last."""
        if self._described is None or self._described[0] is not turn:
            calls = {
                (turn.index, position): self.placeholders.describe_call(turn, observation)
                for position, observation in enumerate(turn.observations, start=1)
            }
            self._described = turn, calls
        return self._described[1]

    def look_ahead(self, state: State) -> Iterator[None]:
        """Do what the next call would do with what the view shows by now: find blocks, describe the newest calls.

        Advance it to its end, or close it.
        """
        if self._index is not None:
            yield from self._index.find_blocks()
        if self._described_turns and state.turns:
            # References were written, and more may be.
            self._learn_calls(state)
            self._describe_turn(state.turns[-1])
            yield

    # -- the fold over events ------------------------------------------------------------------------------------

    def set_head(self, head: Head) -> None:
        self._edits_exactly = self._edits_exactly or has_exact_edit_tool(head)

    def add_turn(self, turn: Turn) -> None:
        """Take note of what kind of edits the agent makes."""
        self._edits_exactly = self._edits_exactly or edits_exactly(turn)

    def record_decision(self, state: State, event: PassDecided) -> list[Key]:
        """Take note of `event`, which is in `state` already. Return the observations that were folded before it, and
        are now shown in another way."""
        gone = {edit.key for edit in event.edits if edit.kind in ("mask", "clip")}
        if event.summary is not None:
            gone.update(self._list_covered(state, event.summary.covers))
            self._covered_turns = max(self._covered_turns, event.summary.covers)
        self._drop_sources(gone)
        for key in sorted(gone):
            self.ledger.remove_fold(key)
        if event.bound:
            self._drop_sources_with(gone)
        changed = [key for key in _list_changed(event) if key[0] <= self._sent_turns] if event.edits else []
        new = self._list_new(state)
        for key in (*changed, *new):
            if state.find_hiding_text(key) is None and key[0] > state.covered_turns:
                saved = self._follow_state(state, key)
                if key[0] > self._sent_turns:
                    self.folded_tokens += max(0, saved)
        self._sent_turns = len(state.turns)
        if self._index is not None:
            self._record_file_reads(state, new)
        return changed

    def _record_file_reads(self, state: State, new: Iterable[Key]) -> None:
        """Take note which files the results `new` show, so that one that is read again stays whole."""
        for key in new:
            read = _find_read(state.turns[key[0] - 1], state.find_observation(key))
            if read is not None:
                self._results[read] = key

    def record_dropped(self, state: State, event: TurnsDropped) -> list[Key]:
        """Take note that the client dropped turns. Return the results that are now shown in another way."""
        gone = self._list_covered(state, event.through)
        self._drop_sources(gone)
        for key in gone:
            self.ledger.remove_fold(key)
        self._covered_turns = max(self._covered_turns, event.through)
        changed = _list_changed(event)
        for key in changed:
            self._follow_state(state, key)
        return changed

    def _follow_state(self, state: State, key: Key) -> int:
        """Index `key` as `state` shows it. Return the tokens that folding leaves out of it."""
        fold = state.find_fold(key)
        self._show(state, key, fold)
        if fold is None:
            self.ledger.remove_fold(key)
            return 0
        saved = state.count_own_tokens(key) - state.find_segment(key).tokens
        self.ledger.add_fold(key, fold.runs, saved)
        return saved

    def _list_new(self, state: State) -> list[Key]:
        """Return the observations that no request held yet."""
        return _list_keys(state.turns[self._sent_turns :])

    def _list_covered(self, state: State, covers: int) -> list[Key]:
        """Return the observations that a summary of turns 1 ... `covers` is the first to cover."""
        return _list_keys(state.turns[self._covered_turns : covers])

    def _show(self, state: State, key: Key, fold: Edit | None) -> None:
        """Index the lines of `key` that the view shows. What is indexed so already stays where it is."""
        if key in self._shown and self._shown[key] == fold:
            return
        self._shown[key] = fold
        observation = state.find_observation(key)
        if self._index is not None and _is_text(observation):
            self._index.add_observation(key, observation.text, fold.runs if fold is not None else ())

    def _drop_sources_with(self, gone: Collection[Key]) -> None:
        """Let no later fold refer to results up to the last of `gone`: the provider clears them, the short ones too."""
        if gone:
            last = max(gone)
            self._drop_sources([key for key in self._shown if key <= last])

    def _drop_sources(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._shown.pop(key, None)
            if self._index is not None:
                self._index.remove_observation(key)


def _list_keys(turns: Iterable[Turn]) -> list[Key]:
    return [(turn.index, position) for turn in turns for position in range(1, len(turn.observations) + 1)]


def _list_changed(event: PassDecided | TurnsDropped) -> list[Key]:
    """Return the observations that `event` folds or shows whole again, in order."""
    return sorted(edit.key for edit in event.edits if edit.kind in ("fold", "whole"))


def _is_text(observation: Observation) -> bool:
    return all(isinstance(part, Text) for part in observation.content)


def _find_read(turn: Turn, observation: Observation) -> FileRead | None:
    """Return what `observation` read; None if it is no file."""
    action = turn.find_action(observation)
    return find_file_read(action) if action is not None else None


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file, and the part of it that was read; "" for all of it."""

    path: str
    part: str = ""


def find_file_read(action: Action) -> FileRead | None:
    """Return what `action` reads; None if it edits a file, or runs something."""
    arguments = action.decoded_arguments
    path = next((arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)), "")
    command = str(arguments.get("command", arguments.get("cmd", "" if arguments else action.arguments)))
    if path:
        if command == "view" or (not command and _READ.match(action.name)):
            lines = [arguments.get(key) for key in ("view_range", "offset", "limit", "start_line", "end_line")]
            return FileRead(path, "" if lines.count(None) == len(lines) else json.dumps(lines))
        if _EDIT.search(command) or _EDIT.search(action.name):
            return None
    printed = _CAT.match(command.strip()) if _SHELL.search(action.name) else None
    return _find_printed_file(printed) if printed else None


def _find_printed_file(command: re.Match[str]) -> FileRead:
    """Return what a shell command prints that `_CAT` matched."""
    # `head` and `tail` show ten lines: they repeat themselves, but not a view of the whole file.
    part = command["verb"] if command["verb"] in ("head", "tail") else ""
    return FileRead(posixpath.join(command["folder"] or "", command["file"]), part)


def has_exact_edit_tool(head: Head) -> bool:
    """Return whether the head defines an edit tool that must match the file's text."""
    text = json.dumps(list(head.tools), default=dict)
    return bool(_OLD_TEXT.search(text) or _PATCH_TOOL.search(text))


def edits_exactly(turn: Turn) -> bool:
    """Return whether a call of `turn` edits in this way."""
    return any(_PATCH_TOOL.search(action.name) or _OLD_TEXT.search(action.arguments) for action in turn.actions)
