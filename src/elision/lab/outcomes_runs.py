"""Runs with their cost and their instance: out of recordings, out of a store's sessions, out of a table."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from elision.errors import FormatError, PriceError, StoreError
from elision.formats.document import Document, JsonLine, peek_objects, read_json_lines, read_json_value
from elision.formats.registry import read_runs
from elision.formats.source import read_documents
from elision.lab.outcomes import CostSource, InstanceRun
from elision.lab.ratios import sum_or_none
from elision.lab.results import SentSummary
from elision.lab.run_loading import find_recorded_prices
from elision.lab.sent_rows import replay_recording
from elision.manager.session_history import shorten_strategy
from elision.providers.shared.json_reading import mapping_in, text_in
from elision.stores.store import SessionInfo, Store
from elision.trajectory.events import (
    Event,
    HeadSet,
    PassDecided,
    RequestSent,
    SessionOpened,
    SummaryFailed,
    UsageReported,
)
from elision.trajectory.price_lookup import cost_reported_usage, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.turn import Head, join_text
from elision.trajectory.usage import Usage

#: What the readers add to the name of a retrying agent's attempts.
_ATTEMPT: Final = re.compile(r" attempt \d+$")
#: Files that lie beside recordings and are none.
_COMPANIONS: Final = frozenset({"preds.json", "all_preds.jsonl", "report.json", "results.json"})
#: Columns of a table, each by the names that it may have.
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "instance": ("instance_id",),
    "usd": ("cost", "usd"),
    "summary": ("summary_cost", "summary_usd"),
    "turns": ("turn_count", "turns", "api_calls"),
    "solved": ("resolved", "solved", "outcome"),
}
_Item = TypeVar("_Item")
_SOLVED: Final = {
    **dict.fromkeys(("1", "1.0", "true", "yes"), True),
    **dict.fromkeys(("0", "0.0", "false", "no"), False),
}


@dataclass(frozen=True, slots=True)
class Task:
    """What an agent was asked to do for an instance, without its line breaks. instance: the id."""

    instance: str
    text: str


class InstanceNamer:
    """Finds the instance of a run: by the run's name, its file, or what it was asked.

    instances: ids that are known. tasks: what each asks.
    """

    def __init__(self, instances: Iterable[str], tasks: Iterable[Task] = ()) -> None:
        self._tasks: dict[str, set[str]] = defaultdict(set)
        for task in tasks:
            if task.text:
                self._tasks[task.text].add(task.instance)
        named = {instance for held in self._tasks.values() for instance in held}
        #: The longest first: an id may begin another one.
        self._instances = sorted({*instances, *named}, key=lambda id: (-len(id), id))

    def find_instance(self, name: str, file: str = "", asked: str = "") -> str:
        """Return the id of the run's instance; its name where nothing else is known.

        asked: the user's messages that the run began with.
        """
        plain = _ATTEMPT.sub("", name)
        for place in (plain, file):
            found = self._find_id(place)
            if found:
                return found
        return self._find_task(asked) or plain

    def _find_id(self, text: str) -> str:
        """Return the longest known id in `text` that is no part of a longer word."""
        for id in self._instances:
            start = text.find(id)
            while start >= 0:
                before = text[start - 1 : start]
                after = text[start + len(id) : start + len(id) + 1]
                if not before.isalnum() and not after.isalnum():
                    return id
                start = text.find(id, start + 1)
        return ""

    def _find_task(self, asked: str) -> str:
        """Return the instance whose task is asked, or is a part of what is asked; "" unless there is exactly one."""
        text = flatten_text(asked)
        if not text:
            return ""
        whole = self._tasks.get(text)
        if whole is None:
            longest = max((task for task in self._tasks if task in text), key=len, default="")
            whole = self._tasks.get(longest, set())
        return next(iter(whole)) if len(whole) == 1 else ""


def flatten_text(text: str) -> str:
    """Return `text` with one space for every run of spaces and line breaks."""
    return " ".join(text.split())


def load_tasks(path: Path) -> list[Task]:
    """Return what instances ask: a benchmark's (`instance_id` and `problem_statement`, JSON or JSON lines), or that of
    recorded runs whose names are instance ids. Raises FormatError.
    """
    if path.is_file():
        tasks = [task for document in read_documents(path) for task in _list_statements(document)]
        if tasks:
            return tasks
    return [
        Task(_ATTEMPT.sub("", run.id), flatten_text(_join_asked(run.head)))
        for run in read_runs(path)
        if isinstance(run, Trajectory)
    ]


def load_recorded_runs(
    path: Path, strategy: str, namer: InstanceNamer, prices: Prices | None = None
) -> tuple[list[InstanceRun], list[str]]:
    """Return the recorded runs at or below `path` as those of `strategy`, and what could not be read.

    Attempts and sub-agents count to the run that they belong to. prices: for all recorded usage, instead of the costs
    that recordings state. Raises FormatError.
    """
    problems: list[str] = []
    runs: dict[tuple[str, str | None], Trajectory] = {}
    parts: dict[tuple[str, str], list[InstanceRun]] = defaultdict(list)
    for found in read_runs(path):
        if isinstance(found, Problem):
            if Path(found.file).name not in _COMPANIONS:
                problems.append(str(found))
            continue
        runs[found.file, found.id] = found
        root = _find_root(found, lambda run: runs.get((run.file, run.parent)))
        instance = namer.find_instance(root.id, root.file, _join_asked(root.head))
        usd, source, silent = _cost_trajectory(found, prices)
        as_sent = replay_recording(found, prices or find_recorded_prices(found))
        part = InstanceRun(
            instance=instance,
            strategy=strategy,
            place=found.file,
            name=root.id,
            turns=len(found.turns),
            usd=usd,
            recorded_usd=as_sent.usd,
            sent=as_sent.summary,
            source=source,
            silent_calls=silent,
        )
        parts[root.file, _ATTEMPT.sub("", root.id)].append(part)
    return [_add_parts(held) for held in parts.values()], problems


def load_stored_runs(
    store: Store, place: str, strategy: str, namer: InstanceNamer, prices: Prices | None = None
) -> tuple[list[InstanceRun], list[str]]:
    """Return the sessions of a store as runs, and what could not be read.

    Sub-agents, forks and histories that the client rewrote count to the session that they came from; what a fork shares
    with it counts once. strategy: "" for the one that each session began with. place: the store's address. prices: for
    all reported usage.
    """
    problems: list[str] = []
    parts: dict[str, list[InstanceRun]] = defaultdict(list)
    asked: dict[str, str] = {}
    infos = {info.key: info for info in store.sessions()}
    for info in sorted(infos.values(), key=lambda info: (info.begun, info.key)):
        root = _find_root(info, lambda each: infos.get(each.parent))
        try:
            run, head = _read_session(store, info, place, prices)
            asked.setdefault(root.key, _join_asked(head))
            parts[root.key].append(replace(run, strategy=strategy or run.strategy))
        except StoreError as error:
            problems.append(f"session {info.key}: {error}")
    found = []
    for key, held in parts.items():
        instance = namer.find_instance(key, "", asked[key])
        found.append(replace(_add_parts(held), instance=instance, name=key))
    return found, problems


def load_table_runs(path: Path, strategy: str, by: str = "strategy") -> list[InstanceRun] | None:
    """Return the runs of a CSV table, a row each; None if `path` is no such table.

    Columns: `instance_id`, `cost` in USD without summaries, and, if there are any, `summary_cost`, `turn_count`,
    `resolved` (also called solved or outcome), and the column `by`, which names the strategy unless `strategy` does.
    Raises FormatError, with the line, where a value is missing or no number.
    """
    if not path.is_file():
        return None
    document = next((each for each in read_documents(path) if isinstance(each, Document)), None)
    if document is None or "instance_id" not in document.data[:4_096].partition(b"\n")[0].decode(errors="replace"):
        return None
    if document.data.lstrip()[:1] in (b"{", b"["):
        return None
    try:
        text = document.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    rows = csv.DictReader(io.StringIO(text))
    columns = _find_columns(path, rows.fieldnames or (), strategy, by)
    return [
        _read_row(row, columns, strategy or (row.get(by) or "").strip() or "unknown", f"{path}:{rows.line_num}")
        for row in rows
    ]


# -- recordings -------------------------------------------------------------------------------------------------------


def _find_root(item: _Item, find_parent: Callable[[_Item], _Item | None]) -> _Item:
    """Return the run or session that started `item`, or itself."""
    line = [item]
    while (parent := find_parent(line[-1])) is not None and all(parent is not each for each in line):
        line.append(parent)
    return line[-1]


def _join_asked(head: Head) -> str:
    return "\n".join(join_text(message.content) for message in head.messages if message.role == "user")


def _cost_trajectory(run: Trajectory, prices: Prices | None) -> tuple[float | None, CostSource, int]:
    """Return a recording's cost in USD, where it is from, and the number of calls without usage."""
    if prices is None and run.usd is not None:
        return run.usd, "stated", 0
    reported = [(turn.usage, turn.model or run.model) for turn in run.turns if turn.usage is not None]
    usd = _sum_costs(reported, prices)
    if not reported or usd is None:
        return None, "unknown", 0
    is_stated = prices is None and all(usage.usd is not None for usage, _ in reported)
    return usd, "stated" if is_stated else "usage", len(run.turns) - len(reported)


