"""What each run cost and lost under each strategy, in memory and, where a file is named, on disk as it is found.

The file is JSON lines: first what all evaluations share (prices, counter, dialect, version), then one evaluation a
line. An evaluation is found again by the content of its run and the text of its strategy: seed, trials, space and
split may change, and runs may come and go.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from elision.errors import OutputError, SpecError, describe_error
from elision.lab.evidence import Evidence, collect_evidence
from elision.lab.replay_workers import WorkerPool
from elision.lab.results import Row, prices_json, total
from elision.lab.run_as_recorded import add_recorded_head
from elision.lab.run_loading import SEVERAL, Candidate, StudySettings
from elision.lab.sent_rows import SentRows, replay_as_sent
from elision.lab.study import find_common_items, replay_candidates
from elision.providers.shared.json_reading import mapping_in
from elision.strategies.spec import describe_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.events import encode_head, encode_turn
from elision.trajectory.prices import Bill
from elision.trajectory.trajectory import Trajectory

FORMAT: Final = "elision.tune-study/1"
#: Fields of a row that depend on the other runs of a corpus, or on where the run lies: they are not kept.
_NOT_KEPT: Final = frozenset(
    (
        *("file", "trajectory", "reader", "strategy", "hindsight_usd", "extended_usd"),
        *("evidence_items_filtered", "evidence_found_filtered", "regret_turns_filtered"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One run under one strategy. row: its figures; None if the run does not fit the strategy's budget.

    problem: why it does not, else "".
    """

    row: Row | None
    problem: str = ""


def digest_run(run: Trajectory) -> str:
    """Return what tells the content of `run` from any other's, wherever its file is."""
    content = [run.model, encode_head(run.head), [encode_turn(turn) for turn in run.turns]]
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(slots=True)
class Evaluations:
    """Evaluations by run and strategy. reused: how many a file held for the runs at hand.

    added, gone: runs that the file does not know, and runs of the file that are no longer there.
    """

    digests: tuple[str, ...]
    found: dict[tuple[str, str], Evaluation] = field(default_factory=dict)
    path: Path | None = None
    reused: int = 0
    added: int = 0
    gone: int = 0

    def find(self, place: int, strategy: Strategy) -> Evaluation | None:
        """Return the evaluation of the run at `place` under `strategy`; None if it is still to be made."""
        return self.found.get((self.digests[place], describe_strategy(strategy)))

    def add(self, place: int, strategy: Strategy, evaluation: Evaluation) -> None:
        """Keep `evaluation`, on disk too where a file is named. Raises OutputError."""
        key = self.digests[place], describe_strategy(strategy)
        self.found[key] = evaluation
        if self.path is not None:
            line = {"run": key[0], "strategy": key[1], **_encode_evaluation(evaluation)}
            _append_line(self.path, line)


def open_evaluations(
    runs: tuple[Trajectory, ...], settings: StudySettings, version: str, path: Path | None
) -> Evaluations:
    """Return the evaluations that `path` holds of `runs`, and write new ones there; all in memory if it is None.

    Raises SpecError for a file that was made with other prices or another way of counting, OutputError for one that is
    no study of ours or cannot be written.
    """
    evaluations = Evaluations(digests=tuple(map(digest_run, runs)), path=path)
    if path is None:
        return evaluations
    header = {"format": FORMAT, "settings": describe_settings(settings, version)}
    lines = _read_lines(path)
    if not lines:
        _append_line(path, header)
        return evaluations
    _check_header(path, lines[0], header)
    known = set()
    for number, line in enumerate(lines[1:], start=2):
        try:
            run, strategy, evaluation = line["run"], line["strategy"], _decode_evaluation(line)
        except (KeyError, TypeError) as error:
            raise SpecError(
                f"--study {path}, line {number}: no evaluation of this version ({describe_error(error)}); "
                "name another file, or remove this one"
            ) from error
        known.add(run)
        evaluations.found[run, strategy] = evaluation
    mine = set(evaluations.digests)
    evaluations.reused = sum(run in mine for run, _ in evaluations.found)
    if known:
        evaluations.added = len(mine - known)
        evaluations.gone = len(known - mine)
    return evaluations


def describe_settings(settings: StudySettings, version: str) -> dict[str, Any]:
    """Return what evaluations must share to be comparable."""
    prices = {"name": SEVERAL} if settings.prices is None else prices_json(settings.prices)
    return {"prices": prices, "tokens": settings.tokens, "dialect": settings.dialect, "version": version}


