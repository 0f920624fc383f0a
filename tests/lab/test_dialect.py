"""The cache is simulated on segments; here they are held against the very messages that would be sent."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from elision.errors import SpecError
from elision.lab.run_as_recorded import add_recorded_head, sizer
from elision.lab.run_loading import load_runs
from elision.lab.views import list_views
from elision.providers.provider_table import find_provider
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn, make_content
from elision.trajectory.view import View

RUNS = Path(__file__).parents[2] / "examples" / "runs"
SPECS = ("raw", "masking", "hybrid(window=5, summarize_at=20, tail=8)", "masking(window=3, schedule=every-turn)")


def _equal(before: list[object], after: list[object]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))


def _front(view: View, length: int) -> View:
    return View(call=view.call, epoch=view.epoch, track=view.track, length=length)


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("file", ["swe-agent-sympy-20801.traj.gz", "openhands-pylint.tar.gz"])
def test_shared_segments_are_shared_messages(dialect: str, spec: str, file: str) -> None:
    """From call to call, the messages that stay equal are those whose segments the cache simulation shares."""
    count = sizer(dialect, "o200k")
    (run,) = load_runs([RUNS / file]).runs
    run = Trajectory(id=run.id, head=run.head, turns=run.turns[:60])
    before = None
    for seen in list_views(
        add_recorded_head(run, count),
        parse_strategy(spec),
        find_price_set("anthropic"),
        count,
        find_provider(dialect).make_renderer(),
    ):
        if before is not None:
            common = seen.view.count_common(before.view)
            shared = find_provider(dialect).make_renderer().render_unmarked(_front(seen.view, common))
            equal = _equal(list(before.plain), list(seen.plain))
            # A message of which only a part is shared (Anthropic: results of one turn) is not equal as a whole.
            assert len(shared) - 1 <= equal <= len(shared)
            if common < before.view.length:
                assert equal < len(before.plain)
        before = seen


def test_anthropic_does_not_count_reasoning() -> None:
    """Clear reasoning is not sent back there, so it is not billed."""
    turn = Turn(index=1, content=make_content("I look."), reasoning="First I should look around.")
    ours, theirs = sizer("openai", "o200k"), sizer("anthropic", "o200k")
    assert ours.count_assistant(turn) - theirs.count_assistant(turn) == ours.count(turn.reasoning) > 0


def test_an_unknown_dialect_lists_what_exists() -> None:
    """As every unknown name does."""
    with pytest.raises(SpecError, match="openai, openai-responses, anthropic, gemini"):
        find_provider("bison")
