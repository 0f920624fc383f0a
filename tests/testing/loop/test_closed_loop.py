"""Whole runs of the closed loop: an agent that reads only its prompt, under strategies that leave it less to read."""

from __future__ import annotations

import pytest

from elision.errors import SettingError, SpecError
from elision.manager.context import ContextManager
from elision.testing.loop.closed_loop import FAMILIES, TaskOutcome, Variant, run_task
from elision.testing.loop.task_plan import Knobs
from elision.trajectory.price_lookup import find_price_set
from tests.soak import pair_cases

#: An agent without faults.
CAREFUL = Knobs(calls=30, careless=0, rot=0)
SETS = {name: find_price_set(name) for name in ("anthropic", "openai", "uncached")}


def run(family: str, strategy: str, prices: str = "uncached", knobs: Knobs = CAREFUL, seed: int = 7) -> TaskOutcome:
    return run_task(family, seed, Variant.parse(strategy), SETS[prices], knobs)


@pytest.mark.parametrize(("family", "prices"), pair_cases(FAMILIES, ["anthropic", "openai"]))
def test_a_careful_agent_that_sees_everything_solves_every_task(family: str, prices: str) -> None:
    """With nothing hidden, in both shapes of messages, the agent needs about the calls that it is meant to need."""
    outcome = run(family, "raw", prices)
    assert outcome.solved, outcome.ending
    assert (outcome.recalls, outcome.wrong, outcome.hidden, outcome.rewrites) == (0, 0, 0, 0)
    assert 0.6 * CAREFUL.calls <= outcome.calls <= 1.4 * CAREFUL.calls


@pytest.mark.parametrize(("family", "results"), pair_cases(FAMILIES, ["json", "text"]))
def test_results_in_another_form(family: str, results: str) -> None:
    """Tasks can be solved with results as JSON and as text, all asked for one by one or together."""
    for parallel in (0.0, 1.0):
        knobs = Knobs(calls=20, careless=0, rot=0, results=results, parallel=parallel)  # type: ignore[arg-type]
        assert run(family, "raw", knobs=knobs).solved


@pytest.mark.parametrize(
    ("family", "strategy"), pair_cases(FAMILIES, ["masking(window=2)", "hybrid(window=2, summarize_at=8, tail=3)"])
)
def test_what_is_hidden_costs_calls_and_is_found_again(family: str, strategy: str) -> None:
    """A careful agent recalls or reads again what is hidden, so it still solves its task, with more calls."""
    knobs = Knobs(calls=30, careless=0, rot=0, reuse="heavy")
    outcome = run(family, strategy, knobs=knobs)
    assert outcome.solved, outcome.ending
    assert outcome.recalls + outcome.rereads > 0
    assert outcome.calls > run(family, "raw", knobs=knobs).calls


def test_without_recall_the_agent_reads_again() -> None:
    """Placeholders without handles, an agent that does not recall, recall that is off: reads again are left."""
    knobs = Knobs(calls=30, careless=0, rot=0, reuse="heavy")
    own = run("database", "masking(window=2)", knobs=knobs)
    assert own.recalls > 0
    for outcome in (
        run("database", "paper-masking(window=2)", knobs=knobs),
        run("database", "masking(window=2) + recall=never", knobs=knobs),
        run("database", "masking(window=2)", knobs=Knobs(calls=30, careless=0, rot=0, reuse="heavy", recalls=False)),
    ):
        assert (outcome.recalls, outcome.solved) == (0, True)
        assert outcome.rereads > 0


def test_a_careless_agent_fails() -> None:
    """Who guesses every hidden fact is rejected, or hands in what is wrong."""
    careless = run("database", "masking(window=2)", knobs=Knobs(calls=30, careless=1, rot=0, reuse="heavy"))
    assert careless.guesses > 0
    assert careless.wrong > 0
    assert not careless.solved


