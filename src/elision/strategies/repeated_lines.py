"""Repeated lines: runs of lines of a new observation that an earlier, still shown one holds, and one line for each.

The line number that a tool put in front of a line is kept apart from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, takewhile
from operator import itemgetter
from sys import getsizeof
from threading import Lock
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from elision.strategies.fold_ledger import PLAIN_NAMES, SourceNames, write_reference, write_references
from elision.trajectory.foreign_text import digest_text
from elision.trajectory.items import find_gutters
from elision.trajectory.plan import Edit, FoldedRun, Gutter, Key

#: Characters of a line that is kept itself; a longer one is kept as its hash.
_LONG_LINE: Final = 400
#: Digits of a line number. Python reads no number of more than 4,300.
_MOST_DIGITS: Final = 9

#: Lines that an index keeps; the observation that was added first goes when there are more.
LINE_LIMIT: Final = 100_000
#: Of a place, the line; the source's number stands above.
_LINE_BITS: Final = 32
_LINE_MASK: Final = (1 << _LINE_BITS) - 1
#: Places looked at of one and the same block, the newest ones: blank lines must not make matching slow.
_PLACES_KEPT: Final = 8
#: Lines that are compared in one call.
_LINES_AT_ONCE: Final = 16
#: Sessions whose blocks stay found: an idle one should not hold half as much as its messages.
_INDEXES_KEPT: Final = 64
#: Bytes of the lines that stay split for all sessions of the process, and characters of the longest of their texts. A
#: run is often found in what was found last, and splitting again would take longer than all the rest.
_SPLIT_BYTES: Final = 15_000_000
_LONGEST_SPLIT: Final = 500_000
#: Bytes that CPython takes for a line beside its characters, and for the number in front of one.
_LINE_BYTES: Final = 60
_NUMBER_BYTES: Final = 250
#: Tokens that a run must save.
LEAST_SAVING: Final = 60
#: A number that a line begins with, whatever it is.
_LEADING: Final = re.compile(
    rf"^((?=[^\s:]*[./])[^\s:]+:|[ \t]*[Ll]ine |[ \t]*)0*(\d{{1,{_MOST_DIGITS}}})(?!\d)", re.MULTILINE
)

#: A line without its number, or its hash; None for a line that is not shown.
Body: TypeAlias = str | bytes | None


class LineNumber(NamedTuple):
    """What is in front of a line: a path or blanks, the number, the mark after it."""

    lead: str
    number: int
    mark: str


@dataclass(frozen=True, slots=True)
class NumberedLines:
    """The lines of `text`: `bodies`, and `numbers` of those that have one, by index."""

    text: str
    bodies: Sequence[Body]
    numbers: Mapping[int, LineNumber]

    def shows_misleading_numbers(self, gutter: Gutter | None) -> bool:
        """Return whether numbers in front of lines do not tell which lines are meant.

        gutter: by which the lines are named; None if they are counted, which other lines' numbers contradict.
        """
        if gutter is None:
            return bool(self.numbers)
        prefix = _simplify_lead(gutter.prefix)
        return not _find_repeated_numbers(self.text).isdisjoint([(prefix, gutter.first), (prefix, gutter.last)])

    def find_gutter(self, index: int, lines: int = 1) -> Gutter | None:
        """Return the gutter of a run of `lines` lines from `index` on; None if the first one has no number."""
        found = self.numbers.get(index)
        if found is None:
            return None
        prefix = found.lead.lstrip(" ")
        if found.lead and not prefix:
            width = len(found.lead) + len(str(found.number))
        else:
            width = 0
        return Gutter(found.number, self.numbers[index + lines - 1].number, found.mark, prefix, width)


def split_lines(text: str) -> NumberedLines:
    """Split `text` at "\\n" alone, and take the line numbers from its lines."""
    lines = text.split("\n")
    bodies: list[Body] = list(lines)
    numbers: dict[int, LineNumber] = {}
    index = seen = 0
    for match in find_gutters(text):
        lead, digits, mark = match.groups()
        begin = match.start(1)
        index += text.count("\n", seen, begin)
        seen = begin
        if len(digits) <= _MOST_DIGITS and (digits[0] != "0" or digits == "0"):
            numbers[index] = LineNumber(lead, int(digits), mark)
            line = bodies[index]
            assert isinstance(line, str)
            bodies[index] = line[match.end() - begin :]
    if max(map(len, lines)) > _LONG_LINE:
        bodies = [digest_text(body) if isinstance(body, str) and len(body) > _LONG_LINE else body for body in bodies]
    return NumberedLines(text, bodies, numbers)


@lru_cache(maxsize=16)
def _find_repeated_numbers(text: str) -> frozenset[tuple[str, int]]:
    """Return numbers that several lines begin with, also where they are part of the text: a reader cannot tell."""
    counts = Counter((_simplify_lead(match[1]), int(match[2])) for match in _LEADING.finditer(text))
    return frozenset(number for number, count in counts.items() if count > 1)


def _simplify_lead(lead: str) -> str:
    """Return what a reference says of `lead`: a path, or nothing."""
    lead = lead.strip()
    if lead.lower() == "line":
        return ""
    return lead


@dataclass(frozen=True, slots=True)
class _Match:
    """So many lines at a place of a source."""

    lines: int
    source: Key
    source_start: int
    gutter: Gutter | None
    source_gutter: Gutter | None


@dataclass(frozen=True, slots=True)
class _Source:
    """An observation that the view shows; number: what places call it; runs: what of it is folded."""

    number: int
    text: str
    runs: Sequence[FoldedRun]
    lines: int


class LineIndex:
    """The lines of the observations that a view shows.

    Kept of a source is its text, which the session holds anyway. Where each block of lines begins, three lines of five,
    is found when something is looked for, and kept for the `_INDEXES_KEPT` sessions of the process that looked last.
    Whichever `least_lines` lines repeat, one of those blocks is whole among them. A source is split again where a block
    is found.

    least_lines, least_characters: of a run that is found. line_limit: lines kept; oldest observations go first.
    """

    def __init__(self, least_lines: int = 5, least_characters: int = 200, line_limit: int = LINE_LIMIT) -> None:
        self.least_lines = least_lines
        self._block_lines = (least_lines + 1) // 2
        self.least_characters = least_characters
        self.line_limit = line_limit
        self.line_count = 0
        self._sources: dict[Key, _Source] = {}
        #: Number -> its observation.
        self._keys: dict[int, Key] = {}
        self._added = 0
        #: Text -> the observations that show it whole, oldest first.
        self._whole: dict[str, list[Key]] = {}
        #: The long text that was looked at last: it is searched for, and then added.
        self._newest: tuple[str, NumberedLines] = ("", split_lines(""))

    def __contains__(self, key: Key) -> bool:
        return key in self._sources

    def add_observation(self, key: Key, text: str, runs: Sequence[FoldedRun] = ()) -> None:
        """Index the observation's own text. runs: what of it is folded; those lines are no source."""
        self.remove_observation(key)
        self._added += 1
        source = self._sources[key] = _Source(self._added, text, runs, text.count("\n") + 1)
        self._keys[source.number] = key
        self.line_count += source.lines
        if not runs:
            self._whole.setdefault(text, []).append(key)
        while self.line_count > self.line_limit:
            self.remove_observation(next(iter(self._sources)))

    def remove_observation(self, key: Key) -> None:
        """Forget an observation that is hidden now; one that is not here is no error."""
        source = self._sources.pop(key, None)
        if source is None:
            return
        del self._keys[source.number]
        self.line_count -= source.lines
        if not source.runs:
            self._whole[source.text].remove(key)
            if not self._whole[source.text]:
                del self._whole[source.text]

    def find_blocks(self) -> Generator[None, None, _Blocks]:
        """Return where the blocks of all sources begin, after a step for each new source. What was found stays."""
        with _LOCK:
            blocks = _blocks_by_index.pop(self, None)
        if blocks is None or blocks.lines > 2 * self.line_count:
            # More than half of them are of sources that were removed.
            blocks = _Blocks()
        newest = blocks.newest
        new = list(takewhile(lambda source: source.number > newest, reversed(self._sources.values())))
        try:
            for source in reversed(new):
                bodies = self._split_source(source.text, source.runs).bodies
                blocks.add_source(source, bodies, self._block_lines)
                yield
        finally:
            with _LOCK:
                _blocks_by_index[self] = blocks
                while len(_blocks_by_index) > _INDEXES_KEPT:
                    del _blocks_by_index[next(iter(_blocks_by_index))]
        return blocks

    def find_runs(self, key: Key, text: str) -> list[FoldedRun]:
        """Return runs of `text` that observations before `key` hold: from the front, the longest first found.

        Of several places with as many lines the newest observation counts. Runs do not overlap. A text that one of them
        shows whole is one run, however few its lines are.
        """
        same = max((source for source in self._whole.get(text, ()) if source < key), default=None)
        if same is not None:
            is_long = len(text) >= self.least_characters
            return [FoldedRun(0, text.count("\n") + 1, same, 0, is_whole=True)] if is_long else []
        target = self._split(text)
        places = self._find_blocks_at_once().places
        # Where sources have the block that begins at a line.
        blocks = zip(*(target.bodies[offset:] for offset in range(self._block_lines)), strict=False)
        hashed = enumerate(map(hash, blocks))
        known = {line: places[block] for line, block in hashed if block in places}
        return self._find_partial_runs(key, text, target, known) if known else []

    def _find_partial_runs(
        self, key: Key, text: str, target: NumberedLines, places: Mapping[int, int | Sequence[int]]
    ) -> list[FoldedRun]:
        """Return runs of some of the lines of `text`, which are `target`.

        places: by line, where sources have the block that begins there; lines ascend.
        """
        known = list(places)
        #: The first of the known blocks that was not passed yet.
        next_known = 0
        lines = text.split("\n")
        #: Where sources have the block that begins at a line.
        located: dict[int, list[tuple[Key, int]]] = {}
        split: dict[Key, NumberedLines] = {}
        runs: list[FoldedRun] = []
        start = 0
        while start + self.least_lines <= len(target.bodies):
            # Each run has a block that is known among its first lines.
            while next_known < len(known):
                line = known[next_known]
                if line >= start:
                    if line not in located:
                        located[line] = self._locate_block(target, line, places[line], key, split)
                    if located[line]:
                        break
                next_known += 1
            if next_known == len(known):
                break
            start = max(start, known[next_known] - self._block_lines + 1)
            if start + self.least_lines > len(target.bodies):
                break
            for line in range(start, start + self._block_lines):
                if line not in located:
                    located[line] = self._locate_block(target, line, places.get(line, ()), key, split)
            match = self._find_longest(target, start, located, split)
            if match is None:
                start += 1
            elif sum(map(len, lines[start : start + match.lines])) + match.lines < self.least_characters:
                # The last lines of it may begin a longer run.
                start += match.lines - self.least_lines + 1
            else:
                runs.append(self._make_run(start, match, split[match.source]))
                start += match.lines
        return runs

    def _find_blocks_at_once(self) -> _Blocks:
        steps = self.find_blocks()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: _Blocks = end.value
                return found

    def _split(self, text: str) -> NumberedLines:
        if len(text) <= _LONGEST_SPLIT:
            return _SPLIT_TEXTS.split(text)
        if text != self._newest[0]:
            self._newest = (text, split_lines(text))
        return self._newest[1]

    def _split_source(self, text: str, runs: Sequence[FoldedRun]) -> NumberedLines:
        """Return the lines of `text`, with None in place of those that `runs` cover."""
        lines = self._split(text)
        if not runs:
            return lines
        bodies = list(lines.bodies)
        for run in runs:
            bodies[run.start : run.start + run.lines] = [None] * run.lines
        return NumberedLines(text, bodies, lines.numbers)

    def _locate_block(
        self,
        target: NumberedLines,
        line: int,
        places: int | Sequence[int],
        key: Key,
        split: dict[Key, NumberedLines],
    ) -> list[tuple[Key, int]]:
        """Return where sources have the block that begins at `line` of `target`, among as many lines as a run has.

        places: of the block; of these the newest count that the view still shows. split: the sources that were split
        for `target`, to which it adds. Returns the source and the line of each.
        """
        if isinstance(places, int):
            places = (places,)
        shown = islice((each for each in reversed(places) if each >> _LINE_BITS in self._keys), _PLACES_KEPT)
        located = []
        for place in shown:
            source, their_line = self._keys[place >> _LINE_BITS], place & _LINE_MASK
            if source >= key:
                continue
            if source not in split:
                split[source] = self._split_source(self._sources[source].text, self._sources[source].runs)
            if self._is_in_run(target.bodies, line, split[source].bodies, their_line):
                located.append((source, their_line))
        return located

    def _is_in_run(self, ours: Sequence[Body], line: int, theirs: Sequence[Body], their_line: int) -> bool:
        """Return whether the block at `line` is among the first of `least_lines` lines that both have."""
        for before in range(min(self._block_lines, line + 1, their_line + 1)):
            same = ours[line - before : line - before + self.least_lines]
            first = their_line - before
            if len(same) == self.least_lines and same == theirs[first : first + self.least_lines]:
                return True
        return False

    def _make_run(self, start: int, match: _Match, source: NumberedLines) -> FoldedRun:
        place, theirs = match.source_start, match.source_gutter
        left_out = sum(run.lines - 1 for run in self._sources[match.source].runs if run.start < place)
        return FoldedRun(
            start,
            match.lines,
            match.source,
            place,
            match.gutter,
            theirs,
            source.shows_misleading_numbers(theirs),
            place - left_out if left_out else None,
        )

    def _find_longest(
        self,
        target: NumberedLines,
        start: int,
        located: Mapping[int, Sequence[tuple[Key, int]]],
        split: Mapping[Key, NumberedLines],
    ) -> _Match | None:
        """The longest match of the lines from `start` on. located: where the block that begins at a line stands.

        split: the located sources, split.
        """
        found = {
            (source, line - offset)
            for offset in range(self._block_lines)
            for source, line in located[start + offset]
            if line >= offset
        }
        best: _Match | None = None
        # The newest source first: of as many lines it counts, so that an older one has to have more.
        for source, line in sorted(sorted(found), key=itemgetter(0), reverse=True):
            ours, theirs = target.bodies, split[source].bodies
            needed = self.least_lines if best is None else best.lines + 1
            last, their_last = start + needed - 1, line + needed - 1
            if last >= len(ours) or their_last >= len(theirs) or ours[last] != theirs[their_last]:
                # Most places end here: one line shows that they have too few.
                continue
            match = _measure_match(target, start, split[source], line, source)
            if match.lines >= needed:
                best = match
        return best


