"""Every recorded request and answer is read into turns, and comes back from them as it was."""

from __future__ import annotations

from tests.recorded.cassettes import Exchange, find_cassettes, load_exchanges
from tests.recorded.round_trips import check_continuation, check_round_trip, find_continued, find_repeated


def find_asked() -> list[Exchange]:
    return [each for each in load_exchanges(find_cassettes()) if each.api]


def test_nothing_is_lost() -> None:
    """Every message is sent on as the object that came, every block is read once, every result with its call."""
    assert [(each.name, problem) for each in find_asked() for problem in check_round_trip(each)] == []


def test_the_next_request_continues_the_session() -> None:
    """One that repeats request and answer goes on where those ended: what the model said has one name in both."""
    continued = list(find_continued(find_asked()))
    assert sum(bool(find_repeated(*each)) for each in continued) > len(continued) / 3
    assert [(one.name, problem) for one, other in continued for problem in check_continuation(one, other)] == []
