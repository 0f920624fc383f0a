"""What is learned from usage: how long cache entries live."""

from __future__ import annotations

from elision.engine.terms import ALL_TURNS, ProviderReports
from elision.trajectory.usage import Usage

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
