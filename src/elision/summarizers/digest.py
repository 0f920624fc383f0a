"""The model-free digest: a structured summary of real text from the run, written without any model.

Pure: the same request gives the same bytes in any process. The previous digest is read back (`parse_digest`), merged
and fitted into the limit again: counts add up, the oldest lines are dropped first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from elision.summarizers import digest_sections, touched_files
from elision.summarizers.call_lines import (
    Attempt,
    clip_line,
    count_failures,
    cut_middle,
    drop_duplicates,
    is_coding_action,
    parse_attempt,
    rank_attempts,
    strip_markup,
    update_ledger,
)
from elision.summarizers.facts import Fact, collect_facts, parse_facts, pick_facts, render_facts
from elision.trajectory.items import find_items
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.tokens import TOKENS_PER_CALL, TOKENS_PER_MESSAGE
from elision.trajectory.trajectory import join_assistant_text
from elision.trajectory.turn import Turn

#: The sections in the order they are written. EARLIER quotes a previous summary that is no digest.
SECTIONS = (
    "USER_CONTEXT",
    "EARLIER",
    "COMPLETED",
    "PENDING",
    "CURRENT_STATE",
    "CODE_STATE",
    "TESTS",
    "CHANGES",
    "DEPS",
    "VERSION_CONTROL_STATUS",
)
ATTEMPTS = "ATTEMPTS"
FACTS = "FACTS"

_TITLE = re.compile(r"Digest of turns (\d+)-(\d+) \(quoted from the run, no model\): (\d+) calls, (\d+) failed")

#: Percentage of a digest that facts may claim before the less telling lines, because later actions look them up. With
#: 80 the bill is the same, and no fewer turns miss something (53 recorded runs of 10 turns or more).
FACTS_PCT: Final = 45
#: Characters of a line that an earlier digest brought along.
_OLD_WIDTH = 110
#: Characters quoted of a previous summary that is no digest.
_QUOTED_CHARACTERS = 2_400
#: How many lines of a section are worth as much as one of a section of weight 1.
_WEIGHTS: Mapping[str, float] = {
    "USER_CONTEXT": 2.0,
    "EARLIER": 3.0,
    "COMPLETED": 3.0,
    "PENDING": 1.5,
    "CURRENT_STATE": 3.0,
    "CODE_STATE": 2.5,
    "TESTS": 1.0,
    "CHANGES": 2.5,
    "DEPS": 0.7,
    "VERSION_CONTROL_STATUS": 1.0,
    ATTEMPTS: 2.5,
}
#: Sections in which what is new replaces what was.
_REPLACED = frozenset({"PENDING", "CURRENT_STATE"})

#: A line that does not fit is tried once more at this many characters.
SHORT_LINE = 70
#: Lines that did not fit, after which no more are tried: the budget is used up.
_MOST_MISSES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRecord:
    """A digest of turns `first_turn` ... `last_turn`.

    calls, failed_calls: results in all, and how many of them were failures; they add up over rolling digests.
    sections:      lines by section, oldest first.
    attempts:      the ledger; may list fewer failures than `failed_calls` where the limit was tight.
    facts:         code-like items, most telling first.
    """

    first_turn: int
    last_turn: int
    calls: int = 0
    failed_calls: int = 0
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    attempts: tuple[Attempt, ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def title(self) -> str:
        span = f"{self.first_turn}-{self.last_turn}"
        return f"Digest of turns {span} (quoted from the run, no model): {self.calls} calls, {self.failed_calls} failed"


def write_digest(request: SummaryRequest, count: Callable[[str], int]) -> str:
    """Return the digest of `request`; "" if nothing fits.

    It has at most `max_tokens` by `count` and is shorter than what it replaces.
    """
    limit = min(request.max_tokens, count_source_tokens(request, count, request.max_tokens + 1) - 1)
    if limit <= 0:
        return ""
    return fit_record(merge_record(request), limit, count)


def count_source_tokens(request: SummaryRequest, count: Callable[[str], int], enough: int) -> int:
    """Return the tokens of what the digest replaces, the frames of messages and calls included, as a provider counts.

    It is counted no further than `enough`.
    """
    total = count(request.previous) if request.previous else 0
    for turn in request.turns:
        texts = (join_assistant_text(turn), *(observation.text for observation in turn.observations))
        calls = sum(not action.implicit for action in turn.actions)
        total += TOKENS_PER_CALL * calls + sum(TOKENS_PER_MESSAGE + count(text) for text in texts)
        if total >= enough:
            break
    return total


def merge_record(request: SummaryRequest) -> DigestRecord:
    """Return everything that the digest could say: the previous one, parsed, and what the new turns add."""
    turns = request.turns
    old = parse_digest(request.previous) or _quote_foreign_summary(request.previous, turns)
    attempts = update_ledger(turns, old.attempts)
    return DigestRecord(
        first_turn=old.first_turn,
        last_turn=turns[-1].index if turns else old.last_turn,
        calls=old.calls + sum(len(turn.observations) for turn in turns),
        failed_calls=old.failed_calls + count_failures(attempts) - count_failures(old.attempts),
        sections=_merge_sections(request, old),
        attempts=attempts,
        facts=tuple(collect_facts(turns, request.task, old.facts, request.shown)),
    )


def fit_record(whole: DigestRecord, limit: int, count: Callable[[str], int]) -> str:
    """Return the text of as much of `whole` as fits `limit` tokens."""
    selection = LineSelection(limit - count(whole.title + "\n"), count)
    lines = list(_rank_lines(whole))
    reserve = 0
    if whole.facts:
        reserve = FACTS_PCT * limit // 100
    selection.take_lines(lines, reserve=reserve)
    selection.take_lines(_fit_facts(whole, selection, count))
    selection.take_lines(lines)
    return _render_within(whole.title, selection.lines, limit, count)


def parse_digest(text: str) -> DigestRecord | None:
    """Return the record whose text is `text`; None if it is no digest."""
    lines = text.strip().splitlines()
    title = _TITLE.fullmatch(lines[0]) if lines else None
    if title is None:
        return None
    first_turn, last_turn, calls, failed_calls = map(int, title.groups())
    sections: dict[str, list[str]] = {}
    newest: list[str] | None = None
    for line in lines[1:]:
        if line.startswith("- ") and newest is not None:
            newest.append(line[2:])
        elif line.endswith(":") and line[:-1] not in sections:
            newest = sections[line[:-1]] = []
    found_facts: list[Fact] = []
    for line in sections.get(FACTS, ()):
        found_facts.extend(parse_facts(line))
    return DigestRecord(
        first_turn=first_turn,
        last_turn=last_turn,
        calls=calls,
        failed_calls=failed_calls,
        sections={name: tuple(sections[name]) for name in SECTIONS if sections.get(name)},
        attempts=tuple(filter(None, map(parse_attempt, sections.get(ATTEMPTS, ())))),
        facts=tuple(found_facts),
    )


def _quote_foreign_summary(previous: str, turns: Sequence[Turn]) -> DigestRecord:
    """Return a previous summary that is no digest as a record: quoted, head and tail."""
    first_turn = turns[0].index if turns else 1
    last_turn = max(1, first_turn - 1)
    lines = cut_middle(strip_markup(previous), _QUOTED_CHARACTERS, "\n[…]\n").splitlines()
    quoted = drop_duplicates([clip_line(line, 200) for line in lines if line.strip()])
    if previous.strip():
        first_turn = 1
    sections = {"EARLIER": quoted} if quoted else {}
    return DigestRecord(first_turn=first_turn, last_turn=last_turn, sections=sections)


def _merge_sections(request: SummaryRequest, old: DigestRecord) -> dict[str, tuple[str, ...]]:
    new = _build_new_sections(request, old)
    merged = {}
    for name in SECTIONS:
        fresh = tuple(new.get(name, ()))
        if name == "CODE_STATE":
            lines = fresh
        elif name in _REPLACED and fresh:
            lines = drop_duplicates(fresh)
        else:
            before = tuple(clip_line(line, _OLD_WIDTH) for line in old.sections.get(name, ()))
            lines = drop_duplicates(before + fresh)
        if name == "COMPLETED":
            lines = digest_sections.correct_claims(lines, request.turns)
        if lines:
            merged[name] = lines
    return merged


def _build_new_sections(request: SummaryRequest, old: DigestRecord) -> dict[str, Sequence[str]]:
    turns = request.turns
    completed = digest_sections.list_completed(turns)
    pending = digest_sections.list_pending(turns)
    state_lines = digest_sections.describe_current_state(turns)
    quoted = {*completed, *pending}
    task = "" if old.sections.get("USER_CONTEXT") else request.task
    sections: dict[str, Sequence[str]] = {
        "USER_CONTEXT": digest_sections.list_user_context(task, turns),
        "COMPLETED": completed,
        "PENDING": pending,
        # Without what another section quotes; at least its first line.
        "CURRENT_STATE": [line for line in state_lines if line.replace("] said: ", "] ") not in quoted]
        or state_lines[:1],
    }
    known = list(filter(None, map(touched_files.parse_file_state, old.sections.get("CODE_STATE", ()))))
    if known or any(any(map(is_coding_action, turn.actions)) for turn in turns):
        touches = touched_files.list_touches(turns)
        sections |= {
            "CODE_STATE": [str(state) for state in touched_files.update_file_states(touches, known)],
            "CHANGES": [str(touch) for touch in touches if touch.verb != "read"],
            "TESTS": digest_sections.list_test_runs(turns),
            "DEPS": digest_sections.list_installs(turns),
            "VERSION_CONTROL_STATUS": digest_sections.list_git_commands(turns),
        }
    return sections


def _rank_lines(whole: DigestRecord) -> Iterator[DigestLine]:
    for name, texts in whole.sections.items():
        for rank, place in enumerate(_rank_places(name, texts), start=1):
            yield DigestLine(section=name, text=texts[place], rank=rank / _WEIGHTS[name], place=place)
    for place, attempt in enumerate(rank_attempts(whole.attempts)):
        yield DigestLine(section=ATTEMPTS, text=str(attempt), rank=(place + 1) / _WEIGHTS[ATTEMPTS], place=place)


def _rank_places(name: str, texts: Sequence[str]) -> list[int]:
    """Return the places of a section's lines, the one to keep longest first."""
    places = list(range(len(texts)))
    if name in ("EARLIER", "CURRENT_STATE", "PENDING"):
        return places
    if name == "USER_CONTEXT":
        return [*places[:1], *reversed(places[1:])]
    if name == "COMPLETED":
        score = digest_sections.score_conclusion
        return sorted(places, key=lambda place: -(0.6 * place / len(texts) + score(texts[place])))
    if name == "CODE_STATE":
        return sorted(places, key=lambda place: -(place / len(texts) + touched_files.score_interest(texts[place])))
    return places[::-1]