def test_rot_grows_with_the_prompt() -> None:
    """In long prompts the agent overlooks or confuses what is there; hiding makes them shorter."""
    knobs = Knobs(calls=60, careless=0, rot=1, notes=0)
    raw, masked = run("research", "raw", knobs=knobs), run("research", "masking", knobs=knobs)
    assert raw.overlooked + raw.confused > masked.overlooked + masked.confused


def test_the_same_arguments_give_the_same_outcome() -> None:
    """A run depends on its arguments only, and another seed is another task."""
    knobs = Knobs(calls=20, pauses=0.2, looks_again=0.5, notes=0.5)
    for family in FAMILIES:
        first = run(family, "masking(window=3)", "anthropic", knobs)
        assert first == run(family, "masking(window=3)", "anthropic", knobs)
        assert first.usd != run(family, "masking(window=3)", "anthropic", knobs, seed=8).usd


def test_acting_at_every_turn_costs_more_than_sending_everything() -> None:
    """With a prompt cache the published schedule rewrites at nearly every call and costs more than raw."""
    knobs = Knobs(calls=60, careless=0, rot=0)
    raw, published = (run("logs", strategy, "anthropic", knobs) for strategy in ("raw", "paper-masking"))
    assert published.prompt_tokens < raw.prompt_tokens
    assert published.usd > 1.2 * raw.usd
    assert published.rewrites > 5


def test_pauses() -> None:
    """A cold cache costs, and entries that live an hour outlast most pauses."""
    knobs = Knobs(calls=40, careless=0, rot=0, pauses=0.3)
    warm, cold = run("deps", "raw", "anthropic"), run("deps", "raw", "anthropic", knobs)
    assert cold.usd / cold.calls > 1.5 * warm.usd / warm.calls
    lasting = run("deps", "raw + cache_ttl=1h", "anthropic", knobs)
    assert lasting.usd < cold.usd


def test_a_simulated_model_writes_summaries() -> None:
    """A model that keeps all facts of what it summarizes costs money, and saves reads again."""
    knobs = Knobs(calls=60, careless=0, rot=0, reuse="heavy", recalls=False)
    strategy = "hybrid(window=3, summarize_at=12, tail=4, summary_max_tokens=4000, schedule=every-turn)"
    kept, lost = (run("database", f"{strategy} + summary_facts={share}", knobs=knobs) for share in (1.0, 0.0))
    assert kept.solved
    assert lost.solved
    assert kept.rereads < lost.rereads


@pytest.mark.parametrize("strategy", ["hybrid(window=3, summarize_at=8, tail=3)", "masking"])
def test_what_writes_summaries_is_said(strategy: str, caplog: pytest.LogCaptureFixture) -> None:
    """A run names its summarizer where there are summaries, so no session warns of none, or of one for nothing."""
    run("policy", strategy)
    assert not caplog.records


def test_the_bill_agrees_with_elision() -> None:
    """The meter bills as a provider does, so a session's own account of what was billed is the same to the cent."""
    billed: list[float | None] = []

    class Watching(ContextManager):
        def close(self) -> None:
            billed.append(self.session.report().savings.costs.billed)
            super().close()

    from elision.testing.loop import closed_loop

    for prices in SETS:
        closed_loop.ContextManager, kept = Watching, closed_loop.ContextManager
        try:
            outcome = run("code", "masking(window=3)", prices)
        finally:
            closed_loop.ContextManager = kept
        assert billed.pop() == pytest.approx(outcome.usd, abs=0.005)


def test_variants_in_text() -> None:
    """A variant can be written and read, and what it cannot be is refused."""
    text = "masking(fold=true) + cache_ttl=1h, token_budget=9000"
    variant = Variant.parse(text)
    assert variant.options == {"cache_ttl": "1h", "token_budget": 9000}
    assert str(variant) == text
    with pytest.raises(SettingError, match="no option 'colour'"):
        Variant.parse("masking + colour=red")
    with pytest.raises(SpecError, match="maskign"):
        Variant.parse("maskign")
    with pytest.raises(SettingError, match="no task family 'chess'"):
        run("chess", "raw")
