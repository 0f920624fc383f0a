"""One line for each pass."""

from __future__ import annotations

import json
import logging
import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SettingError
from elision.telemetry.diagnostics import Diagnostics, Fault, Hidden
from elision.telemetry.logs import LOGGER, PassLog, collect_facts
from tests.telemetry.sample_passes import FULL, QUIET, any_pass

KEY = "sk-ant-api03-" + "aB3dE5gH7jK9" * 4


class Kept(logging.Handler):
    """Keeps the records of one logger."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def logged(*told: Diagnostics, level: int = logging.DEBUG, **options: Any) -> list[logging.LogRecord]:
    kept, logger = Kept(), logging.getLogger(LOGGER)
    before = logger.level
    logger.addHandler(kept)
    logger.setLevel(level)
    try:
        log = PassLog(**options)
        for each in told:
            log.report_pass(each)
    finally:
        logger.removeHandler(kept)
        logger.setLevel(before)
    return kept.records


def levels(*told: Diagnostics) -> list[int]:
    return [record.levelno for record in logged(*told)]


def line(told: Diagnostics, **options: Any) -> str:
    (record,) = logged(told, **options)
    return record.getMessage()


def test_text() -> None:
    """key=value in a fixed order, with the token delta; what is nothing is left out."""
    assert line(QUIET) == (
        "event=pass session=task-42 model=claude-sonnet-4-5 call=2 turns=18 phase=summarizing "
        'tokens_in=45400 tokens_out=12400 delta=-33000 reason="cap on raw" epoch=3 '
        "cost_usd=0.55 hiding_saved_usd=0.35 ms=2"
    )


def test_everything() -> None:
    """A pass that did everything is still one line, with handles, summary, guards and faults."""
    pairs = dict(pair.partition("=")[::2] for pair in shlex.split(line(FULL)))
    assert pairs["masked"] == "2"
    assert pairs["hidden"] == "t3.1; t4.1; t17.1"
    assert pairs["summary"] == "t1-t9 8000->600 fresh"
    assert pairs["freed"] == "18000"
    assert pairs["stop"] == "max_turns: 17 of 17"
    assert pairs["hint"] == "no progress for 5 turns: all of them failed"
    assert pairs["faults"] == "store/StoreError: database is locked; summarizer/timeout: no answer"


def test_json() -> None:
    """The same as an object, for programs; and at the record, for handlers."""
    (record,) = logged(FULL, form="json")
    assert json.loads(record.getMessage()) == collect_facts(FULL) == record.elision  # type: ignore[attr-defined]


def test_levels() -> None:
    """Quiet passes are for debugging, what was hidden is told, what failed or a guard says is a warning."""
    assert levels(QUIET, replace(QUIET, masked=FULL.masked)) == [logging.DEBUG, logging.INFO]
    for change in ({"faults": FULL.faults}, {"stop": FULL.stop}, {"hint": FULL.hint}):
        assert levels(replace(QUIET, **change)) == [logging.WARNING]
    assert logged(QUIET, level=logging.INFO) == []


def test_a_guard_is_loud_once() -> None:
    """What a guard says at every later call is a warning the first time, for each session and each guard."""
    stopped, both = replace(QUIET, stop=FULL.stop), replace(QUIET, stop=FULL.stop, hint=FULL.hint)
    other = replace(stopped, session="task-43")
    found = levels(stopped, stopped, both, both, other)
    assert found == [logging.WARNING, logging.DEBUG, logging.WARNING, logging.DEBUG, logging.WARNING]


def test_many_handles() -> None:
    """A pass that hid a hundred results names the first few."""
    hidden = tuple(Hidden(handle=f"t{i}.1", tool="bash", tokens=9, left=1) for i in range(1, 101))
    assert collect_facts(replace(QUIET, masked=hidden))["hidden"] == "t1.1; t2.1; t3.1; t4.1; t5.1 and 95 more"


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_redacted(form: str) -> None:
    """A key in an error's words or in a session's name reaches neither line nor record."""
    fault = Fault(kind="summarizer", cause="rejected", what=f"HTTP 401: invalid key {KEY}")
    (record,) = logged(replace(QUIET, session=f"run-{KEY}", faults=(fault,)), form=form)
    assert KEY not in record.getMessage() + repr(record.__dict__)
    assert "[redacted: anthropic-key]" in record.getMessage()


@given(any_pass, st.sampled_from(["text", "json"]))
def test_any_pass(told: Diagnostics, form: str) -> None:
    """Whatever a pass says, it is one line of plain ASCII; nothing in it can begin another."""
    text = line(told, form=form)
    assert text.isascii()
    assert text.isprintable()
    assert len(text.splitlines()) == 1


def test_format_marks_are_text() -> None:
    """Names with marks of format strings stand as they are."""
    assert r"%s {0} %(x)d" in line(replace(QUIET, session="%s {0} %(x)d"))


def test_an_unknown_form() -> None:
    """A form that does not exist is said at once."""
    with pytest.raises(SettingError, match="give text or json"):
        PassLog("yaml")  # type: ignore[arg-type]