def _check_header(path: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    theirs = found.get("settings")
    ours = json.loads(json.dumps(expected["settings"]))
    if not isinstance(theirs, dict) or theirs == ours:
        return
    changed = [name for name in ours if theirs.get(name) != ours[name]]
    names = {
        "prices": mapping_in(theirs.get("prices")).get("name", "unknown"),
        "tokens": theirs.get("tokens"),
        "dialect": theirs.get("dialect"),
        "version": f"Elision {theirs.get('version')}",
    }
    was = ", ".join(f"{name} ({names.get(name)})" for name in changed)
    raise SpecError(
        f"--study {path}: its evaluations were made with other settings: {was}; give the same options, "
        "name another file, or remove this one"
    )


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of `path`, and cut off what an interruption left of a last one. [] if there is none."""
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise OutputError(f"--study {path}: cannot be read ({error.strerror or error})") from error
    whole = content[: content.rfind(b"\n") + 1]
    try:
        lines = [json.loads(line) for line in whole.splitlines()]
        ours = not content.strip() or (bool(lines) and lines[0].get("format") == FORMAT)
    except (ValueError, AttributeError):
        ours = False
    if not ours:
        raise OutputError(f"--study {path}: already exists and is not a study of elision tune; name another file")
    if len(whole) < len(content):
        with _name_file_in_errors(path), path.open("r+b") as file:
            file.truncate(len(whole))
    return lines


def _append_line(path: Path, value: Mapping[str, Any]) -> None:
    """A line in one write: several processes may share the file."""
    with _name_file_in_errors(path), path.open("ab", buffering=0) as file:
        file.write(json.dumps(value, ensure_ascii=True, allow_nan=False).encode() + b"\n")


@contextmanager
def _name_file_in_errors(path: Path) -> Iterator[None]:
    """Raise the system's refusals as an OutputError that names the file."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"--study {path}: cannot be written ({error.strerror or error})") from error


def _encode_evaluation(evaluation: Evaluation) -> dict[str, Any]:
    if evaluation.row is None:
        return {"problem": evaluation.problem}
    row: dict[str, Any] = msgspec.to_builtins(evaluation.row)
    return {"row": {name: value for name, value in row.items() if name not in _NOT_KEPT}}


def _decode_evaluation(line: Mapping[str, Any]) -> Evaluation:
    values = line.get("row")
    if values is None:
        return Evaluation(row=None, problem=str(line.get("problem", "")))
    bills = {name: Bill(**values[name]) for name in ("bill", "summarizer")}
    return Evaluation(row=Row(**values | bills))


# -- replays: each run under each strategy once -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreparedRuns:
    """Runs with what their replays need to know of them."""

    runs: tuple[Trajectory, ...]
    known: tuple[Evidence, ...]
    common: tuple[frozenset[str], ...]
    sent: tuple[SentRows, ...]

    def replay(self, place: int, strategy: Strategy, settings: StudySettings) -> Evaluation:
        """Replay the run at `place` under `strategy`, as `elision replay` does."""
        candidate = Candidate(describe_strategy(strategy), strategy)
        result = replay_candidates(
            self.runs[place],
            self.known[place],
            self.common[place],
            replace(settings, candidates=(candidate,)),
            lambda share: None,  # Progress within a run is too fine to show here.
            self.sent[place],
        )
        for row, _ in result.rows:
            if row.strategy == candidate.label:
                return Evaluation(row=row)
        return Evaluation(row=None, problem="; ".join(problem.reason for problem in result.problems))


def prepare_runs(runs: Sequence[Trajectory], settings: StudySettings) -> PreparedRuns:
    """Return `runs` with their evidence, as a replay prepares them."""
    with_heads = tuple(add_recorded_head(run, settings.size_run(run)) for run in runs)
    known = tuple(collect_evidence(run) for run in with_heads)
    common = tuple(find_common_items(with_heads, known))
    sent = tuple(
        replay_as_sent(run, settings.find_prices(run), settings.size_run(run), evidence, shared)
        for run, evidence, shared in zip(with_heads, known, common, strict=True)
    )
    return PreparedRuns(with_heads, known, common, sent)


@dataclass(frozen=True, slots=True)
class RunEvaluator:
    """Replays what is not known yet. watch: called after each replay. pool: the processes; None for this one."""

    prepared: PreparedRuns
    settings: StudySettings
    evaluations: Evaluations
    watch: Callable[[], None]
    pool: WorkerPool | None = None

    def evaluate(self, strategies: Sequence[Strategy], places: Sequence[int]) -> None:
        """Replay the runs at `places` under each of `strategies`, where that is not known yet."""
        missing = [
            (place, strategy)
            for strategy in dict.fromkeys(strategies)
            for place in places
            if self.evaluations.find(place, strategy) is None
        ]
        for place, strategy, evaluation in self._replay(missing):
            self.evaluations.add(place, strategy, evaluation)
            self.watch()

    def sum_runs(self, strategy: Strategy, places: Iterable[int]) -> Row | None:
        """Return the sum of the runs at `places` under `strategy`; None if it is not known, or does not fit one."""
        rows = []
        for place in places:
            evaluation = self.evaluations.find(place, strategy)
            if evaluation is None or evaluation.row is None:
                return None
            rows.append(evaluation.row)
        return replace(total(rows), strategy=describe_strategy(strategy)) if rows else None

    def sum_sent_runs(self, label: str, places: Iterable[int]) -> Row | None:
        """Return the sum of what happened in those of the runs at `places` that say; None where none does."""
        rows = [row for place in places for row, _ in self.prepared.sent[place].rows if row.strategy == label]
        return total(rows) if rows else None

    def _replay(self, missing: Sequence[tuple[int, Strategy]]) -> Iterator[tuple[int, Strategy, Evaluation]]:
        """Yield the evaluations of `missing` as they are made."""
        if self.pool is None:
            for place, strategy in missing:
                yield place, strategy, self.prepared.replay(place, strategy, self.settings)
            return
        # The longest runs first, so that none is left alone at the end.
        order = sorted(missing, key=lambda pair: -len(self.prepared.runs[pair[0]].turns))
        for done in self.pool.run(_replay_in_process, order):
            if done is not None:
                (place, strategy), evaluation = done
                yield place, strategy, evaluation


def _replay_in_process(prepared: PreparedRuns, settings: StudySettings, place: int, strategy: Strategy) -> Evaluation:
    return prepared.replay(place, strategy, settings)
