"""Failed summaries are not asked for again every turn."""

from __future__ import annotations

from elision.summarizers.summary_acceptance import CircuitBreaker


def test_waits_grow_and_the_circuit_opens() -> None:
    """Each failure in a row waits longer; at the limit the circuit is open."""
    breaker = CircuitBreaker()
    assert [breaker.record_failure(100), breaker.record_failure(105)] == [105, 115]
    assert [breaker.record_failure(115), breaker.record_failure(115)] == [175, 175]
    assert not breaker.may_ask(174)
    assert breaker.may_ask(175)


def test_success_forgets() -> None:
    """One summary that is taken closes the circuit."""
    breaker = CircuitBreaker()
    for call in range(5):
        breaker.record_failure(call)
    breaker.record_success()
    assert breaker.may_ask(0)
    assert breaker.record_failure(10) == 15
