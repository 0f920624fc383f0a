"""A model that answers from a script, without HTTP: an `llm` for `elision.agent.run_agent`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec.structs import replace

from elision.agent.model import ModelAnswer, ModelError, Prompt, Shape, parse_model_answer
from elision.testing.exchange import ReplySpec
from elision.testing.parsed_request import split_into_blocks
from elision.testing.recorded_provider import RESPONSE_FORMATS
from elision.testing.recorded_run import RecordedRun
from elision.trajectory.tokens import make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head, Turn, make_content
from elision.trajectory.usage import Usage

#: What is said next: words, a turn with its calls, an error, or a function of the prompt that makes one of these.
Line: TypeAlias = "str | Turn | ModelError | Callable[[Prompt], str | Turn | ModelError]"


class ScriptedModel:
    """Says `script` line by line, in the messages of `shape`; what it was sent is in `prompts`.

    Its usage is counted: everything sent is plain input. Raises AssertionError where it is asked once more than the
    script is long.
    """

    def __init__(self, script: Iterable[Line], shape: Shape = "openai", name: str = "scripted") -> None:
        self.shape: Shape = shape
        self.name = name
        self.prompts: list[Prompt] = []
        self._script = iter(script)
        self._counter = make_counter()

    def answer(self, prompt: Prompt) -> ModelAnswer:
        """Return the next line as an answer."""
        self.prompts.append(prompt)
        line = next(self._script, None)
        if line is None:
            raise AssertionError(f"the script has {len(self.prompts) - 1} lines, and one more was asked for")
        said = line(prompt) if callable(line) else line
        if isinstance(said, ModelError):
            raise said
        return self._build_answer(said, prompt)

    def _build_answer(self, line: str | Turn, prompt: Prompt) -> ModelAnswer:
        number = len(self.prompts)
        if isinstance(line, str):
            turn = Turn(index=1, content=make_content(line))
        else:
            turn = replace(line, index=1)
        # Ids of its own, so that a script may use the same ones again.
        actions = tuple(replace(action, id=f"call_{number}_{action.id}") for action in turn.actions)
        turn = replace(turn, observations=(), actions=actions)
        run = Trajectory(id="script", head=Head(), turns=(turn,))
        reply = RecordedRun(run).get_reply(1)
        sent = sum(block.tokens for block in split_into_blocks(self.shape, _build_body(prompt), self._counter))
        said = self._counter.count(reply.text + reply.reasoning + "".join(call.arguments for call in reply.calls))
        spec = ReplySpec(
            reply=reply, usage=Usage(input=sent, output=said), model=self.name, id=str(number), signature="s"
        )
        return parse_model_answer(self.shape, json.loads(json.dumps(RESPONSE_FORMATS[self.shape].build_body(spec))))


def _build_body(prompt: Prompt) -> dict[str, object]:
    return {"messages": [*prompt.messages], "tools": [*prompt.tools], "system": prompt.system}
