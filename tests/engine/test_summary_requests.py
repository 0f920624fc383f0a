"""What a pass asks a summarizer for."""

from __future__ import annotations

from elision.engine import decide, expect_request, make_plain_terms, run_pass
from elision.trajectory.items import find_items
from elision.trajectory.plan import SummaryRequest
from tests.properties.builders import begin_session, call, long_text, result, turn

#: The call at which the first summary is due: `every` + `tail` turns are there.
DUE = 7


def refuse(request: SummaryRequest) -> str:
    raise AssertionError("no summary is due yet")


def test_a_request_names_what_the_view_shows() -> None:
    """Results and words of turns after the covered ones are named, and what is written ahead is what is requested."""
    session = begin_session("summarization(every=4, tail=2, schedule=every-turn)")
    for index in range(1, DUE):
        run_pass(decide(session, make_plain_terms()), refuse)
        expected = expect_request(session)
        shown = f"def part_{index}_limit(self):  # line of file {index}\n{long_text(index, 40)}"
        session.add_turn(turn(index, (call(command="cat"), result(shown)), text="I read on."))
    asked = next(decide(session, make_plain_terms()))
    assert expected is not None
    assert asked.turns[-1].index == DUE - 3
    assert asked.shown == expected.shown == frozenset(find_items(session.state.turns[DUE - 3].observations[0].text))
    assert asked.shown