def _sum_costs(calls: Iterable[tuple[Usage, str]], prices: Prices | None) -> float | None:
    """Return what calls cost, in USD; None where neither the recording nor a price list knows that of one.

    calls: usage and model of each. prices: of all of them, whatever the recording states.
    """
    total = 0.0
    for usage, model in calls:
        if prices is not None:
            total += cost_reported_usage(replace(usage, usd=None), prices)
        elif usage.usd is not None:
            total += usage.usd
        else:
            try:
                total += cost_reported_usage(usage, find_prices(model))
            except PriceError:
                return None
    return total


def _add_parts(parts: Sequence[InstanceRun]) -> InstanceRun:
    """Return runs that belong together as one: that of the first, with the turns and costs of all."""
    usd = sum_or_none(part.usd for part in parts)
    sources = {part.source for part in parts}
    source: CostSource = "unknown"
    if usd is not None:
        source = "usage" if "usage" in sources else "stated"
    return replace(
        parts[0],
        turns=sum(part.turns for part in parts),
        usd=usd,
        summary_usd=0.0 if usd is None else sum(part.summary_usd for part in parts),
        recorded_usd=sum_or_none(part.recorded_usd for part in parts),
        sent=sum((part.sent for part in parts), SentSummary()),
        source=source,
        silent_calls=sum(part.silent_calls for part in parts),
        played=any(part.played for part in parts),
    )


