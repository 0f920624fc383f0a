"""An audit of agents' logs: what was found in all runs together, what Elision would have saved, and both as JSON.

Logs are found and read run by run; what was done stays after an interrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from elision.audit.cause_table import CAUSES, Cause, CauseTotal, sum_totals
from elision.audit.habits import HABITS, Habit
from elision.audit.prompt_content import ToolBill, sum_tools
from elision.audit.run_partition import (
    AuditedRun,
    AuditFinding,
    CallSignature,
    PriceFinder,
    find_list_prices,
    partition_run,
)
from elision.errors import FormatError
from elision.formats.registry import read_runs
from elision.lab.ratios import divide_or_none
from elision.lab.replay import replay_run
from elision.lab.results import BILLED, LEAST_SAVING, SentSummary, SummaryTable, encode_problems
from elision.lab.run_as_recorded import add_recorded_head, size_run, sizer
from elision.lab.run_loading import RECOMMENDED
from elision.lab.sent_rows import replay_as_sent
from elision.strategies.spec import parse_strategy
from elision.trajectory.prices import Prices
from elision.trajectory.run_roles import ROLES, Role
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Problem, Trajectory

#: Findings that JSON and page list, the most expensive first.
LISTED_FINDINGS: Final = 50
#: Share by which a recorded bill may differ from the sum of the causes before the report says so.
TOLERANCE: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """What runs add up to, each figure as in `AuditedRun`. causes: those that occur, in the order of `CAUSES`."""

    runs: int
    calls: int
    usd: float
    stated_usd: float
    stated_list_usd: float
    stated_calls: int
    copied_calls: int
    first_tokens: int
    first_read: int
    causes: dict[Cause, CauseTotal]

    @property
    def avoidable_usd(self) -> float:
        return sum(total.avoidable_usd for total in self.causes.values())

    @property
    def difference(self) -> float | None:
        """By what share the sum of the causes differs from the recorded bill; None without one."""
        return compare_bills(self.stated_usd, self.stated_list_usd)


def sum_runs(runs: Iterable[AuditedRun]) -> RunTotals:
    """Return what `runs` add up to."""
    counted = list(runs)
    causes = sum_totals(run.causes for run in counted)
    names = [each.name for each in fields(RunTotals) if each.name != "causes"]
    sums = {name: sum(getattr(run, name) for run in counted) for name in names}
    return RunTotals(**sums, causes={cause: causes[cause] for cause in CAUSES if cause in causes})


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """runs: those with recorded usage. silent: logs without any. finished: False if the user interrupted.

    counter: how tokens were counted. saving: None where no replay was asked for. tables: of a study, whose `runs` are
    sums by format and model: the bill by agent, tag, day and model.
    """

    runs: tuple[AuditedRun, ...]
    silent: int = 0
    problems: tuple[Problem, ...] = ()
    finished: bool = True
    counter: str = "o200k"
    saving: SavingEstimate | None = None
    tables: tuple[SummaryTable, ...] = ()

    @cached_property
    def total(self) -> RunTotals:
        """Return everything that is added up over the runs."""
        return sum_runs(self.runs)

    @property
    def habits(self) -> dict[Habit, CauseTotal]:
        """The habits that occur, in the order of `HABITS`; they overlap the causes and each other."""
        found = sum_totals(run.habits for run in self.runs)
        return {habit: found[habit] for habit in HABITS if habit in found}

    @property
    def tools(self) -> list[ToolBill]:
        """The tools that the runs declare, what was paid for nothing first."""
        return sum_tools(run.tools for run in self.runs)

    @property
    def unpriced(self) -> dict[str, tuple[int, int]]:
        """Model without a price -> its calls and tokens."""
        found: dict[str, tuple[int, int]] = {}
        for run in self.runs:
            if run.unpriced_calls:
                calls, tokens = found.get(run.model, (0, 0))
                found[run.model] = (calls + run.unpriced_calls, tokens + run.unpriced_tokens)
        return found

    @property
    def findings(self) -> list[AuditFinding]:
        """The calls at which old text was sent again, the most expensive first."""
        found = [finding for run in self.runs for finding in run.findings]
        return sorted(found, key=lambda finding: -finding.usd)

    @property
    def main_reader(self) -> str:
        """The format that most of the bill is for; "" without any."""
        readers = self.total_readers()
        return max(readers, key=lambda reader: readers[reader].usd, default="")

    @property
    def strategy(self) -> str:
        """The strategy to take: the recommended one where its replay costs less than what was sent."""
        if self.saving is None or self.saving.to_recorded is None or self.saving.to_recorded < LEAST_SAVING:
            return RECOMMENDED
        return "raw"

    def total_roles(self) -> dict[Role, RunTotals]:
        """Return what the runs of each role that occurs add up to."""
        found = {role: [run for run in self.runs if run.role == role] for role in ROLES}
        return {role: sum_runs(runs) for role, runs in found.items() if runs}

    def total_readers(self) -> dict[str, RunTotals]:
        """Return what the runs of each format add up to, by its name."""
        readers = sorted({run.reader for run in self.runs})
        return {reader: sum_runs(run for run in self.runs if run.reader == reader) for reader in readers}

    def to_json(self) -> dict[str, Any]:
        total = self.total
        return {
            "finished": self.finished,
            "counter": self.counter,
            "calls": total.calls,
            "usd": total.usd,
            "avoidable_usd": total.avoidable_usd,
            "recorded": {
                "calls": total.stated_calls,
                "usd": total.stated_usd,
                "causes_usd": total.stated_list_usd,
                "difference": total.difference,
            },
            "causes": encode_causes(total.causes),
            "habits": encode_causes(self.habits),
            "roles": {
                role: {name: getattr(each, name) for name in ("runs", "calls", "usd", "first_tokens", "first_read")}
                | {"causes": encode_causes(each.causes)}
                for role, each in self.total_roles().items()
            },
            "tools": [bill.to_json() for bill in self.tools],
            "findings": [_encode_finding(finding) for finding in self.findings[:LISTED_FINDINGS]],
            "saving": None if self.saving is None else _encode_saving(self.saving, self.strategy),
            "runs": [_encode_run(run) for run in self.runs if run.file],
            "tables": [asdict(table) for table in self.tables],
            "without_price": [
                {"model": model, "calls": calls, "tokens": tokens} for model, (calls, tokens) in self.unpriced.items()
            ],
            "without_usage": self.silent,
            "copied_calls": total.copied_calls,
            "problems": encode_problems(self.problems),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingEstimate:
    """What runs cost, in USD; all but `billed_usd` is simulated, with the same counts and cache.

    sent: how the runs were sent. billed_usd: by the recorded usage, of the runs that have a bill. recorded_usd: as the
    agents sent their requests. raw_usd: of sending everything, which is a hypothesis where agents condensed their own
    history. instead_usd, on_top_usd: of the recommended strategy instead of that condensing, and on top of it.
    """

    sent: SentSummary = field(default_factory=SentSummary)
    billed_usd: float = 0.0
    recorded_usd: float = 0.0
    raw_usd: float = 0.0
    instead_usd: float = 0.0
    on_top_usd: float = 0.0

    def __add__(self, other: SavingEstimate) -> SavingEstimate:
        return SavingEstimate(
            sent=self.sent + other.sent,
            billed_usd=self.billed_usd + other.billed_usd,
            recorded_usd=self.recorded_usd + other.recorded_usd,
            raw_usd=self.raw_usd + other.raw_usd,
            instead_usd=self.instead_usd + other.instead_usd,
            on_top_usd=self.on_top_usd + other.on_top_usd,
        )

    @property
    def strategy_usd(self) -> float:
        """The recommended strategy, instead of the agents' condensing or on top of it: whichever costs less."""
        return min(self.instead_usd, self.on_top_usd)

    @property
    def is_on_top(self) -> bool:
        """Whether it costs less on top of the agents' own condensing."""
        return self.on_top_usd < self.instead_usd

    @property
    def to_recorded(self) -> float | None:
        """The strategy's bill as a multiple of what was sent; None where nothing was replayed."""
        return divide_or_none(self.strategy_usd, self.recorded_usd)


