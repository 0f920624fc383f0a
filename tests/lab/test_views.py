"""What would be sent, call by call."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from elision.errors import SpecError
from elision.lab.replay import replay_run
from elision.lab.views import ViewAt, list_views, resolve_schedule, to_json
from elision.providers.anthropic.messages import AnthropicRenderer
from elision.providers.openai_chat.messages import OpenAIChatRenderer
from elision.providers.openai_responses.messages import OpenAIResponsesRenderer
from elision.providers.shared.base_renderer import ViewRenderer
from elision.strategies.schedules import FixedSchedule
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Head, Turn
from tests.properties.builders import CACHED, PLAIN, SIZER, head, long_text, result, steps, turn, user

EVERY_TURN = "masking(window=2, schedule=every-turn)"
HYBRID = "hybrid(window=2, summarize_at=6, tail=3, summary_max_tokens=400, schedule=every-turn)"


def trajectory(*turns: Turn, start: Head | None = None) -> Trajectory:
    return Trajectory(id="t", head=start or head(), turns=turns)


def seen(
    spec: str, *turns: Turn, prices: Prices = CACHED, renderer: ViewRenderer | None = None, start: Head | None = None
) -> list[ViewAt]:
    return list(list_views(trajectory(*turns, start=start), parse_strategy(spec), prices, SIZER, renderer))


def long_turns(count: int) -> list[Turn]:
    """Turns whose results are worth a summary."""
    return [
        turn(index, (_listing(index), result(long_text(index, 60), id=f"c{index}"))) for index in range(1, count + 1)
    ]


def _listing(index: int) -> Action:
    return Action(id=f"c{index}", name="bash", arguments='{"command": "ls"}')


def test_every_turn_answers_one_call() -> None:
    """Call t is made when turns 1 ... t-1 exist, so the last turn is in no view."""
    found = seen("raw", *steps(4))
    assert [shown.call for shown in found] == [1, 2, 3, 4]
    assert [sum(message["role"] == "assistant" for message in shown.messages) for shown in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("spec", ["raw", EVERY_TURN, HYBRID, "masking(window=2)"])
def test_views_are_those_of_the_replay(spec: str) -> None:
    """The same sizes, epochs and reasons, call by call."""
    run = trajectory(*long_turns(14))
    told = [
        (call.tokens, call.epoch, call.reason) for call in replay_run(run, parse_strategy(spec), CACHED, SIZER).calls
    ]
    assert [(each.view.tokens, each.epoch, each.decided.reason) for each in seen(spec, *run.turns)] == told


@pytest.mark.parametrize(
    "renderer",
    [
        OpenAIChatRenderer,
        OpenAIResponsesRenderer,
        AnthropicRenderer,
    ],
)
def test_a_new_epoch_begins_where_something_in_front_was_rewritten(renderer: type[ViewRenderer]) -> None:
    """Otherwise a view begins with all the messages of the one before, byte for byte."""
    found = seen(HYBRID, *long_turns(14), renderer=renderer())
    assert found[-1].epoch > 2
    for before, now in pairwise(found):
        rewrite = now.rewrite
        assert (rewrite is not None) == (now.epoch > before.epoch)
        old, new = to_json(before.plain)[:-1].encode(), to_json(now.plain)[:-1].encode()
        if rewrite is None:
            assert new.startswith(old.removesuffix(b"]}"))
        else:
            assert new[: rewrite.byte] == old[: rewrite.byte]
            assert new[rewrite.byte : rewrite.byte + 1] != old[rewrite.byte : rewrite.byte + 1]


def test_where_the_first_rewrite_is() -> None:
    """System, task, one assistant and its result: the first result to be masked is the fourth message."""
    found = seen(EVERY_TURN, *long_turns(5))
    rewrite = found[3].rewrite
    assert rewrite is not None
    assert (rewrite.place, rewrite.message, rewrite.character) == (3, 4, 0)
    assert rewrite.tokens == found[2].view.track.count_tokens_before(3)
    assert json.loads(to_json(found[3].plain))[3]["content"].startswith("[t1.1 bash")


def test_characters_in_front_of_the_change_are_those_both_texts_share() -> None:
    """An observation that begins as its placeholder does is rewritten from where they part."""
    spec = 'masking(window=1, schedule=every-turn, gist=0, placeholder="line 0: gone")'
    rewrite = seen(spec, *long_turns(3))[2].rewrite
    assert rewrite is not None
    assert rewrite.character == len("line 0: ")


def test_a_summary_is_told_by_its_call() -> None:
    """The pass that wrote it says so, and it stands behind the head."""
    found = seen(HYBRID, *long_turns(10))
    made = [shown for shown in found if shown.decided.summary]
    assert made
    assert made[0].decided.summary is not None
    assert made[0].messages[2] == {"role": "user", "content": made[0].decided.summary.block}


def test_keep_counts_leading_messages_that_are_the_same() -> None:
    """Message by message the run can be put together from what is new, breakpoints included."""
    for renderer in (
        OpenAIChatRenderer(),
        OpenAIResponsesRenderer(),
        AnthropicRenderer(),
    ):
        told: list[dict[str, object]] = []
        for shown in seen(HYBRID, *long_turns(12), renderer=renderer):
            told = told[: shown.keep] + shown.messages[shown.keep :]
            assert told == shown.messages


def test_the_chain_of_views_does_not_hold_the_whole_run() -> None:
    """A view knows the call before it and no more."""
    last = seen("raw", *steps(5))[-1]
    assert last.before is not None
    assert last.before.before is None


def test_the_hindsight_schedule_is_worked_out_first() -> None:
    """What is shown is the plan of the lab's dynamic program, and not dearer than acting at every turn."""
    run = trajectory(*long_turns(12))
    spec = parse_strategy("masking(window=2, schedule=hindsight)")
    assert isinstance(resolve_schedule(spec, run, CACHED, SIZER).schedule, FixedSchedule)
    best = sum(shown.bill.usd for shown in list_views(run, spec, CACHED, SIZER))
    assert best <= sum(shown.bill.usd for shown in seen(EVERY_TURN, *run.turns))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("two-tier(soft=4000, hard=5000, schedule=hindsight)", "two-tier"),
        ("masking(budget=1500, schedule=hindsight)", "budget"),
    ],
)
def test_where_there_is_no_hindsight_the_reason_is_given(spec: str, why: str) -> None:
    """Before the first view, in a sentence that names the cause."""
    with pytest.raises(SpecError, match=why):
        list_views(trajectory(*long_turns(12)), parse_strategy(spec), CACHED, SIZER)


def test_a_run_too_long_for_hindsight_with_summaries_says_so() -> None:
    """The program is cubic; 500 turns is the most."""
    turns = [turn(index, text="x", said=[user("y")]) for index in range(1, 502)]
    with pytest.raises(SpecError, match="501 turns"):
        list_views(trajectory(*turns), parse_strategy("hybrid(schedule=hindsight)"), PLAIN, SIZER)


def test_json_text_is_readable_and_always_sound() -> None:
    """Letters stay as they are; what cannot be written in UTF-8 is escaped and reads back the same."""
    assert to_json({"a": "é 观"}) == '{"a": "é 观"}'
    broken = to_json({"a": "\ud800 é"})
    assert json.loads(broken) == {"a": "\ud800 é"}
    broken.encode()


def test_the_named_sets_bill_the_views() -> None:
    """The bill of a view is its prompt's."""
    shown = seen("raw", *long_turns(6), prices=find_price_set("anthropic"))[-1]
    assert shown.bill.prompt_tokens == shown.view.tokens == shown.raw.prompt_tokens