def _list_statements(document: Document | Problem) -> Iterator[Task]:
    """Yield the tasks of a benchmark's file; nothing if it is none."""
    if isinstance(document, Problem) or b'"problem_statement"' not in document.data:
        return
    values: list[object] = []
    if peek_objects(document, 1):
        values = [line.value for line in read_json_lines(document) if isinstance(line, JsonLine)]
    else:
        value = read_json_value(document)
        values = value if isinstance(value, list) else [value]
    for each in map(mapping_in, values):
        id = text_in(each.get("instance_id"))
        if id:
            yield Task(id, flatten_text(text_in(each.get("problem_statement"))))


# -- sessions ---------------------------------------------------------------------------------------------------------


def _read_session(store: Store, info: SessionInfo, place: str, prices: Prices | None) -> tuple[InstanceRun, Head]:
    """Return the run of one session, and the head that it began with, which names the task."""
    bill = _SessionBill(shared_until=info.begun if info.parent else None, prices=prices)
    for event in store.events(info.key):
        bill.add_event(event)
    usd, source = bill.compute_cost()
    run = InstanceRun(
        instance=info.key,
        strategy=shorten_strategy(bill.strategy) or "unknown",
        place=place,
        name=info.key,
        turns=len(bill.calls),
        usd=usd,
        summary_usd=bill.compute_summary_cost() or 0.0,
        source=source,
        silent_calls=len(bill.calls.keys() - bill.usages.keys()),
        played=any(usage.played for usage in bill.usages.values()),
    )
    return run, bill.head or Head()


