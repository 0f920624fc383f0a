"""Read what became of each instance: reports of the SWE-bench harness, and what scaffolds write beside their runs.

Field names are those of swebench 5.0.2 (`swebench/harness/reporting.py` and `grading.py`), of the leaderboard's
`results.json`, and of mini-swe-agent 2.4.6 and SWE-agent 1.1 (`preds.json`, `exit_statuses_*.yaml`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from elision.errors import FormatError
from elision.formats.document import Document, JsonLine, read_json_lines, read_json_value
from elision.formats.source import read_documents
from elision.lab.outcomes import InstanceOutcome, OutcomeSet
from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.trajectory.trajectory import Problem

#: The harness's report of one instance, which it writes into a folder of its own.
_INSTANCE_REPORT: Final = "report.json"
#: Lists of a summary: solved; handed in and not solved; nothing handed in.
_SOLVED: Final = ("resolved_ids", "resolved")
_FAILED: Final = ("unresolved_ids", "error_ids", "empty_patch_ids", "generated", "applied", "no_apply", "with_logs")
_ABSENT: Final = ("incomplete_ids", "no_generation", "no_logs")
#: What both scaffolds call their list of how runs ended.
_ENDINGS: Final = "instances_by_exit_status"
_ENDING_LINE: Final = re.compile(r"^\s+(?P<word>\S.*?):\s*(?:\[\])?\s*$")
_INSTANCE_LINE: Final = re.compile(r"^\s*-\s+(?P<id>\S+)\s*$")


def read_outcomes(path: Path, strategy: str = "") -> OutcomeSet:
    """Read every outcome at or below `path`, as those of `strategy` ("" for whichever ran the instance).

    Of a folder, the reports of single instances (`report.json`) are read. Raises FormatError, with file, line and what
    to do, where a file is broken or holds no outcome, and where an instance has two.
    """
    reader = _OutcomeReader(strategy)
    if path.is_dir():
        files = sorted(path.rglob(_INSTANCE_REPORT))
        if not files:
            raise FormatError(f"{path}: no {_INSTANCE_REPORT} in that folder; name the harness's report itself")
    else:
        files = [path]
    for file in files:
        for document in read_documents(file):
            if isinstance(document, Problem):
                raise FormatError(str(document))
            reader.read_document(document)
    return OutcomeSet(
        outcomes=tuple(reader.outcomes.values()),
        absent=tuple(each for id, each in reader.absent.items() if id not in reader.outcomes),
        endings=reader.endings,
        patches=reader.patches,
    )


def merge_outcomes(sets: Iterable[OutcomeSet]) -> OutcomeSet:
    """Return all of `sets` as one."""
    held = list(sets)
    return OutcomeSet(
        outcomes=tuple(outcome for each in held for outcome in each.outcomes),
        absent=tuple(outcome for each in held for outcome in each.absent),
        endings={key: word for each in held for key, word in each.endings.items()},
        patches={key: place for each in held for key, place in each.patches.items()},
    )


@dataclass(slots=True)
class _OutcomeReader:
    """Collects the outcomes of one strategy."""

    strategy: str
    outcomes: dict[str, InstanceOutcome] = field(default_factory=dict)
    absent: dict[str, InstanceOutcome] = field(default_factory=dict)
    endings: dict[tuple[str, str], str] = field(default_factory=dict)
    patches: dict[tuple[str, str], str] = field(default_factory=dict)

    def read_document(self, document: Document) -> None:
        """Read one file, in whichever of the shapes it is. Raises FormatError."""
        first, _, rest = document.data.strip().partition(b"\n")
        if first[:1] not in (b"{", b"["):
            self._read_endings(document)
        elif first.startswith(b"{") and first.rstrip().endswith(b"}") and rest.strip():
            # JSON lines: the first is a whole object, and there is another.
            self._read_lines(document)
        else:
            value = read_json_value(document)
            if isinstance(value, list):
                self._read_records(document, list(enumerate(value, start=1)), "entry")
            else:
                self._read_object(document, mapping_in(value))

    def _read_object(self, document: Document, value: Json) -> None:
        if any(isinstance(value.get(name), list) for name in _SOLVED):
            self._read_summary(document, value)
        elif "instance_id" in value:
            self._read_records(document, [(1, value)], "line")
        elif value and all("resolved" in mapping_in(each) for each in value.values()):
            for id, each in value.items():
                self._add_outcome(document, id, each["resolved"])
        elif value and all("model_patch" in mapping_in(each) for each in value.values()):
            for id, each in value.items():
                self._add_prediction(document, id, each)
        else:
            raise FormatError(
                f"{document.path}: no outcomes in it: neither `resolved_ids` nor `resolved` of instances; give the "
                "report that the SWE-bench harness wrote"
            )

    def _read_summary(self, document: Document, value: Json) -> None:
        solved = set(_list_ids(document, value, _SOLVED))
        for id in sorted(solved):
            self._add_outcome(document, id, True)
        failed = set(_list_ids(document, value, _FAILED)) - solved
        absent = set(_list_ids(document, value, _ABSENT)) - solved
        # The leaderboard's file lists what has no logs among what was generated.
        for id in sorted(failed):
            self._add_outcome(document, id, False)
        for id in sorted(absent - failed):
            self._add_absent(document, id)
        if not solved | failed | absent:
            raise FormatError(f"{document.path}: a report of no instance; was anything evaluated?")

    def _read_lines(self, document: Document) -> None:
        records: list[tuple[int, Any]] = []
        for line in read_json_lines(document):
            if isinstance(line, Problem):
                raise FormatError(f"{line}; record or copy the file again")
            assert isinstance(line, JsonLine)
            records.append((line.number, line.value))
        self._read_records(document, records, "line")

    def _read_records(self, document: Document, records: Sequence[tuple[int, Any]], kind: str) -> None:
        """Read objects that name their instance: outcomes of any benchmark, or predictions."""
        for number, record in records:
            each = mapping_in(record)
            id = text_in(each.get("instance_id"))
            place = f"{document.path}:{number}" if kind == "line" else f"{document.path}: {kind} {number}"
            if not id:
                raise FormatError(f"{place}: no `instance_id` in it")
            if "resolved" in each:
                self._add_outcome(document, id, each["resolved"])
            elif "model_patch" in each:
                self._add_prediction(document, id, each)
            else:
                raise FormatError(f"{place}: {id}: neither `resolved` nor `model_patch`; add whether it was solved")

    def _read_endings(self, document: Document) -> None:
        """Read the YAML list of exit statuses that mini-swe-agent and SWE-agent write."""
        text = document.data.decode("utf-8", errors="replace")
        if f"{_ENDINGS}:" not in text:
            raise FormatError(
                f"{document.path}: neither JSON nor a list of exit statuses; give the report that the SWE-bench "
                "harness wrote"
            )
        word = ""
        begun = False
        for number, line in enumerate(text.splitlines(), start=1):
            if line.startswith(f"{_ENDINGS}:"):
                begun = True
                continue
            if begun and line and not line.startswith((" ", "-")):
                begun = False
            if not begun or not line.strip():
                continue
            found = _INSTANCE_LINE.match(line)
            if found:
                if not word:
                    raise FormatError(f"{document.path}:{number}: an instance before any exit status")
                self.endings[self.strategy, found["id"].strip("'\"")] = word
                continue
            found = _ENDING_LINE.match(line)
            if found:
                word = found["word"].strip("'\" ")
            else:
                raise FormatError(f"{document.path}:{number}: not a line of exit statuses: {line.strip()[:40]!r}")

    def _add_outcome(self, document: Document, id: str, solved: object) -> None:
        if not isinstance(solved, bool):
            raise FormatError(f"{document.path}: {id}: resolved is {solved!r}; true or false is expected")
        new = InstanceOutcome(instance=id, solved=solved, place=document.path, strategy=self.strategy)
        other = self.outcomes.setdefault(id, new)
        if other is not new:
            raise FormatError(
                f"{id}: two outcomes, in {other.place} and in {document.path}; leave one out, or give them as those of "
                "two strategies"
            )

    def _add_prediction(self, document: Document, id: str, prediction: Json) -> None:
        """An empty patch solves nothing; any other has to be graded."""
        if text_in(prediction.get("model_patch")).strip():
            self.patches[self.strategy, id] = document.path
        else:
            self._add_absent(document, id)

    def _add_absent(self, document: Document, id: str) -> None:
        absent = InstanceOutcome(instance=id, solved=False, place=document.path, strategy=self.strategy)
        self.absent.setdefault(id, absent)


def _list_ids(document: Document, value: Json, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        held = value.get(name)
        if not isinstance(held, list):
            continue
        for id in held:
            if not isinstance(id, str):
                raise FormatError(f"{document.path}: {name}: {id!r} is not an instance id")
            yield id
