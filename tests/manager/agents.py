"""A small agent's messages, in each provider's shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]

#: A result that is worth hiding.
LONG = "\n".join(f"line {number}: value {number * 977}" for number in range(120))


def make_openai_step(step: int, result: str = LONG) -> list[Message]:
    call = {"id": f"c{step}", "type": "function", "function": {"name": "bash", "arguments": make_arguments(step)}}
    return [
        {"role": "assistant", "content": f"step {step}", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{step}", "content": f"{step}\n{result}"},
    ]


def make_responses_step(step: int, result: str = LONG) -> list[Message]:
    return [
        {"type": "reasoning", "id": f"rs{step}", "summary": [], "encrypted_content": "x" * 40},
        {"type": "function_call", "call_id": f"c{step}", "name": "bash", "arguments": make_arguments(step)},
        {"type": "function_call_output", "call_id": f"c{step}", "output": f"{step}\n{result}"},
    ]


def make_anthropic_step(step: int, result: str = LONG) -> list[Message]:
    use = {"type": "tool_use", "id": f"c{step}", "name": "bash", "input": json.loads(make_arguments(step))}
    answer = {"type": "tool_result", "tool_use_id": f"c{step}", "content": f"{step}\n{result}"}
    return [
        {"role": "assistant", "content": [{"type": "text", "text": f"step {step}"}, use]},
        {"role": "user", "content": [answer]},
    ]


def make_text_step(step: int, result: str = LONG) -> list[Message]:
    """A text protocol: the action inside what is said, its result in the user's words."""
    return [
        {"role": "assistant", "content": f"I look.\n```bash\ncat f{step}.py\n```"},
        {"role": "user", "content": f"{step}\n{result}"},
    ]


def make_arguments(step: int) -> str:
    return json.dumps({"command": f"cat f{step}.py"})


Steps = Callable[..., list[Message]]
SHAPES: dict[str, Steps] = {
    "openai": make_openai_step,
    "openai-responses": make_responses_step,
    "anthropic": make_anthropic_step,
    "text": make_text_step,
}


def make_task(words: str = "Mend the parser.") -> list[Message]:
    return [{"role": "user", "content": words}]


def make_history(shape: str, steps: int, words: str = "Mend the parser.") -> list[Message]:
    """The messages of a call after `steps` steps."""
    return [*make_task(words), *(message for step in range(1, steps + 1) for message in SHAPES[shape](step))]
