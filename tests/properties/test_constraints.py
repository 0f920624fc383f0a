"""A constraint of the user is in every view, word for word, however many summaries have replaced its turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.engine import decide, make_plain_terms, run_pass
from elision.strategies.spec import parse_strategy
from elision.trajectory.events import TurnAmended
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_table import load_price_table
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn
from tests.properties.builders import begin_session, call, head, long_text, result, turn, user
from tests.properties.cases import play_run
from tests.properties.invariants import check_users_words_stay, count_constraint_tokens

STRATEGIES = (
    "summarization(every=3, tail=2, schedule=every-turn, summary_max_tokens=400, keep_user_tokens=0)",
    "hybrid(window=2, summarize_at=5, tail=2, schedule=every-turn, summary_max_tokens=400, keep_user_tokens=0)",
    "two-tier(keep_recent=2, soft=900, hard=1500, after_steps=3, summarize_min_turns=1, summary_max_tokens=400, "
    "keep_user_tokens=0)",
)


def make_turn(index: int, constraint: str) -> Turn:
    words = (
        f"Thanks so far. {constraint} By the way, the weather is fine."
        if constraint
        else f"Go on with step {index}, then."
    )
    pair = (call(id="c", command=f"make {index}"), result(long_text(index, 30), id="c"))
    return turn(index, pair, text="I run it.", said=[user(words)])


def forget_everything(request: SummaryRequest) -> str:
    """A summarizer without goodwill: of the constraints it says nothing."""
    return f"The agent ran make {request.turns[-1].index} and it worked."


@given(
    strategy=st.sampled_from(STRATEGIES),
    placed=st.sets(st.integers(min_value=1, max_value=24), min_size=1, max_size=8),
    length=st.integers(min_value=8, max_value=26),
)
def test_no_number_of_summaries_erodes_a_constraint(strategy: str, placed: set[int], length: int) -> None:
    """Rules are carried by structure: a summarizer that drops each of them changes nothing."""
    session = begin_session(strategy, start=head())
    constraints = {index: f"Never touch part{index}.py without approval." for index in placed}
    for index in range(1, length):
        session.add_turn(make_turn(index, constraints.get(index, "")))
        view = run_pass(decide(session, make_plain_terms()), forget_everything)
        shown = "\n".join(segment.text or getattr(segment.source, "text", "") for segment in view.segments)
        assert [text for place, text in constraints.items() if place <= index and text not in shown] == []
    if length > 20:
        assert session.state.covered_turns > 10


def test_words_that_the_user_takes_back_bind_nobody() -> None:
    """A client that replaces the words after its newest turn replaces their constraints."""
    session = begin_session(STRATEGIES[0], start=head())
    session.add_turn(make_turn(1, "Never touch part1.py without approval."))
    session.record_event(TurnAmended(make_turn(1, "Never touch part2.py without approval.")))
    for index in range(2, 12):
        session.add_turn(make_turn(index, ""))
        run_pass(decide(session, make_plain_terms()), forget_everything)
    block = session.state.summary.block if session.state.summary else ""
    assert "Never touch part2.py without approval." in block
    (constraint,) = session.policy.constraints
    assert constraint.text.endswith("Never touch part2.py without approval.")
    assert "part1.py" not in block


def test_other_words_have_what_constraints_leave() -> None:
    """Rules come first, and the newest of the other words fill the rest of the limit."""
    turns = tuple(
        make_turn(index, "Never touch old.py without approval." if index == 2 else "") for index in range(1, 24)
    )
    strategy = parse_strategy(STRATEGIES[0].replace("max_tokens=400", "max_tokens=60"))
    run = play_run(Trajectory(id="rules", head=head(), turns=turns), strategy, load_price_table().sets["anthropic"])
    check_users_words_stay(run)
    block = next(segment.text for segment in run.views[-1].segments if segment.kind == "summary")
    assert 0 < count_constraint_tokens(block) < 60
    assert 0 < block.count("[User message of that time]") < 5
