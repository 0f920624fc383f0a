"""The meter: what a prompt costs, and which prompts are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elision.agent.model import Json, ModelAnswer, ModelError, Prompt
from elision.testing.loop.closed_loop import ANSWER_SECONDS, PAUSE_SECONDS, MeteredModel, SimulatedClock
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import make_counter

WORDS = "one two three four five six seven eight nine ten " * 200


class Echo:
    """A model that always says the same."""

    shape = "openai"
    name = "echo"

    def answer(self, prompt: Prompt) -> ModelAnswer:
        return ModelAnswer(text="fine", message={"role": "assistant", "content": "fine"})


def meter(clock: SimulatedClock | None = None, window: int | None = None) -> MeteredModel:
    return MeteredModel(Echo(), find_price_set("openai"), make_counter(), clock or SimulatedClock(), window)  # type: ignore[arg-type]


def prompt(*texts: str) -> Prompt:
    messages: list[Json] = [{"role": "user", "content": text} for text in texts]
    return Prompt(messages=messages)


def test_what_repeats_is_read_from_cache() -> None:
    """A prompt that goes on from the one before is read up to its end; one that begins otherwise is not."""
    model = meter()
    first = model.answer(prompt(WORDS)).usage
    second = model.answer(prompt(WORDS, "more")).usage
    assert first is not None
    assert second is not None
    assert first.cache_read == 0
    assert second.cache_read == 1024 + (first.prompt - 1024) // 128 * 128
    changed = model.answer(prompt(f"x {WORDS}", "more")).usage
    assert changed is not None
    assert changed.cache_read == 0
    assert (model.meter.calls, model.meter.rewrites) == (3, 1)
    rates = find_price_set("openai").find_rates(0)
    plain = sum(each.input for each in (first, second, changed))
    usd = (plain * rates.input + second.cache_read * rates.read_price + 3 * 1 * rates.output) / 1e6
    assert model.meter.usd == pytest.approx(usd)


def test_a_prompt_beyond_the_window_is_refused() -> None:
    """The model is not asked, and the error says both sizes."""
    model = meter(window=100)
    with pytest.raises(ModelError, match="prompt is too long") as caught:
        model.answer(prompt(WORDS))
    assert caught.value.room_tokens == 100
    assert model.meter.calls == 0


def test_pauses_follow_from_the_seed() -> None:
    """Some calls are followed by a pause of more than five minutes, the same ones each time."""
    clock = SimulatedClock(seed=3, pauses=0.5)
    pauses = [clock.draw_pause(call) for call in range(200)]
    assert pauses == [replace(clock).draw_pause(call) for call in range(200)]
    assert 60 < sum(pause > 0 for pause in pauses) < 140
    assert all(PAUSE_SECONDS[0] <= pause <= PAUSE_SECONDS[1] for pause in pauses if pause)
    assert ANSWER_SECONDS < 300
