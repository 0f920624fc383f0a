"""Reports of the harness and what scaffolds write: every shape, and every way in which one is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from elision.errors import FormatError
from elision.lab.outcomes_files import merge_outcomes, read_outcomes
from tests.lab.outcome_files import write_report, write_value


def graded(path: Path) -> dict[str, bool]:
    return {each.instance: each.solved for each in read_outcomes(path).outcomes}


def test_the_report_of_a_run(tmp_path: Path) -> None:
    """What failed to run or had an empty patch is not solved; what was never handed in counts only where it was run."""
    path = write_report(
        tmp_path / "r.json", {"a": True, "b": False}, error_ids=["c"], empty_patch_ids=["d"], incomplete_ids=["e"]
    )
    assert graded(path) == {"a": True, "b": False, "c": False, "d": False}
    found = read_outcomes(path, "raw")
    assert [each.instance for each in found.absent] == ["e"]
    assert {each.strategy for each in found.outcomes} == {"raw"}
    assert found.instances == set("abcde")


def test_reports_of_instances(tmp_path: Path) -> None:
    """The harness writes each into a folder of its own, beside logs that are none."""
    for instance, solved in (("a__b-1", True), ("a__b-2", False)):
        value = {instance: {"patch_exists": True, "patch_successfully_applied": True, "resolved": solved}}
        write_value(tmp_path / "logs" / "run" / "model" / instance / "report.json", value)
        write_value(tmp_path / "logs" / "run" / "model" / instance / "test_output.txt", "1 passed")
    assert graded(tmp_path / "logs") == {"a__b-1": True, "a__b-2": False}
    assert graded(tmp_path / "logs" / "run" / "model" / "a__b-1" / "report.json") == {"a__b-1": True}


def test_the_leaderboards_file(tmp_path: Path) -> None:
    value = {"no_generation": ["c"], "generated": ["a", "b"], "with_logs": ["a", "b"], "resolved": ["a"]}
    path = write_value(tmp_path / "results.json", value)
    assert graded(path) == {"a": True, "b": False}
    assert [each.instance for each in read_outcomes(path).absent] == ["c"]


@pytest.mark.parametrize("form", ["lines", "list"])
def test_records_of_any_benchmark(tmp_path: Path, form: str) -> None:
    records = [{"instance_id": "a", "resolved": True}, {"instance_id": "b", "resolved": False}]
    text = "\n".join(map(json.dumps, records)) if form == "lines" else json.dumps(records)
    assert graded(write_value(tmp_path / "r.jsonl", text)) == {"a": True, "b": False}


def test_predictions(tmp_path: Path) -> None:
    """An empty patch solves nothing; another has to be graded."""
    value = {
        "a": {"model_name_or_path": "m", "instance_id": "a", "model_patch": "diff --git"},
        "b": {"model_name_or_path": "m", "instance_id": "b", "model_patch": ""},
        "c": {"model_name_or_path": "m", "instance_id": "c", "model_patch": None},
    }
    found = read_outcomes(write_value(tmp_path / "preds.json", value), "raw")
    assert found.outcomes == ()
    assert [each.instance for each in found.absent] == ["b", "c"]
    assert list(found.patches) == [("raw", "a")]


def test_exit_statuses(tmp_path: Path) -> None:
    """As mini-swe-agent 2.4.6 and SWE-agent 1.1 write them, with yaml.dump at an indent of 4."""
    endings = {
        "LimitsExceeded": ["c__d-3"],
        "Submitted": ["a__b-1", "a__b-2"],
        "Uncaught KeyError": ["e__f-4"],
        "X": [],
    }
    text = yaml.dump({"instances_by_exit_status": endings, "total_cost": 1.5}, indent=4)
    found = read_outcomes(write_value(tmp_path / "exit_statuses_1.yaml", text), "raw")
    assert found.endings == {
        ("raw", "c__d-3"): "LimitsExceeded",
        ("raw", "a__b-1"): "Submitted",
        ("raw", "a__b-2"): "Submitted",
        ("raw", "e__f-4"): "Uncaught KeyError",
    }


def test_a_report_cut_short(tmp_path: Path) -> None:
    """File, line, and what to do."""
    whole = write_report(tmp_path / "r.json", {"a": True, "b": False}).read_text(encoding="utf-8")
    path = write_value(tmp_path / "cut.json", whole[: whole.index('"unresolved_ids"') + 20])
    with pytest.raises(FormatError, match=r"cut\.json:\d+:\d+: broken JSON .*looks cut off; record or copy it again"):
        read_outcomes(path)


def test_lines_cut_short(tmp_path: Path) -> None:
    path = write_value(tmp_path / "r.jsonl", '{"instance_id": "a", "resolved": true}\n{"instance_id": "b", "reso')
    with pytest.raises(FormatError, match=r"r\.jsonl:2: .*broken JSON.*record or copy the file again"):
        read_outcomes(path)


def test_an_instance_twice(tmp_path: Path) -> None:
    """Both files are named."""
    for model in ("one", "two"):
        write_value(tmp_path / model / "a" / "report.json", {"a": {"resolved": True}})
    with pytest.raises(FormatError, match=r"a: two outcomes, in .*one/a/report\.json and in .*two/a/report\.json"):
        read_outcomes(tmp_path)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"resolved_ids": []}, "a report of no instance"),
        ({"resolved_ids": [3]}, "resolved_ids: 3 is not an instance id"),
        ({"messages": []}, "no outcomes in it"),
        ({"a": {"resolved": "yes"}}, "a: resolved is 'yes'; true or false is expected"),
        ([{"resolved": True}], "entry 1: no `instance_id`"),
        ([{"instance_id": "a"}], "entry 1: a: neither `resolved` nor `model_patch`"),
        ("nothing of the kind", "neither JSON nor a list of exit statuses"),
        ("instances_by_exit_status:\n- a\n", ":2: an instance before any exit status"),
        ("instances_by_exit_status:\n  Submitted:\n    what is this\n", ":3: not a line of exit statuses"),
    ],
)
def test_no_outcomes(tmp_path: Path, value: Any, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        read_outcomes(write_value(tmp_path / "r.json", value))


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no report\.json in that folder"):
        read_outcomes(tmp_path)


def test_sets_become_one(tmp_path: Path) -> None:
    one = read_outcomes(write_report(tmp_path / "1.json", {"a": True}), "raw")
    two = read_outcomes(write_report(tmp_path / "2.json", {"a": False}), "masking")
    assert [(each.strategy, each.solved) for each in merge_outcomes([one, two]).outcomes] == [
        ("raw", True),
        ("masking", False),
    ]
