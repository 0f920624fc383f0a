"""Find the logs of agents, read them run by run and divide their bills; what was done stays after an interrupt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from elision.audit.audit_report import AuditReport, SavingEstimate, estimate_saving
from elision.audit.run_partition import (
    AuditedRun,
    CallSignature,
    PriceFinder,
    find_list_prices,
    partition_run,
)
from elision.errors import FormatError
from elision.formats.registry import read_runs
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Problem, Trajectory


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