@dataclass(slots=True)
class _SessionBill:
    """What a session's log says of its calls. shared_until: calls before then, seconds since the epoch, are its
    parent's; None if it has no parent."""

    shared_until: float | None
    prices: Prices | None
    strategy: str = ""
    head: Head | None = None
    calls: dict[int, str] = field(default_factory=dict)
    usages: dict[int, Usage] = field(default_factory=dict)
    _shared: set[int] = field(default_factory=set)
    #: Calls for which a summary was written or tried, and what that used.
    _summaries: list[tuple[int, Usage]] = field(default_factory=list)

    def add_event(self, event: Event) -> None:
        match event:
            case SessionOpened():
                self.strategy = self.strategy or event.strategy
            case HeadSet():
                # The first: whatever a client makes of it later, that is the task.
                self.head = self.head or event.head
            case RequestSent():
                if self.shared_until is not None and event.at is not None and event.at < self.shared_until:
                    self._shared.add(event.call)
                else:
                    self.calls[event.call] = event.model
            case UsageReported() if event.call not in self._shared:
                self.usages[event.call] = event.usage
            case PassDecided() if (summary := event.summary) is not None:
                self._add_summary(
                    event.call, summary.input_tokens, summary.cached_tokens, summary.output_tokens, summary.usd
                )
            case SummaryFailed():
                self._add_summary(event.call, event.input, event.cached, event.output, event.usd)
            case _:
                pass

    def _add_summary(self, call: int, input: int, cached: int, output: int, usd: float | None) -> None:
        self._summaries.append((call, Usage.from_inclusive(prompt=input, cache_read=cached, output=output, usd=usd)))

    def compute_cost(self) -> tuple[float | None, CostSource]:
        """Return the cost of the session's own calls and summaries, in USD."""
        calls = ((usage, self.calls.get(call, "")) for call, usage in self.usages.items())
        usd, summaries = _sum_costs(calls, self.prices), self.compute_summary_cost()
        if not self.usages or usd is None or summaries is None:
            return None, "unknown"
        is_stated = self.prices is None and all(usage.usd is not None for usage in self.usages.values())
        return usd + summaries, "stated" if is_stated else "usage"

    def compute_summary_cost(self) -> float | None:
        """Return what summaries cost, in USD; None where one has no price."""
        model = next(iter(self.calls.values()), "")
        own = (
            (usage, self.calls.get(call, "") or model)
            for call, usage in self._summaries
            if call not in self._shared and (usage.prompt or usage.output)
        )
        return _sum_costs(own, self.prices)


# -- tables -----------------------------------------------------------------------------------------------------------


def _find_columns(path: Path, names: Sequence[str], strategy: str, by: str) -> dict[str, str]:
    """Return the columns of a table by what they hold. Raises FormatError where strategy or cost have none."""
    if not strategy and by not in names:
        raise FormatError(
            f"{path}:1: no column {by!r} names the strategy; there are {', '.join(names)}: choose one with --by, or "
            f"name the strategy: NAME={path}"
        )
    found = {what: name for what, known in _COLUMNS.items() for name in reversed(known) if name in names}
    if "usd" not in found:
        raise FormatError(f"{path}:1: no column `cost` in USD; there are {', '.join(names)}")
    return found


def _read_row(
    row: Mapping[str | None, str | None], columns: Mapping[str, str], strategy: str, place: str
) -> InstanceRun:
    """Return the run of a row. strategy: whose it is. place: path and line. Raises FormatError."""
    if None in row or None in row.values():
        raise FormatError(
            f"{place}: {len(row.keys() - {None})} columns are expected, and this row has another number; was the file "
            "cut short?"
        )
    cells = {what: (row[name] or "").strip() for what, name in columns.items()}

    if not cells["instance"]:
        raise FormatError(f"{place}: no instance_id in this row")
    solved = cells.get("solved", "").lower()
    if solved and solved not in _SOLVED:
        raise FormatError(f"{place}: {columns['solved']} is {solved!r}; 1, 0, true or false is expected")
    numbers = {what: _read_number(cells.get(what), columns, what, place) for what in ("usd", "summary", "turns")}
    summary = numbers["summary"] or 0.0
    cost = numbers["usd"]
    return InstanceRun(
        instance=cells["instance"],
        strategy=strategy,
        place=place,
        name=cells["instance"],
        turns=int(numbers["turns"] or 0),
        usd=None if cost is None else cost + summary,
        summary_usd=0.0 if cost is None else summary,
        source="unknown" if cost is None else "stated",
        solved=_SOLVED.get(solved),
    )


def _read_number(text: str | None, columns: Mapping[str, str], what: str, place: str) -> float | None:
    """Return the number in a cell; None where it is empty or there is no such column. Raises FormatError."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    # Also of NaN.
    if not 0 <= number < 1e12:
        raise FormatError(f"{place}: {columns[what]} is {text!r}, no number of zero or more")
    return number
