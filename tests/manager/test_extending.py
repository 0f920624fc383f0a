"""A summary asked for behind the live prefix, where that is the cheaper way: its bytes are those that were sent."""

from __future__ import annotations

from typing import Any

import pytest

from elision import Advanced
from elision.manager import ContextManager
from elision.stores.memory import MemoryStore
from elision.summarizers.factory import make_summarizer
from tests.manager.agents import make_history
from tests.summarizers.scripted_server import reply_chat, reply_claude, serve_script

GOOD = "Steps 1 to 6 were done: the files f1.py to f6.py were read; line 119 of each says value 116263."
ENDPOINTS: list[tuple[Any, str, Any]] = [("openai", "/v1", reply_chat), ("anthropic", "", reply_claude)]


@pytest.mark.parametrize(("kind", "path", "answer"), ENDPOINTS, ids=["openai", "anthropic"])
def test_a_summary_extends_what_is_in_cache(kind: Any, path: str, answer: Any) -> None:
    """The request begins with the messages of the call before, byte for byte, tools and system prompt included."""
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    if kind == "anthropic":
        tools = [{"name": "bash", "input_schema": {"type": "object"}}]
    with serve_script(answer(GOOD)) as server:
        writer = make_summarizer(f"{kind}:m", api_key="a-long-key-of-nobody", base_url=f"{server.url}{path}")
        context = ContextManager(
            "summarization(every=6, tail=2, summary_max_tokens=200, schedule=every-turn)",
            model="m",
            prices="anthropic",
            store=MemoryStore(),
            advanced=Advanced(dialect=kind),
            recall="never",
            summarizer=writer,
        )
        for steps in range(8):
            before = context.prepare(make_history(kind, steps), tools=tools)
        view = context.prepare(make_history(kind, 8), tools=tools)
    assert view.diagnostics.summarized is not None, view.diagnostics.faults
    assert view.diagnostics.summarized.route == "extend"
    (sent,) = server.bodies
    assert sent["tools"] == tools
    if kind == "anthropic":
        # Read where the call before left it: a breakpoint stands where its prompt ended.
        assert sent["messages"][len(before.messages) - 1] == before.messages[-1]
        assert "cache_control" in before.messages[-1]["content"][-1]
        assert "cache_control" not in sent
    assert plain(sent["messages"])[: len(before.messages)] == plain(before.messages)


def plain(value: Any) -> Any:
    """Without cache markers; a text and one block of text are the same to the provider."""
    if isinstance(value, dict):
        whole = {key: plain(inner) for key, inner in value.items() if key != "cache_control"}
        if whole.get("role") == "user" and isinstance(whole["content"], str):
            whole["content"] = [{"type": "text", "text": whole["content"]}]
        return whole
    return [plain(inner) for inner in value] if isinstance(value, list) else value
