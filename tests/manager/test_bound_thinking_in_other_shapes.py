"""Thinking that is bound to what precedes it, in the shapes of other APIs, as adapters and proxies translate it.

The service here checks as Anthropic's newest models do: a signature is a digest of everything before its turn.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from elision import Advanced
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from tests.manager.agents import SHAPES, Message, make_task

EAGER = "masking(window=2, schedule=every-turn)"
FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn)"
BOUND = "claude-opus-5-5"
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]


def sign(messages: Sequence[Message]) -> str:
    """The signature of thinking after `messages`. Earlier signatures are not signed."""
    return hashlib.sha256(json.dumps(_without_signatures(messages), sort_keys=True).encode()).hexdigest()


def _without_signatures(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_signatures(inner) for name, inner in value.items() if name != "signature"}
    if isinstance(value, list | tuple):
        return [_without_signatures(inner) for inner in value]
    return value


def think_in_blocks(step: int, before: Sequence[Message]) -> list[Message]:
    """As LangChain has it: thinking is a block of the content."""
    said, answered = copy.deepcopy(SHAPES["openai"](step))
    thought = {"type": "thinking", "thinking": f"I look at {step}.", "signature": sign(before)}
    return [{**said, "content": [thought, {"type": "text", "text": said["content"]}]}, answered]


def think_beside(step: int, before: Sequence[Message]) -> list[Message]:
    """As LiteLLM has it: the text is in `reasoning_content`, and the signed block in a field of its own."""
    said, answered = copy.deepcopy(SHAPES["openai"](step))
    block = {"type": "thinking", "thinking": f"I look at {step}.", "signature": sign(before)}
    return [{**said, "reasoning_content": f"I look at {step}.", "thinking_blocks": [block]}, answered]


def think_redacted(step: int, before: Sequence[Message]) -> list[Message]:
    """As LiteLLM has redacted thinking: there is no text of it."""
    said, answered = copy.deepcopy(SHAPES["openai"](step))
    block = {"type": "redacted_thinking", "data": f"encrypted {step}", "signature": sign(before)}
    return [{**said, "thinking_blocks": [block]}, answered]


def think_in_items(step: int, before: Sequence[Message]) -> list[Message]:
    """As a proxy has it that speaks Responses: an item of reasoning, with the signature as what is encrypted."""
    _, *rest = copy.deepcopy(SHAPES["openai-responses"](step))
    return [
        {"type": "reasoning", "id": f"rs{step}", "summary": [], "encrypted_content": "e", "signature": sign(before)},
        *rest,
    ]


THINKERS: dict[str, tuple[str, Callable[[int, Sequence[Message]], list[Message]]]] = {
    "blocks": ("openai", think_in_blocks),
    "beside": ("openai", think_beside),
    "redacted": ("openai", think_redacted),
    "items": ("openai-responses", think_in_items),
}


def find_refused(sent: Sequence[Message]) -> list[int]:
    """Return the messages whose thinking does not fit what is before them: the service answers HTTP 400."""
    refused = []
    for place, message in enumerate(sent):
        blocks = message["content"] if isinstance(message.get("content"), list) else []
        for block in [message, *blocks, *message.get("thinking_blocks", ())]:
            if block.get("signature") not in (None, sign(sent[:place])):
                refused.append(place)
    return refused


def run_agent(thinker: str, context: ContextManager, steps: int = 12, quiet_after: int = 99) -> list[Any]:
    """Return the view of each call. quiet_after: steps after which the agent thinks no more."""
    shape, think = THINKERS[thinker]
    messages = make_task()
    views = []
    for step in range(1, steps + 1):
        view = context.prepare(messages, tools=TOOLS if shape == "openai" else None)
        assert view.request
        assert find_refused(view.messages) == []
        views.append(view)
        if step <= quiet_after:
            messages += think(step, view.messages)
        else:
            messages += [each for each in SHAPES[shape](step) if each.get("type") != "reasoning"]
    return views


def open_context(thinker: str, strategy: str = EAGER, **options: Any) -> ContextManager:
    given: dict[str, Any] = {"model": BOUND, "dialect": THINKERS[thinker][0], "store": "memory:", **options}
    return ContextManager(strategy, **gather_options(given))


@pytest.mark.parametrize("strategy", [EAGER, FOLDING])
@pytest.mark.parametrize("thinking", ["auto", "defer", "native", "drop_block"])
@pytest.mark.parametrize("thinker", THINKERS)
def test_nothing_is_edited_before_thinking(thinker: str, thinking: str, strategy: str) -> None:
    """No request of the run is refused. What these shapes cannot ask for is deferred as well."""
    views = run_agent(thinker, open_context(thinker, strategy, thinking=thinking))
    if strategy == EAGER:
        assert views[-1].diagnostics.savings.masked == 0
        assert "deferred" in views[-1].diagnostics.reason
    assert not views[-1].extra
    assert not views[-1].betas


@pytest.mark.parametrize("thinker", THINKERS)
def test_what_follows_the_newest_thinking_is_edited(thinker: str) -> None:
    """An agent that thinks first and then acts is masked as usual."""
    views = run_agent(thinker, open_context(thinker), steps=16, quiet_after=3)
    assert views[-1].diagnostics.savings.masked >= 8


@pytest.mark.parametrize(("model", "dialect"), [("gpt-5", "openai"), ("deepseek-v3.2", "openai"), ("", "openai")])
def test_other_models_bind_nothing(model: str, dialect: Any) -> None:
    """Reasoning of a model that binds nothing, or of one that nobody named, holds nothing back."""
    messages = make_task()
    for step in range(1, 9):
        said, answered = SHAPES["openai"](step)
        messages += [{**said, "reasoning_content": "I look."}, answered]
    view = ContextManager(EAGER, model=model, advanced=Advanced(dialect=dialect), store="memory:").prepare(messages)
    assert view.diagnostics.savings.masked == 6


def test_a_model_that_nobody_named_may_be_deferred() -> None:
    """An alias hides what the model is: the option says so."""
    views = run_agent("beside", open_context("beside", model="our-best", thinking="defer"))
    assert views[-1].diagnostics.savings.masked == 0


def test_a_model_that_binds_and_shows_no_thinking_is_masked() -> None:
    """A gateway that takes thinking out leaves nothing that could be invalid, and recall is offered as usual."""
    messages = make_task()
    for step in range(1, 9):
        messages += SHAPES["openai"](step)
    context = ContextManager(EAGER, model=BOUND, advanced=Advanced(dialect="openai"), store="memory:")
    view = context.prepare(messages, tools=TOOLS)
    assert view.diagnostics.savings.masked == 6
    assert len(view.added_tools) == 2


def test_tools_do_not_enter_after_thinking() -> None:
    """The tools are before all thinking: offered from the start they stay, and after thinking nothing is added."""
    views = run_agent("blocks", open_context("blocks"), steps=16, quiet_after=3)
    assert all(len(view.added_tools) == 2 for view in views)
    later = open_context("blocks")
    assert not later.prepare(views[-1].messages, tools=TOOLS).added_tools
    assert "[t1.1 " not in str(later.prepare(views[-1].messages, tools=TOOLS).messages)


def test_the_option_may_ignore_it() -> None:
    """An account that is exempt."""
    messages = make_task()
    for step in range(1, 9):
        messages += think_in_blocks(step, messages)
    view = open_context("blocks", thinking="ignore").prepare(messages)
    assert view.diagnostics.savings.masked == 6