def estimate_saving(trajectory: Trajectory, prices: Prices, tokens: str) -> SavingEstimate:
    """Replay `trajectory` at `prices`. tokens: name of the counter. Raises SpecError for an unknown one."""
    dialect = "anthropic" if prices.cache.kind == "breakpoints" else "openai"
    run = add_recorded_head(trajectory, size_run(trajectory, prices, sizer(dialect, tokens)))
    counting = size_run(run, prices, sizer(dialect, tokens))
    strategy = parse_strategy(RECOMMENDED)
    as_sent = replay_as_sent(run, prices, counting)
    instead = replay_run(run, strategy, prices, counting, sent=as_sent.sent)
    on_top_usd = instead.usd
    if as_sent.sent.cuts:
        on_top = replay_run(run, strategy, prices, counting, sent=as_sent.sent, is_cut=True)
        on_top_usd = on_top.usd + as_sent.condensing.usd
    billed = sum(row.usd for row, _ in as_sent.rows if row.strategy == BILLED)
    return SavingEstimate(
        sent=as_sent.summary,
        billed_usd=billed,
        recorded_usd=as_sent.usd,
        raw_usd=instead.raw.usd,
        instead_usd=instead.usd,
        on_top_usd=on_top_usd,
    )


def audit_logs(
    paths: Sequence[Path],
    *,
    tokens: str = "o200k",
    price: PriceFinder = find_list_prices,
    replays: bool = True,
    progress: Callable[[int, str], None] = lambda runs, file: None,
) -> AuditReport:
    """Audit every run at or below `paths`.

    tokens: name of the counter. price: the price list of a model. replays: whether savings are estimated, which takes
    most of the time. progress: called for each run with the number of runs before it and its file. After Ctrl-C the
    report has the runs that were finished. Raises SpecError for an unknown counter.
    """
    sizer = Sizer(make_counter(tokens))
    runs: list[AuditedRun] = []
    problems: list[Problem] = []
    known: set[CallSignature] = set()
    saving = SavingEstimate()
    silent = 0
    finished = True
    try:
        for found in _read_paths(paths):
            if isinstance(found, Problem):
                problems.append(found)
                continue
            progress(len(runs) + silent, found.file)
            audited = partition_run(found, sizer, price=price, known=known)
            if audited is None:
                silent += 1
                continue
            if replays and audited.prices is not None and audited.calls > audited.copied_calls:
                saving += estimate_saving(found, audited.prices, tokens)
            runs.append(audited)
    except KeyboardInterrupt:
        finished = False
    return AuditReport(
        runs=tuple(runs),
        silent=silent,
        problems=tuple(problems),
        finished=finished,
        counter=tokens,
        saving=saving if replays else None,
    )


