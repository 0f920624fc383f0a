"""Anthropic messages, live: which results may be hidden."""

from __future__ import annotations

from typing import Any

from elision import Advanced
from elision.manager import ContextManager
from elision.stores.memory import MemoryStore

#: Hides every result but the newest turn's that is longer than one word.
EAGER = 'masking(window=1, gist=0, handles=false, placeholder="[hidden]", schedule=every-turn)'


def step(id: str, content: Any) -> list[dict[str, Any]]:
    """A call and its result."""
    result = {"type": "tool_result", "tool_use_id": id, "content": content}
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "find", "input": {}}]},
        {"role": "user", "content": [result]},
    ]


def test_a_reference_to_a_tool_is_never_hidden() -> None:
    """A tool that a result loads may be called from then on; text beside other results is hidden as ever."""
    found = [{"type": "tool_reference", "tool_name": "exchange_rate"}]
    long = [{"type": "text", "text": "a line of many words\n" * 50}]
    given = [{"role": "user", "content": "Work."}, *step("t1", found), *step("t2", long), *step("t3", "ok")]
    context = ContextManager(
        EAGER, store=MemoryStore(), advanced=Advanced(dialect="anthropic"), model="claude-opus-4-5"
    )
    sent = context.prepare(given).messages
    results = [message["content"][0]["content"] for message in sent[2::2]]
    assert results == [found, "[hidden]", "ok"]
