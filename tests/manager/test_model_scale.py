"""One scale for every figure of a session: the model's own before the first report, what is reported after it."""

from __future__ import annotations

from typing import Any

import pytest

from elision import ContextManager
from elision.manager.advanced_options import gather_options
from elision.telemetry.diagnostics import Diagnostics
from elision.trajectory.usage import Usage

LINES = "\n".join(f"{line:03} GET /items/{line * 7} 200" for line in range(200))


def make_messages(calls: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Which log shows the fault?"}]
    for number in range(calls):
        function = {"name": "read", "arguments": f'{{"log": {number}}}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"{number} {LINES}"})
    return messages


def run(calls: int = 8, asked: str = "", billed: float = 0.0, **options: Any) -> Diagnostics:
    """A session of a few calls. asked: the model that each call names. billed: tokens reported for one of gpt-5's."""
    with ContextManager(
        "masking(window=2, schedule=every-turn)", store="memory:", **gather_options(options)
    ) as context:
        for number in range(calls + 1):
            view = context.prepare(make_messages(number), model=asked)
            if billed:
                context.record(usage=Usage(input=round(billed * view.diagnostics.after), output=20))
    return view.diagnostics


@pytest.fixture(scope="module")
def plain() -> Diagnostics:
    """The session at a model that counts as we do."""
    return run(model="gpt-5")


@pytest.mark.parametrize(
    ("model", "rate"),
    [("claude-sonnet-4", 1.2), ("claude-opus-4-5", 1.25), ("claude-opus-4-8", 1.6), ("deepseek-chat", 1.08)],
)
def test_figures_are_on_the_scale_of_the_model(plain: Diagnostics, model: str, rate: float) -> None:
    """Prompts, and what is hidden of them, are as long as the model counts, before anything was reported."""
    found = run(model=model)
    for name in ("before", "after", "raw"):
        assert getattr(found, name) == pytest.approx(rate * getattr(plain, name), rel=0.02)
    assert found.savings.hidden_tokens == pytest.approx(rate * plain.savings.hidden_tokens, rel=0.02)
    assert found.savings.observation_tokens == pytest.approx(rate * plain.savings.observation_tokens, rel=0.02)
    assert found.masked[0].tokens == pytest.approx(rate * plain.masked[0].tokens, rel=0.02)


def test_prices_of_a_set_are_counted_as_the_model_counts() -> None:
    """Where the user sets prices, tokens are still those of the model."""
    assert run(model="claude-opus-4-8", prices="anthropic").raw == run(model="claude-opus-4-8").raw


def test_the_model_of_a_call_decides_where_none_is_configured() -> None:
    """Without a configured model the scale is that of the model which the calls name."""
    assert run(asked="claude-opus-4-8").raw == pytest.approx(run(model="claude-opus-4-8").raw, rel=0.01)
    assert run(asked="claude-opus-4-8").savings.hidden_tokens == pytest.approx(
        run(model="claude-opus-4-8").savings.hidden_tokens, rel=0.01
    )


def test_dollars_are_those_of_the_tokens() -> None:
    """USD are tokens times rates on the same scale: Opus 4.8 counts 1.6 / 1.25 of Sonnet 4.6, at 5 / 3 of its rates."""
    small, large = run(model="claude-sonnet-4-6").costs, run(model="claude-opus-4-8").costs
    assert large.raw / small.raw == pytest.approx(1.6 / 1.25 * 5 / 3, rel=0.03)


def test_the_same_text_at_every_model(plain: Diagnostics) -> None:
    """What the model sees does not depend on how it counts."""
    texts = {mask.text for model in ("gpt-5", "claude-opus-4-8") for mask in run(model=model).masked}
    assert len(texts) == len(plain.masked)
