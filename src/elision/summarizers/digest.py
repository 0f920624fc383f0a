"""The model-free digest: a structured summary of real text from the run, written without any model.

Pure: the same request gives the same bytes in any process. The previous digest is read back
(`digest_record.parse_digest`), merged and fitted into the limit again: counts add up, the oldest lines are dropped
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from elision.summarizers import coding_sections, digest_record, narrative_sections, touched_files
from elision.summarizers.actions import is_coding_action
from elision.summarizers.attempts import count_failures, rank_attempts, update_ledger
from elision.summarizers.digest_lines import DigestLine, LineSelection, render_lines
from elision.summarizers.digest_record import ATTEMPTS, FACTS, SECTIONS, DigestRecord
from elision.summarizers.facts import collect_facts, pick_facts, render_facts
from elision.summarizers.prose import clip_line, cut_middle, drop_duplicates, strip_markup
from elision.trajectory.items import items
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.spoken import spoken
from elision.trajectory.turn import Turn

#: Share of the limit that facts may claim before the less telling lines; they are what later actions look up.
FACTS_SHARE = 0.45
#: Characters of a line that an earlier digest brought along.
_OLD_WIDTH = 110
#: Characters quoted of a previous summary that is no digest.
_QUOTED = 2_400
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


def write_digest(request: SummaryRequest, count: Callable[[str], int]) -> str:
    """The digest of `request`: at most `max_tokens` by `count`, shorter than what it replaces; "" if nothing fits."""
    limit = min(request.max_tokens, count_source_tokens(request, count, request.max_tokens + 1) - 1)
    if limit <= 0:
        return ""
    return fit_record(merge_record(request), limit, count)


def count_source_tokens(request: SummaryRequest, count: Callable[[str], int], enough: int) -> int:
    """Tokens of what the digest replaces, counted no further than `enough`."""
    total = 0
    for text in _list_source_texts(request):
        total += count(text)
        if total >= enough:
            break
    return total


def merge_record(request: SummaryRequest) -> DigestRecord:
    """Everything the digest could say: the previous one, read back, and what the new turns add."""
    turns = request.turns
    old = digest_record.parse_digest(request.previous) or _quote_foreign_summary(request.previous, turns)
    results = [observation for turn in turns for observation in turn.observations]
    attempts = update_ledger(turns, old.attempts)
    return DigestRecord(
        first_turn=old.first_turn,
        last_turn=turns[-1].index if turns else old.last_turn,
        calls=old.calls + len(results),
        failed_calls=old.failed_calls + count_failures(attempts) - count_failures(old.attempts),
        sections=_merge_sections(request, old),
        attempts=attempts,
        facts=tuple(collect_facts(turns, request.task, old.facts)),
    )


def fit_record(whole: DigestRecord, limit: int, count: Callable[[str], int]) -> str:
    """The text of as much of `whole` as fits `limit` tokens."""
    page = LineSelection(limit - count(whole.title + "\n"), count)
    lines = list(_rank_lines(whole))
    page.take_lines(lines, reserve=int(FACTS_SHARE * limit) if whole.facts else 0)
    page.take_lines(_fit_facts(whole, page, count))
    page.take_lines(lines)
    return _render_within(whole.title, page.lines, limit, count)


def _list_source_texts(request: SummaryRequest) -> Iterator[str]:
    yield from filter(None, (request.previous,))
    for turn in request.turns:
        yield from filter(None, (spoken(turn), *(observation.text for observation in turn.observations)))


def _quote_foreign_summary(previous: str, turns: Sequence[Turn]) -> DigestRecord:
    """A previous summary that is no digest: quoted, head and tail."""
    first = turns[0].index if turns else 1
    lines = cut_middle(strip_markup(previous), _QUOTED, "\n[…]\n").splitlines()
    quoted = drop_duplicates([clip_line(line, 200) for line in lines if line.strip()])
    return DigestRecord(
        first_turn=1 if previous.strip() else first,
        last_turn=max(1, first - 1),
        sections={"EARLIER": quoted} if quoted else {},
    )


def _merge_sections(request: SummaryRequest, old: DigestRecord) -> dict[str, tuple[str, ...]]:
    new = _build_new_sections(request, old)
    found = {}
    for name in SECTIONS:
        before = old.sections.get(name, ())
        fresh = new.get(name, ())
        if name == "CODE_STATE":
            found[name] = tuple(fresh)
        elif name in _REPLACED and fresh:
            found[name] = drop_duplicates(tuple(fresh))
        else:
            found[name] = drop_duplicates((*(clip_line(line, _OLD_WIDTH) for line in before), *fresh))
    return {name: lines for name, lines in found.items() if lines}


def _build_new_sections(request: SummaryRequest, old: DigestRecord) -> dict[str, Sequence[str]]:
    turns = request.turns
    finished = narrative_sections.list_completed(turns)
    pending = narrative_sections.list_pending(turns)
    told = {*finished, *pending}
    stands = narrative_sections.describe_current_state(turns)
    found: dict[str, Sequence[str]] = {
        "USER_CONTEXT": narrative_sections.list_user_context(
            "" if old.sections.get("USER_CONTEXT") else request.task, turns
        ),
        "COMPLETED": finished,
        "PENDING": pending,
        "CURRENT_STATE": [line for line in stands if line.replace("] said: ", "] ") not in told] or stands[:1],
    }
    known = [state for line in old.sections.get("CODE_STATE", ()) if (state := touched_files.parse_file_state(line))]
    if known or any(is_coding_action(action) for turn in turns for action in turn.actions):
        touched = touched_files.list_touches(turns)
        found |= {
            "CODE_STATE": [str(state) for state in touched_files.update_file_states(touched, known)],
            "CHANGES": [str(touch) for touch in touched if touch.verb != "read"],
            "TESTS": coding_sections.list_test_runs(turns),
            "DEPS": coding_sections.list_installs(turns),
            "VERSION_CONTROL_STATUS": coding_sections.list_git_commands(turns),
        }
    return found


def _rank_lines(whole: DigestRecord) -> Iterator[DigestLine]:
    for name, texts in whole.sections.items():
        for nth, place in enumerate(_rank_places(name, texts), start=1):
            yield DigestLine(section=name, text=texts[place], rank=nth / _WEIGHTS[name], place=place)
    for place, attempt in enumerate(rank_attempts(whole.attempts)):
        yield DigestLine(section=ATTEMPTS, text=str(attempt), rank=(place + 1) / _WEIGHTS[ATTEMPTS], place=place)


def _rank_places(name: str, texts: Sequence[str]) -> list[int]:
    """The places of a section's lines, the one to keep longest first."""
    places = list(range(len(texts)))
    if name in ("EARLIER", "CURRENT_STATE", "PENDING"):
        return places
    if name == "USER_CONTEXT":
        return [*places[:1], *reversed(places[1:])]
    if name == "COMPLETED":
        return sorted(
            places, key=lambda place: -(0.6 * place / len(texts) + narrative_sections.score_conclusion(texts[place]))
        )
    if name == "CODE_STATE":
        return sorted(places, key=lambda place: -(place / len(texts) + touched_files.score_interest(texts[place])))
    return places[::-1]


def _fit_facts(whole: DigestRecord, page: LineSelection, count: Callable[[str], int]) -> list[DigestLine]:
    """The facts that the lines taken so far leave room for."""
    told = dict.fromkeys(items("\n".join(line.text for line in page.lines)))
    budget = page.remaining_tokens - count(f"{FACTS}:\n")
    if budget > 0:
        chosen = pick_facts(whole.facts, budget, count, told)
    else:
        chosen = []
    return [
        DigestLine(section=FACTS, text=text, rank=place, place=place, is_firm=True)
        for place, text in enumerate(render_facts(chosen))
    ]


def _render_within(title: str, lines: Iterable[DigestLine], limit: int, count: Callable[[str], int]) -> str:
    """The text, made to hold `limit` where a counter's sum over lines is less than its count of the whole."""
    kept = sorted(lines, key=lambda line: line.rank)
    text = render_lines(title, kept, (*SECTIONS, ATTEMPTS, FACTS))
    while kept and count(text) > limit:
        kept = kept[: len(kept) * 9 // 10]
        text = render_lines(title, kept, (*SECTIONS, ATTEMPTS, FACTS))
    if count(text) <= limit:
        return text
    return ""
