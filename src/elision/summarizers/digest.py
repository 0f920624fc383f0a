"""The model-free digest: a structured summary of real text from the run, written without any model.

Pure: the same request gives the same bytes in any process. Rolling digests stay bounded, since the previous one is
read back (`record.parse`), merged and fitted into the limit again: counts add up, the oldest lines go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from elision.summarizers import files, record, story, workshop
from elision.summarizers.actions import is_code
from elision.summarizers.attempts import by_weight, failures, tried
from elision.summarizers.facts import facts, pick, render
from elision.summarizers.fit import Line, Page, written
from elision.summarizers.prose import clip, cut, plain, unique
from elision.summarizers.record import ATTEMPTS, FACTS, SECTIONS, Record
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


def digest(request: SummaryRequest, count: Callable[[str], int]) -> str:
    """The digest of `request`: at most `max_tokens` by `count`, shorter than what it replaces; "" if nothing fits."""
    limit = min(request.max_tokens, replaced(request, count, request.max_tokens + 1) - 1)
    if limit <= 0:
        return ""
    return fitted(merged(request), limit, count)


def replaced(request: SummaryRequest, count: Callable[[str], int], enough: int) -> int:
    """Tokens of what the digest replaces, counted no further than `enough`."""
    total = 0
    for text in _replaced(request):
        total += count(text)
        if total >= enough:
            break
    return total


def merged(request: SummaryRequest) -> Record:
    """Everything the digest could say: the previous one, read back, and what the new turns add."""
    turns = request.turns
    old = record.parse(request.previous) or _foreign(request.previous, turns)
    results = [observation for turn in turns for observation in turn.observations]
    attempts = tried(turns, old.attempts)
    return Record(
        first=old.first,
        last=turns[-1].index if turns else old.last,
        calls=old.calls + len(results),
        failed=old.failed + failures(attempts) - failures(old.attempts),
        sections=_sections(request, old),
        attempts=attempts,
        facts=tuple(facts(turns, request.task, old.facts)),
    )


def fitted(whole: Record, limit: int, count: Callable[[str], int]) -> str:
    """The text of as much of `whole` as fits `limit` tokens."""
    page = Page(limit - count(whole.title + "\n"), count)
    lines = list(_lines(whole))
    page.take(lines, reserve=int(FACTS_SHARE * limit) if whole.facts else 0)
    page.take(_told(whole, page, count))
    page.take(lines)
    return _held(whole.title, page.lines, limit, count)


def _replaced(request: SummaryRequest) -> Iterator[str]:
    yield from filter(None, (request.previous,))
    for turn in request.turns:
        yield from filter(None, (spoken(turn), *(observation.text for observation in turn.observations)))


def _foreign(previous: str, turns: Sequence[Turn]) -> Record:
    """A previous summary that is no digest: quoted, head and tail."""
    first = turns[0].index if turns else 1
    lines = cut(plain(previous), _QUOTED, "\n[…]\n").splitlines()
    quoted = unique([clip(line, 200) for line in lines if line.strip()])
    return Record(
        first=1 if previous.strip() else first, last=max(1, first - 1), sections={"EARLIER": quoted} if quoted else {}
    )


def _sections(request: SummaryRequest, old: Record) -> dict[str, tuple[str, ...]]:
    new = _new(request, old)
    found = {}
    for name in SECTIONS:
        before = old.sections.get(name, ())
        fresh = new.get(name, ())
        if name == "CODE_STATE":
            found[name] = tuple(fresh)
        elif name in _REPLACED and fresh:
            found[name] = unique(tuple(fresh))
        else:
            found[name] = unique((*(clip(line, _OLD_WIDTH) for line in before), *fresh))
    return {name: lines for name, lines in found.items() if lines}


def _new(request: SummaryRequest, old: Record) -> dict[str, Sequence[str]]:
    turns = request.turns
    finished = story.done(turns)
    pending = story.ahead(turns)
    told = {*finished, *pending}
    stands = story.state(turns)
    found: dict[str, Sequence[str]] = {
        "USER_CONTEXT": story.context("" if old.sections.get("USER_CONTEXT") else request.task, turns),
        "COMPLETED": finished,
        "PENDING": pending,
        "CURRENT_STATE": [line for line in stands if line.replace("] said: ", "] ") not in told] or stands[:1],
    }
    known = [state for line in old.sections.get("CODE_STATE", ()) if (state := files.parse(line))]
    if known or any(is_code(action) for turn in turns for action in turn.actions):
        touched = files.touches(turns)
        found |= {
            "CODE_STATE": [str(state) for state in files.states(touched, known)],
            "CHANGES": [str(touch) for touch in touched if touch.verb != "read"],
            "TESTS": workshop.tests(turns),
            "DEPS": workshop.dependencies(turns),
            "VERSION_CONTROL_STATUS": workshop.version_control(turns),
        }
    return found


def _lines(whole: Record) -> Iterator[Line]:
    for name, texts in whole.sections.items():
        for nth, place in enumerate(_by_weight(name, texts), start=1):
            yield Line(section=name, text=texts[place], rank=nth / _WEIGHTS[name], place=place)
    for place, attempt in enumerate(by_weight(whole.attempts)):
        yield Line(section=ATTEMPTS, text=str(attempt), rank=(place + 1) / _WEIGHTS[ATTEMPTS], place=place)


def _by_weight(name: str, texts: Sequence[str]) -> list[int]:
    """The places of a section's lines, the one to keep longest first."""
    places = list(range(len(texts)))
    if name in ("EARLIER", "CURRENT_STATE", "PENDING"):
        return places
    if name == "USER_CONTEXT":
        return [*places[:1], *reversed(places[1:])]
    if name == "COMPLETED":
        return sorted(places, key=lambda place: -(0.6 * place / len(texts) + story.conclusive(texts[place])))
    if name == "CODE_STATE":
        return sorted(places, key=lambda place: -(place / len(texts) + files.interest(texts[place])))
    return places[::-1]


def _told(whole: Record, page: Page, count: Callable[[str], int]) -> list[Line]:
    """The facts that the lines taken so far leave room for."""
    told = dict.fromkeys(items("\n".join(line.text for line in page.lines)))
    budget = page.left - count(f"{FACTS}:\n")
    if budget > 0:
        chosen = pick(whole.facts, budget, count, told)
    else:
        chosen = []
    return [
        Line(section=FACTS, text=text, rank=place, place=place, firm=True) for place, text in enumerate(render(chosen))
    ]


def _held(title: str, lines: Iterable[Line], limit: int, count: Callable[[str], int]) -> str:
    """The text, made to hold `limit` where a counter's sum over lines is less than its count of the whole."""
    kept = sorted(lines, key=lambda line: line.rank)
    text = written(title, kept, (*SECTIONS, ATTEMPTS, FACTS))
    while kept and count(text) > limit:
        kept = kept[: len(kept) * 9 // 10]
        text = written(title, kept, (*SECTIONS, ATTEMPTS, FACTS))
    if count(text) <= limit:
        return text
    return ""
