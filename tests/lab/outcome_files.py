"""Runs and reports as scaffolds and the SWE-bench harness leave them, made from the published figures."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[2] / "examples" / "outcomes" / "complexity-trap-50.csv"


def write_value(path: Path, value: Any) -> Path:
    """Write a text as it is, and any other value as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def published(strategy: str) -> Iterator[dict[str, str]]:
    """The rows of a strategy."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        yield from (row for row in csv.DictReader(file) if row["strategy"] == strategy)


def traj(turns: int, usd: float) -> dict[str, Any]:
    """What SWE-agent writes of a run. usd: of the whole run."""
    step = {"action": "ls", "observation": "setup.py", "response": "Look.", "thought": "Look."}
    history: list[dict[str, Any]] = [{"role": "system", "content": "You are an agent."}]
    history += [{"role": "user", "content": "Mend it."}]
    for _ in range(turns):
        history += [{"role": "assistant", "content": "Look."}, {"role": "user", "content": "setup.py"}]
    info = {"exit_status": "submitted", "model_stats": {"instance_cost": usd, "api_calls": turns}}
    return {"trajectory": [step] * turns, "history": history, "info": info}


def mini_traj(instance: str, turns: int, usd: float, task: str = "Mend it.") -> dict[str, Any]:
    """What mini-swe-agent writes of a run. usd: of each call."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": task},
    ]
    for number in range(turns):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
        usage = {"prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_010}
        extra = {"cost": usd, "response": {"usage": usage, "model": "gpt-5"}}
        messages += [{"role": "assistant", "content": "", "tool_calls": [call], "extra": extra}]
        messages += [{"role": "tool", "tool_call_id": f"c{number}", "content": "setup.py"}]
    return {"trajectory_format": "mini-swe-agent-1.1", "instance_id": instance, "messages": messages, "info": {}}


def write_published(folder: Path, strategy: str) -> tuple[Path, Path]:
    """A folder of SWE-agent's trajectories with the published costs, and the harness's report about them."""
    runs = folder / strategy
    solved: dict[str, bool] = {}
    for row in published(strategy):
        instance = row["instance_id"]
        at = runs / instance / f"{instance}.traj"
        at.parent.mkdir(parents=True)
        usd = float(row["cost"]) + float(row["summary_cost"])
        at.write_text(json.dumps(traj(int(row["turn_count"]), usd)), encoding="utf-8")
        solved[instance] = row["resolved"] == "1"
    (runs / "preds.json").write_text("{}", encoding="utf-8")
    return runs, write_report(folder / f"{strategy}.report.json", solved)


def write_report(path: Path, solved: dict[str, bool], **lists: list[str]) -> Path:
    """The report that `swebench.harness.reporting.make_run_report` writes (5.0.2)."""
    resolved = sorted(instance for instance, is_solved in solved.items() if is_solved)
    unresolved = sorted(solved.keys() - set(resolved))
    names = ("incomplete_ids", "empty_patch_ids", "infra_failure_ids", "ambiguous_failure_ids", "error_ids")
    report: dict[str, Any] = {
        "total_instances": 500,
        "submitted_instances": len(solved),
        "completed_ids": sorted(solved),
        "submitted_ids": sorted(solved),
        "resolved_ids": resolved,
        "unresolved_ids": unresolved,
        **{name: lists.get(name, []) for name in names},
        "failure_reasons": {},
        "schema_version": 2,
    }
    path.write_text(json.dumps(report, indent=4) + "\n", encoding="utf-8")
    return path