class _Blocks:
    """Where blocks of lines begin in the sources of an index, up to the one with number `newest`.

    places: hash of a block -> its place, or its places, oldest first: a source's number and a line, in one number.
    lines: of the sources, also of those that were removed since.
    """

    __slots__ = ("lines", "newest", "places")

    def __init__(self) -> None:
        self.places: dict[int, int | list[int]] = {}
        self.newest = self.lines = 0

    def add_source(self, source: _Source, bodies: Sequence[Body], size: int) -> None:
        """Add the blocks of `size` lines of a source; those with a line that is not shown are none."""
        self.newest = source.number
        self.lines += source.lines
        first = source.number << _LINE_BITS
        for number, block in enumerate(zip(*(bodies[offset::size] for offset in range(size)), strict=False)):
            if None in block:
                continue
            place = first + number * size
            places = self.places.setdefault(hash(block), place)
            if isinstance(places, list):
                places.append(place)
            elif places != place:
                self.places[hash(block)] = [places, place]


#: Of the indexes that were looked at last, the newest at the end. Whatever is no longer here is found again.
_blocks_by_index: WeakKeyDictionary[LineIndex, _Blocks] = WeakKeyDictionary()
_LOCK: Final = Lock()


class _SplitTexts:
    """The texts that were split last, up to about `limit` bytes of their lines. Threads may share it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[str, NumberedLines] = {}
        self._bytes = 0
        self._lock = Lock()

    def split(self, text: str) -> NumberedLines:
        """Return `text` split, as it was split before where that is kept."""
        with self._lock:
            found = self._kept.pop(text, None)
            if found is not None:
                # The one that was used last goes last.
                self._kept[text] = found
                return found
        found = split_lines(text)
        with self._lock:
            if text not in self._kept:
                self._bytes += _estimate_bytes(found)
            self._kept[text] = found
            while self._bytes > self._limit:
                self._bytes -= _estimate_bytes(self._kept.pop(next(iter(self._kept))))
        return found


def _estimate_bytes(lines: NumberedLines) -> int:
    """Return about how many bytes `lines` take beside their text, which the session holds anyway."""
    return getsizeof(lines.text) + _LINE_BYTES * len(lines.bodies) + _NUMBER_BYTES * len(lines.numbers)


_SPLIT_TEXTS: Final = _SplitTexts(_SPLIT_BYTES)


def _measure_match(target: NumberedLines, start: int, source: NumberedLines, place: int, key: Key) -> _Match:
    """How far the lines of `target` and `source` agree: number by number, or with gutters that differ regularly."""
    bodies, theirs = target.bodies, source.bodies
    numbers, their_numbers = target.numbers, source.numbers
    most = _count_same_lines(bodies, start, theirs, place)
    verbatim = most
    if numbers or their_numbers:
        steps = range(most)
        verbatim = next((at for at in steps if numbers.get(start + at) != their_numbers.get(place + at)), most)
    if start not in numbers and place not in their_numbers:
        return _Match(verbatim, key, place, None, None)
    gutter, source_gutter = target.find_gutter(start), source.find_gutter(place)
    numbered = 0
    for step in range(most):
        theirs_number = their_numbers.get(place + step)
        if not _fits_gutter(theirs_number, source_gutter):
            break
        number = _continue_number(gutter, source_gutter, step, theirs_number)
        if numbers.get(start + step) != number:
            break
        numbered += 1
    if numbered and numbered >= verbatim:
        return _Match(numbered, key, place, target.find_gutter(start, numbered), source.find_gutter(place, numbered))
    return _Match(verbatim, key, place, None, None)


def _count_same_lines(ours: Sequence[Body], start: int, theirs: Sequence[Body], place: int) -> int:
    """How many lines from `start` and from `place` on are the same, whatever their numbers."""
    most = min(len(ours) - start, len(theirs) - place)
    same = 0
    while same < most:
        # Several lines are compared in one call of C; the first that differs is among the last of those.
        end = min(same + _LINES_AT_ONCE, most)
        if ours[start + same : start + end] == theirs[place + same : place + end]:
            same = end
            continue
        while ours[start + same] == theirs[place + same]:
            same += 1
        break
    return same


def _fits_gutter(number: LineNumber | None, gutter: Gutter | None) -> bool:
    """Whether a line with `number` belongs to a run with `gutter`."""
    if number is None or gutter is None:
        return number is None and gutter is None
    return number.mark == gutter.mark and number.lead.lstrip(" ") == gutter.prefix


def _continue_number(
    gutter: Gutter | None, source_gutter: Gutter | None, step: int, theirs: LineNumber | None
) -> LineNumber | None:
    """The number that a run's line must have: as far from its first as the source's, or as the lines are apart."""
    if gutter is None:
        return None
    if source_gutter is None:
        distance = step
    else:
        distance = (theirs.number if theirs else 0) - source_gutter.first
    number = gutter.first + distance
    lead = gutter.prefix or " " * (gutter.width - len(str(number)))
    return LineNumber(lead, number, gutter.mark)


def fold_observation(
    index: LineIndex,
    key: Key,
    text: str,
    count_tokens: Callable[[str], int],
    names: SourceNames = PLAIN_NAMES,
) -> Edit | None:
    """Return how observation `key` is shown where that saves tokens, with a line for each repeated run; None if not."""
    found = index.find_runs(key, text)
    runs = keep_saving_runs(text, found, count_tokens, names) if found else ()
    if not runs:
        return None
    return Edit(key, "fold", fold_text(text, runs, names), runs)


def keep_saving_runs(
    text: str,
    runs: Iterable[FoldedRun],
    count_tokens: Callable[[str], int],
    names: SourceNames = PLAIN_NAMES,
    least_saving: int = LEAST_SAVING,
) -> tuple[FoldedRun, ...]:
    """Return those of `runs` whose lines have at least `least_saving` tokens more than the line that names them."""
    lines = text.split("\n")
    kept: list[FoldedRun] = []
    named: set[Key] = set()
    for run in runs:
        repeated = "\n".join(lines[run.start : run.start + run.lines])
        reference = write_reference(run, names, is_first=run.source not in named)
        if count_tokens(repeated) - count_tokens(reference) >= least_saving:
            kept.append(run)
            named.add(run.source)
    return tuple(kept)


def fold_text(text: str, runs: Sequence[FoldedRun], names: SourceNames) -> str:
    """Return `text` with one line in place of each run."""
    lines = text.split("\n")
    shown: list[str] = []
    end = 0
    for run, reference in zip(runs, write_references(runs, names), strict=True):
        shown += lines[end : run.start]
        shown.append(reference)
        end = run.start + run.lines
    return "\n".join(shown + lines[end:])
