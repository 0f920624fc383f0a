"""Recorded lengths: a replay at the recorded model's prices has prompts as long as the provider billed."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.lab.replay import Replay, replay_run
from elision.lab.run_as_recorded import MOST_SHARE, RecordedSizer, add_recorded_head, size_run
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import TOKENS_PER_MESSAGE, Sizer, make_counter
from elision.trajectory.trajectory import Compaction, Trajectory
from elision.trajectory.turn import Head, Message, Opaque, Turn, make_content
from elision.trajectory.usage import Usage

MODEL = "claude-opus-4-5"
SIZER = Sizer(make_counter())


def words(tokens: int) -> Message:
    """A message of the user that counts `tokens` o200k tokens, frame included."""
    return Message(role="user", content=make_content(" word" * (tokens - TOKENS_PER_MESSAGE)))


def make_run(*steps: tuple[int, int, int], model: str = MODEL, first: int = 5_000) -> Trajectory:
    """A run of one turn a step: (tokens that were read by our count, reported output, billed growth after it)."""
    prompt, turns = first, []
    for index, (read, output, grown) in enumerate(steps, start=1):
        usage = Usage(cache_read=prompt - 100, cache_write=100, output=output)
        said = make_content(" word" * 20)
        turns.append(Turn(index=index, content=said, interjections=(words(read),), usage=usage, model=model))
        prompt += grown
    return Trajectory(id="main", file="a", model=model, head=Head(messages=(words(50),)), turns=tuple(turns))


def replay_raw(run: Trajectory, prices: Prices) -> Replay:
    sizer = size_run(run, prices, SIZER)
    return replay_run(add_recorded_head(run, sizer), parse_strategy("raw"), prices, sizer)


def billed(run: Trajectory) -> list[int]:
    return [turn.usage.prompt for turn in run.turns if turn.usage is not None]


@given(st.lists(st.tuples(st.integers(300, 3_000), st.integers(20, 400), st.floats(0.5, 2.0)), min_size=2, max_size=12))
def test_prompts_are_as_long_as_billed(steps: list[tuple[int, int, float]]) -> None:
    """Whatever the provider counted for what was read, every prompt has its billed length."""
    run = make_run(*((read, output, output + round(read * rate)) for read, output, rate in steps))
    assert [call.tokens for call in replay_raw(run, find_prices(MODEL)).calls] == billed(run)


def test_at_a_set_our_tokens_count() -> None:
    """A set stands for no model: recorded lengths are of another scale and are not used."""
    run = make_run((1_000, 50, 2_000), (1_000, 50, 2_000), (1_000, 50, 0))
    prices = find_price_set("anthropic")
    assert size_run(run, prices, SIZER) is SIZER
    tokens = [call.tokens for call in replay_raw(run, prices).calls]
    assert tokens[1] - tokens[0] == 1_000 + 20 + TOKENS_PER_MESSAGE


def test_at_another_model_its_scale_counts() -> None:
    """At a model of another tokenizer, our count is taken on that one's scale."""
    run = make_run((1_004, 50, 2_000), (1_004, 50, 0))
    tokens = [call.tokens for call in replay_raw(run, find_prices("claude-opus-4-8")).calls]
    assert tokens[1] - tokens[0] == 1_600 + 32 + 2 * TOKENS_PER_MESSAGE


def test_models_of_one_tokenizer_share_lengths() -> None:
    """What Opus 4.5 counted holds for Sonnet 4.5."""
    run = make_run((1_000, 50, 1_400), (1_000, 50, 0))
    assert isinstance(size_run(run, find_prices("claude-sonnet-4-5"), SIZER), RecordedSizer)


def test_a_model_of_no_known_tokenizer_has_its_own_lengths() -> None:
    """Recorded lengths of a model hold for that model, whether or not its tokenizer is known."""
    run = make_run((1_000, 50, 1_900), (1_000, 50, 0), model="glm-5")
    assert [call.tokens for call in replay_raw(run, find_prices("glm-5")).calls] == billed(run)
    assert not isinstance(size_run(run, find_prices("gemini-2.5-pro"), SIZER), RecordedSizer)


@pytest.mark.parametrize("grown", [-500, round(MOST_SHARE * 1_400)])
def test_growth_of_something_else_is_not_taken(grown: int) -> None:
    """Where the prompt shrank, or grew by far more than what was read, our count on the scale is taken."""
    run = make_run((1_004, 40, grown), (1_004, 40, 0))
    tokens = [call.tokens for call in replay_raw(run, find_prices(MODEL)).calls]
    assert tokens[1] - tokens[0] == 40 + TOKENS_PER_MESSAGE + 1_250


def test_after_a_compaction_growth_says_nothing() -> None:
    """The agent compacted between two prompts: their difference is not the length of what was read."""
    run = make_run((1_004, 40, 700), (1_004, 40, 0))
    cut = replace(run, compactions=(Compaction(before=2, summary="short"),))
    tokens = [call.tokens for call in replay_raw(cut, find_prices(MODEL)).calls]
    assert tokens[1] - tokens[0] == 40 + TOKENS_PER_MESSAGE + 1_250


def test_without_usage_nothing_is_recorded() -> None:
    """A run without usage is counted on the scale of the prices."""
    run = make_run((1_000, 50, 1_400), (1_000, 50, 0))
    silent = replace(run, turns=tuple(Turn(index=turn.index, content=turn.content) for turn in run.turns))
    assert type(size_run(silent, find_prices(MODEL), SIZER)) is Sizer


SECRET = Opaque("reasoning", 300, {"type": "reasoning"})


def seal_reasoning(run: Trajectory) -> Trajectory:
    """Return the run with an item of sealed reasoning, and its summary, in each answer."""
    turns = (
        msgspec.structs.replace(turn, content=(SECRET, *turn.content), reasoning=" word" * 70) for turn in run.turns
    )
    return replace(run, turns=tuple(turns))


def test_sealed_reasoning_is_sent_again() -> None:
    """At a GPT all of the reported output is in the next prompt where reasoning is sealed; else the text of it is."""
    run = make_run((1_000, 350, 1_350), (1_000, 350, 0), model="gpt-5.6")
    prices = find_prices("gpt-5.6")
    plain, sealed = size_run(run, prices, SIZER), size_run(seal_reasoning(run), prices, SIZER)
    assert sealed.count_assistant(seal_reasoning(run).turns[0]) == 350
    assert plain.count_assistant(run.turns[0]) == 20 + TOKENS_PER_MESSAGE


def test_the_summary_of_sealed_reasoning_is_not_counted() -> None:
    """At a set of prices, too: what was sealed is counted once."""
    run = seal_reasoning(make_run((1_000, 350, 1_350), (1_000, 350, 0), model="gpt-5.6"))
    tokens = [call.tokens for call in replay_raw(run, find_price_set("openai")).calls]
    assert tokens[1] - tokens[0] == 300 + 20 + TOKENS_PER_MESSAGE + 1_000
