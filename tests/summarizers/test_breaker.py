"""Failed summaries are not asked for again every turn."""

from __future__ import annotations

from elision.summarizers.breaker import Breaker, Retry


def test_waits_grow_and_the_circuit_opens() -> None:
    """Each failure in a row waits longer; at the limit the circuit is open."""
    breaker = Breaker(Retry(back_off=(5, 10), breaker_after=3, open_for=60))
    assert [breaker.failed(100), breaker.failed(105)] == [105, 115]
    assert not breaker.open
    assert breaker.failed(115) == 175
    assert breaker.open
    assert not breaker.may(174)
    assert breaker.may(175)


def test_success_forgets() -> None:
    """One summary that is taken closes the circuit."""
    breaker = Breaker()
    for call in range(5):
        breaker.failed(call)
    breaker.succeeded()
    assert breaker.may(0)
    assert breaker.failed(10) == 15
