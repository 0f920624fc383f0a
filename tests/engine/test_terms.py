"""The terms of a call, all of them said by who makes them, and what a provider's reports say of cache entries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields

import elision.engine.terms
from elision.engine import CallTerms, make_plain_terms
from elision.engine.terms import ALL_TURNS, ProviderReports, read_terms
from elision.trajectory.events import PassDecided, RequestSent
from elision.trajectory.usage import Usage

NAMES = [field.name for field in fields(CallTerms)]


def test_no_field_has_a_default() -> None:
    """A default is what a rebuilt session forgets."""
    assert all(field.default is NODEFAULT and field.default_factory is NODEFAULT for field in fields(CallTerms))


def test_terms_that_leave_a_field_out_do_not_type_check(tmp_path: Path) -> None:
    """mypy names the field that is missing, whichever it is.

    It runs in a process of its own: it raises the recursion limit of whichever it runs in.
    """
    pytest.importorskip("mypy")
    values = {name: repr(getattr(make_plain_terms(), name)) for name in NAMES}
    lines = ["from terms import CallTerms"]
    for left_out in NAMES:
        given = ", ".join(f"{name}={value}" for name, value in values.items() if name != left_out)
        lines.append(f"CallTerms({given})")
    snippet = tmp_path / "snippet.py"
    snippet.write_text("\n".join(lines))
    # A copy beside it, so that mypy reads no other module of the package.
    copy = tmp_path / "terms.py"
    copy.write_text(Path(elision.engine.terms.__file__).read_text())
    options = ["--follow-imports=skip", f"--cache-dir={tmp_path / 'cache'}"]
    command = [sys.executable, "-m", "mypy", *options, str(copy), str(snippet)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    for line, left_out in enumerate(NAMES, start=2):
        assert f'snippet.py:{line}: error: Missing named argument "{left_out}"' in out


def test_the_record_of_a_call_has_what_its_bill_goes_by() -> None:
    """What a request records of its terms is read back."""
    sent = RequestSent(call=3, at=5.0, model="m", tokens=9, unmarked=True, ours="always", hour_turn=2)
    terms = read_terms(sent, PassDecided(sent.call, "nothing eligible"))
    assert (terms.now, terms.model) == (5.0, "m")
    assert (terms.no_cache_marks, terms.breakpoints, terms.hour_turn) == (True, "always", 2)
    bound = PassDecided(sent.call, "nothing eligible", bound=True)
    assert (terms.may_summarize, read_terms(sent, bound).may_summarize) == (True, False)


HOUR, PART, SHORT = (Usage(cache_write=10, cache_write_1h=hour) for hour in (10, 4, 0))


def test_entries_that_all_live_an_hour() -> None:
    """Whatever the client asks for, until a request tells otherwise; one that writes nothing tells nothing."""
    reports = ProviderReports()
    assert reports.find_hour_turn(None) is None
    assert reports.add_cache_writes(HOUR)
    assert not reports.add_cache_writes(Usage())
    assert (reports.hour_turn, reports.find_hour_turn(3)) == (ALL_TURNS, ALL_TURNS)


def test_entries_whose_end_lives_five_minutes() -> None:
    """The head alone may live an hour then, where the client asks for no more."""
    for before, usage in ((None, PART), (HOUR, PART), (HOUR, SHORT)):
        reports = ProviderReports()
        if before is not None:
            reports.add_cache_writes(before)
        assert not reports.add_cache_writes(usage)
        assert (reports.find_hour_turn(None), reports.find_hour_turn(3)) == (0, 3)


def test_entries_that_never_lived_an_hour() -> None:
    """Nothing is known of the head."""
    reports = ProviderReports()
    assert not reports.add_cache_writes(SHORT)
    assert reports.find_hour_turn(None) is None
