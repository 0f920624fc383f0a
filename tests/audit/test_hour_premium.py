"""A premium is paid back by one read after the shorter lifetime, and by nothing else."""

from __future__ import annotations

import pytest

from elision.audit.cause_table import HourPremiums


@pytest.mark.parametrize(
    ("pause", "paid"), [(200.0, 0.0), (301.0, 10.0), (3600.0, 10.0), (3601.0, 0.0)], ids=lambda value: f"{value:g}"
)
def test_the_pause_decides(pause: float, paid: float) -> None:
    premiums = HourPremiums(300.0)
    premiums.add_call(0, 0.0, 0, 100, 0.1)
    premiums.add_call(1, pause, 100 if pause <= 3600 else 0, 0, 0.1)
    premiums.close()
    assert sum(premiums.paid.values()) == pytest.approx(paid)
    assert sum(premiums.lost.values()) == pytest.approx(10.0 - paid)


def test_only_what_is_read_is_paid_back() -> None:
    premiums = HourPremiums(300.0)
    premiums.add_call(0, 0.0, 0, 100, 0.1)
    premiums.add_call(1, 1000.0, 40, 60, 0.1)
    premiums.close()
    assert premiums.paid == {0: pytest.approx(4.0)}
    assert premiums.lost == {0: pytest.approx(6.0), 1: pytest.approx(6.0)}


def test_without_times_nothing_is_blamed() -> None:
    premiums = HourPremiums(300.0)
    premiums.add_call(0, None, 0, 100, 0.1)
    premiums.close()
    assert (premiums.paid, premiums.lost) == ({0: 10.0}, {})