def _fit_facts(whole: DigestRecord, selection: LineSelection, count: Callable[[str], int]) -> list[DigestLine]:
    """Return the facts that the lines taken so far leave room for."""
    shown = dict.fromkeys(find_items("\n".join(line.text for line in selection.lines)))
    budget = selection.remaining_tokens - count(f"{FACTS}:\n")
    chosen = []
    if budget > 0:
        chosen = pick_facts(whole.facts, budget, count, shown)
    lines = []
    for place, text in enumerate(render_facts(chosen)):
        lines.append(DigestLine(section=FACTS, text=text, rank=place, place=place, is_firm=True))
    return lines


def _render_within(title: str, lines: Iterable[DigestLine], limit: int, count: Callable[[str], int]) -> str:
    """Return the text in at most `limit` tokens.

    Lines are dropped where a counter's sum over lines is less than its count of the whole.
    """
    kept = sorted(lines, key=lambda line: line.rank)
    text = render_lines(title, kept, (*SECTIONS, ATTEMPTS, FACTS))
    while kept and count(text) > limit:
        kept = kept[: len(kept) * 9 // 10]
        text = render_lines(title, kept, (*SECTIONS, ATTEMPTS, FACTS))
    if count(text) <= limit:
        return text
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestLine:
    """One line of a section.

    rank:  lines of lower rank are taken first.
    place: its position within its section.
    is_firm: whether it must not be shortened.
    """

    section: str
    text: str
    rank: float
    place: int
    is_firm: bool = False


class LineSelection:
    """Lines taken so far, within a limit in tokens. Candidates are counted one by one, instead of the whole text."""

    def __init__(self, limit: int, count: Callable[[str], int]) -> None:
        self.remaining_tokens = limit
        self._count = count
        self._lines: dict[tuple[str, int], DigestLine] = {}
        self._begun: set[str] = set()

    @property
    def lines(self) -> list[DigestLine]:
        return list(self._lines.values())

    def take_lines(self, lines: Iterable[DigestLine], reserve: int = 0) -> None:
        """Take `lines`, lowest rank first, as long as `reserve` tokens stay free."""
        misses = 0
        for line in sorted(lines, key=lambda line: (line.rank, line.section, line.place)):
            if (line.section, line.place) in self._lines or self._add_line(line, reserve):
                continue
            if not line.is_firm and self._add_line(replace(line, text=clip_line(line.text, SHORT_LINE)), reserve):
                continue
            misses += 1
            if misses > _MOST_MISSES:
                return

    def _add_line(self, line: DigestLine, reserve: int) -> bool:
        cost = self._count(f"- {line.text}\n")
        if line.section not in self._begun:
            cost += self._count(f"{line.section}:\n")
        if cost > self.remaining_tokens - reserve:
            return False
        self.remaining_tokens -= cost
        self._lines[line.section, line.place] = line
        self._begun.add(line.section)
        return True


def render_lines(title: str, lines: Sequence[DigestLine], order: Sequence[str]) -> str:
    """Return the text of a digest: its title, then the sections in `order`, lines in place."""
    by_section: Mapping[str, list[DigestLine]] = {name: [] for name in order}
    for line in lines:
        by_section[line.section].append(line)
    parts = [title]
    for name, members in by_section.items():
        if members:
            parts.append(f"{name}:")
            parts += [f"- {line.text}" for line in sorted(members, key=lambda line: line.place)]
    return "\n".join(parts)
