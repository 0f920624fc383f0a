# mypy: ignore-errors
# What this imports is in an environment of its own.
"""Inspect AI's `react` agent: a run is an evaluation of one sample, and runs at the same time are samples of one.

The hook is called once for a process, as `hook(settings)`, and returns `(options, tools)`: keyword arguments of `react`
(`model`, `compaction`), and the adapter's tools. What it registers for all agents (`@hooks`) needs no options.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, ClassVar

from inspect_ai import Task, eval, eval_async
from inspect_ai.agent import agent, as_solver, react
from inspect_ai.agent import run as run_agent
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentText,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.model._providers.mockllm import MockLLM
from inspect_ai.solver import solver
from inspect_ai.tool import ToolCall, ToolError, tool

from tests.adapters.recording import Answer, Call, Message, digest_image, take_turns
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

#: The script of the agent that runs.
_playing: ContextVar[Any] = ContextVar("playing")


async def _count_tokens(self: Any, text: str) -> int:
    """Count without a vocabulary, which the framework would fetch."""
    return len(text) // 4


MockLLM.count_text_tokens = _count_tokens


def read_message(message: ChatMessage) -> list[Message]:
    """Return the neutral form of a message."""
    made = Message(message.role, message.text)
    if isinstance(message, ChatMessageAssistant):
        made.calls = [Call(call.id, call.function, call.arguments) for call in message.tool_calls or ()]
    if isinstance(message, ChatMessageTool):
        made.answers, made.failed = message.tool_call_id or "", message.error is not None
        made.text = message.error.message if message.error else message.text
    if isinstance(message.content, list):
        images = [part.image for part in message.content if isinstance(part, ContentImage)]
        made.images = [digest_image(image.partition(",")[2].encode()) for image in images]
    return [made]


class Taps:
    """Notes messages before and behind the adapter, where that is an agent in the model's place."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def make_model(self, model: str) -> Any:
        """Return the framework's scripted model, or its client of a service."""
        if self.stage.service:
            return get_model(f"anthropic/{model}", base_url=self.stage.service, api_key="none", memoize=False)
        return get_model("mockllm/model", custom_outputs=self.respond, memoize=False)

    def respond(self, messages: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        """Play the script of the agent that asks."""
        player = _playing.get()
        self.stage.recorder.note_sent(player.agent, messages, read_message)
        schemas = [
            {"name": each.name, "parameters": each.parameters.model_dump(mode="json", exclude_none=True)}
            for each in tools
        ]
        answer: Answer = player.answer([each for message in messages for each in read_message(message)], schemas)
        if answer.overflow:
            return ModelOutput.from_content("mockllm/model", answer.refusal, stop_reason="model_length")
        made = ModelOutput.from_content("mockllm/model", answer.text)
        if answer.calls:
            made.choices[0].stop_reason = "tool_calls"
            made.message.tool_calls = [
                ToolCall(id=call.id, function=call.tool, arguments=call.arguments) for call in answer.calls
            ]
        # Its counts leave out what was cached and what was written.
        usage = answer.usage
        made.usage = ModelUsage(
            input_tokens=usage.prompt - usage.cached - usage.written,
            input_tokens_cache_read=usage.cached,
            input_tokens_cache_write=usage.written,
            output_tokens=usage.output,
            total_tokens=usage.prompt + usage.output,
        )
        return made

    def note_given(self, inner: Any) -> Any:
        """Return an agent around `inner`, an agent that takes the place of a model."""

        @agent(name="noting")
        def noting() -> Any:
            async def execute(state: Any, tools: Any) -> Any:
                """Note and ask."""
                self.stage.recorder.note_given(_playing.get().agent, state.messages)
                return await inner(state, tools)

            return execute

        return noting()


@tool
def look() -> Any:
    async def execute(part: int) -> str:
        """Lists a part.

        Args:
            part: Which.
        """
        return list_part(part)

    return execute


@tool
def fail() -> Any:
    async def execute(part: int) -> str:
        """Lists a part that cannot be read.

        Args:
            part: Which.
        """
        raise ToolError(describe_failure(part))

    return execute


@tool
def picture() -> Any:
    async def execute(part: int) -> Any:
        """Shows a part.

        Args:
            part: Which.
        """
        url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
        return [ContentText(text=list_part(part)), ContentImage(image=url)]

    return execute


class Host(FrameworkHost):
    PACKAGES = ("inspect-ai",)
    MISSING: ClassVar = {
        "streamed": "its agents do not stream",
    }

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.taps = Taps(stage)
        self.options, self.tools = stage.attach() or ({}, [])
        if self.options.get("model") is not None:
            self.options["model"] = self.taps.note_given(self.options["model"])

    async def run_all(self, runs: Sequence[Run]) -> list[str]:
        by_name = {run.thread: run for run in runs}
        players = {run.thread: self.stage.make_player(run) for run in runs}

        @solver
        def play() -> Any:
            async def solve(state: Any, generate: Any) -> Any:
                name = str(state.sample_id)
                _playing.set(players[name])
                return await as_solver(self._make_agent(by_name[name]))(state, generate)

            return solve

        samples = [Sample(self._load_history(run), id=run.thread) for run in runs]
        options: Any = {
            "model": self.taps.make_model(runs[0].model),
            "log_dir": str(self.stage.folder / "logs"),
            "log_level": "error",
            "display": "none",
        }
        task = Task(dataset=samples, solver=play(), message_limit=500)
        if runs[0].door == "sync":
            logs = await asyncio.to_thread(eval, task, **options)
        else:
            del options["display"]
            logs = await eval_async(task, **options)
        log = logs[0]
        texts = []
        for sample in sorted(log.samples or [], key=lambda sample: str(sample.id)):
            history = [message.model_dump(mode="json") for message in sample.messages]
            self._find_file(str(sample.id)).write_text(json.dumps(history), encoding="utf-8")
            texts.append(sample.output.completion)
        assert log.status == "success", log.error
        return texts

    def _make_agent(self, run: Run) -> Any:
        @tool
        def delegate() -> Any:
            async def execute(part: int) -> str:
                """Asks another agent for a part.

                Args:
                    part: Which.
                """
                player, own = self.stage.make_child_player(run), _playing.get()
                _playing.set(player)
                child = react(prompt=SYSTEM, tools=[look(), *self.tools], submit=False, **self.options)
                state = await run_agent(child, f"List all of part {part}.")
                _playing.set(own)
                return str(state.output.completion)

            return execute

        tools = [look(), fail(), picture(), delegate(), *self.tools]
        # The history of a sample that continues has a system message already.
        prompt = SYSTEM if run.begin == "new" else None
        return react(prompt=prompt, tools=tools, submit=False, **self.options)

    def _find_file(self, thread: str) -> Any:
        return self.stage.folder / f"{thread}.json"

    def _read_file(self, thread: str) -> list[ChatMessage]:
        found = json.loads(self._find_file(thread).read_text(encoding="utf-8"))
        return Sample.model_validate({"input": found}).input

    def _load_history(self, run: Run) -> Any:
        if run.begin == "new":
            return run.prompt
        messages = self._read_file(run.source if run.begin == "fork" else run.thread)
        if run.begin == "fork":
            messages = messages[: take_turns([read_message(each)[0] for each in messages], run.turns)]
        return [*messages, ChatMessageUser(content=run.prompt)]

    async def read_history(self, thread: str) -> list[Message]:
        return [each for message in self._read_file(thread) for each in read_message(message)]