def _read_paths(paths: Sequence[Path]) -> Iterator[Trajectory | Problem]:
    """Yield what is at or below `paths`; a path that holds no run is a Problem and does not end the audit."""
    for path in dict.fromkeys(paths):
        try:
            yield from read_runs(path)
        except FormatError as error:
            yield Problem(file=str(path), line=None, reason=str(error).removeprefix(f"{path}: "))


def find_agent_logs(home: Path, environment: Mapping[str, str], here: Path) -> list[tuple[str, Path]]:
    """Return the agents that have logs on this machine, each with the folder or file.

    home, here: the user's folder and the working folder. environment: may move the folders, as it does for the agents.
    """
    data = _read_folder(environment, "XDG_DATA_HOME", home / ".local/share")
    settings = _read_folder(environment, "XDG_CONFIG_HOME", home / ".config")
    claude = _read_folder(environment, "CLAUDE_CONFIG_DIR", home / ".claude")
    codex = _read_folder(environment, "CODEX_HOME", home / ".codex")
    mini = _read_folder(environment, "MSWEA_GLOBAL_CONFIG_DIR", settings / "mini-swe-agent")
    places = [
        ("Claude Code", claude / "projects"),
        ("Claude Code", settings / "claude/projects"),
        ("Codex", codex / "sessions"),
        ("Codex", codex / "archived_sessions"),
        ("pi", _read_folder(environment, "PI_CODING_AGENT_DIR", home / ".pi/agent") / "sessions"),
        ("opencode", data / "opencode/storage"),
        ("opencode", data / "opencode/opencode.db"),
        ("Gemini CLI", home / ".gemini/tmp"),
        ("mini-swe-agent", mini / "last_mini_run.traj.json"),
        ("Inspect", _read_folder(environment, "INSPECT_LOG_DIR", here / "logs")),
    ]
    found: dict[Path, str] = {}
    for name, path in places:
        # A folder called `logs` is anybody's.
        if path.exists() and (name != "Inspect" or any(path.rglob("*.eval"))):
            found.setdefault(path, name)
    return [(name, path) for path, name in found.items()]


def _read_folder(environment: Mapping[str, str], name: str, usual: Path) -> Path:
    given = environment.get(name, "")
    return Path(given).expanduser() if given else usual


# -- JSON -------------------------------------------------------------------------------------------------------------


def compare_bills(stated: float, causes: float) -> float | None:
    """Return by what share the sum of the causes differs from the recorded bill; None without one."""
    ratio = divide_or_none(causes, stated)
    return None if ratio is None else ratio - 1


def encode_causes(causes: Mapping[Cause, CauseTotal] | Mapping[Habit, CauseTotal]) -> dict[str, Any]:
    """Return the totals as JSON."""
    return {cause: asdict(total) for cause, total in causes.items()}


def _encode_finding(finding: AuditFinding) -> dict[str, Any]:
    return {
        "file": finding.file,
        "trajectory": finding.trajectory,
        "call": finding.call,
        "cause": finding.cause,
        "usd": finding.usd,
        "tokens": finding.tokens,
        "first_token": finding.first_token,
        "place": finding.place,
        "seconds_since_call_before": finding.seconds,
        "inferred": finding.is_inferred,
        "changed": list(finding.changed),
    }


def _encode_run(run: AuditedRun) -> dict[str, Any]:
    stated = run.stated_calls > 0
    return {
        "file": run.file,
        "trajectory": run.trajectory,
        "reader": run.reader,
        "model": run.model,
        "priced_as": None if run.prices is None else run.prices.name,
        "calls": run.calls,
        "cached": run.is_cached,
        "role": run.role,
        "usd": run.usd,
        "recorded_usd": run.stated_usd if stated else None,
        "difference": compare_bills(run.stated_usd, run.stated_list_usd) if stated else None,
        "copied_calls": run.copied_calls,
        "causes": encode_causes(sum_runs([run]).causes),
    }


def _encode_saving(saving: SavingEstimate, strategy: str) -> dict[str, Any]:
    return {
        "sent": asdict(saving.sent),
        "billed_usd": saving.billed_usd,
        "recorded_usd": saving.recorded_usd,
        "everything_usd": saving.raw_usd,
        "instead_usd": saving.instead_usd,
        "on_top_usd": saving.on_top_usd,
        "recommended_to_recorded": saving.to_recorded,
        "strategy": strategy,
    }
