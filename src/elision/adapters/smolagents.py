"""smolagents: agents whose old tool results are hidden in what their memory is written to.

elision = ElisionMemory("masking(window=10)")
agent = elision.attach(ToolCallingAgent(tools=tools, model=model))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import (
    CallDescription,
    GuardedCall,
    GuardedCalls,
    RecallDefinition,
    SessionOwner,
    list_recall_definitions,
)
from elision.adapters.mirror import Mirror, PlainMessage, dump_value
from elision.errors import SettingError
from elision.trajectory.usage import Usage

check_framework("smolagents", "1.20.0", "smolagents")

from smolagents import ActionStep, AgentGenerationError, ChatMessage, MessageRole, Tool  # noqa: E402
from smolagents.models import get_tool_json_schema  # noqa: E402


class ElisionMemory(SessionOwner):
    """Hide old tool results in the requests of smolagents' agents; the agents get the recall tools.

        with ElisionMemory("masking(window=10)", store="sqlite:///agents.db") as elision:
            agent = elision.attach(CodeAgent(tools=tools, model=model))
            agent.run("List all parts.")

    One serves any number of agents. Each run that begins anew is a session; `run(..., reset=False)` continues one. The
    memory of an agent stays whole.

    strategy, options: as for `elision.Sessions`; the model is the agent's. sessions: a pool to share, which is not
    closed here. An error of Elision is logged (`elision.adapters`), and that request is sent unchanged. Raises
    FrameworkError on import without smolagents 1.20; SettingError, SpecError, StoreError as `Sessions` does.
    """

    def attach(self, agent: Any) -> Any:
        """Change an agent, and the agents that it manages, and return it.

        Raises SettingError for an agent that is attached already.
        """
        if hasattr(agent, "_elision"):
            raise SettingError(f"{agent.name or type(agent).__name__}: this agent is attached already")
        attached = _AttachedAgent(self.calls, agent)
        for child in agent.managed_agents.values():
            if not hasattr(child, "_elision"):
                self.attach(child)
            child._elision.parent = attached
        return agent

    def get_session(self, agent: Any) -> str:
        """Return the name of the session of an attached agent's run; "" before its first request."""
        session: str = agent._elision.session
        return session


@dataclass(frozen=True)
class _RenderedStep:
    """A step of the memory, of which something is hidden, as messages; or a summary."""

    messages: list[ChatMessage]

    def to_messages(self) -> list[ChatMessage]:
        return self.messages


class _AttachedAgent:
    """What is kept beside an agent: its session, the call that runs, and who manages it.

    session: of the run, which `opening`, the first step of its memory, is known by.
    """

    def __init__(self, calls: GuardedCalls, agent: Any) -> None:
        self.calls, self.agent = calls, agent
        self.parent: _AttachedAgent | None = None
        self.session = ""
        self._opening: Any = None
        self._call: GuardedCall[Any] | None = None
        self._is_prepared = False
        self._write_whole = agent.write_memory_to_messages
        self._stream_step = agent._step_stream
        agent._elision = self
        agent.write_memory_to_messages = self.write_messages
        agent._step_stream = self.stream_step
        for definition in list_recall_definitions():
            agent.tools[definition.name] = _SmolRecallTool(self, definition)

    def write_messages(self, summary_mode: bool = False) -> list[ChatMessage]:
        """Return the memory as messages, with old results hidden. A plan is made from the whole."""
        if summary_mode:
            whole: list[ChatMessage] = self._write_whole(summary_mode=True)
            return whole
        if not self._is_prepared or self._call is None:
            steps = [self.agent.memory.system_prompt, *self.agent.memory.steps]
            self._call = self.calls.begin_described(steps, self._describe_call)
        self._is_prepared = False
        return [message for step in self._call.messages for message in step.to_messages()]

    def stream_step(self, memory_step: ActionStep) -> Iterator[Any]:
        """Take a step as the agent does; ask the model once more where that was too long."""
        self._call, self._is_prepared = None, False
        try:
            try:
                yield from self._stream_step(memory_step)
            except AgentGenerationError as error:
                if self._call is None or not self._call.retry(error.__cause__ or error):
                    raise
                self._is_prepared = True
                yield from self._stream_step(memory_step)
        finally:
            usage = memory_step.token_usage
            if usage is not None and self._call is not None:
                self._call.record(Usage.from_inclusive(prompt=usage.input_tokens, output=usage.output_tokens))

    def _describe_call(self) -> CallDescription[Any]:
        steps = self.agent.memory.steps
        opening = steps[0] if steps else None
        if opening is not self._opening or not self.session:
            self._opening = opening
            self.session = f"smolagents-{uuid4().hex[:12]}"
        # A code agent's tools are in its system prompt.
        tools = [get_tool_json_schema(tool) for tool in getattr(self.agent, "tools_and_managed_agents", ())]
        return CallDescription(
            name=self.session,
            mirror=_MIRROR,
            parent=self.parent.session if self.parent else "",
            parts={"tools": tools or None, "model": getattr(self.agent.model, "model_id", None) or ""},
        )


def _to_plain(step: Any) -> list[PlainMessage]:
    """Return a step as messages in OpenAI's shape.

    smolagents joins the results of a step's calls, so they are one result, of one call that names them all.
    """
    messages = step.to_messages()
    if not isinstance(step, ActionStep) or not step.tool_calls:
        roles = {MessageRole.SYSTEM: "system", MessageRole.ASSISTANT: "assistant"}
        return [{"role": roles.get(message.role, "user"), "content": _read_text(message)} for message in messages]
    identity = step.tool_calls[0].id
    function = {
        "name": "+".join(dict.fromkeys(call.name for call in step.tool_calls)),
        "arguments": dump_value(
            step.tool_calls[0].arguments if len(step.tool_calls) == 1 else [call.arguments for call in step.tool_calls]
        ),
    }
    said = [_read_text(message) for message in messages if message.role == MessageRole.ASSISTANT]
    call = {"id": identity, "type": "function", "function": function}
    plain: list[PlainMessage] = [{"role": "assistant", "content": "\n".join(said), "tool_calls": [call]}]
    results = [
        _read_text(message).removeprefix("Observation:\n")
        for message in messages
        if message.role == MessageRole.TOOL_RESPONSE
    ]
    return [*plain, {"role": "tool", "tool_call_id": identity, "content": "\n".join(results)}]


def _rebuild(step: Any, sent: Mapping[int, PlainMessage]) -> _RenderedStep | None:
    """Return a step with another result. What is no result stays, images too."""
    if 1 not in sent:
        return None
    label = "Error" if step.error and not step.observations else "Observation"
    kept = [message for message in step.to_messages() if message.role != MessageRole.TOOL_RESPONSE]
    return _RenderedStep([*kept, _make_message(f"{label}:\n{sent[1]['content']}", MessageRole.TOOL_RESPONSE)])


def _make_message(text: str, role: MessageRole = MessageRole.USER) -> ChatMessage:
    return ChatMessage(role=role, content=[{"type": "text", "text": text}])


def _read_text(message: ChatMessage) -> str:
    return "\n".join(part.get("text", f"[{part['type']}]") for part in message.content)


_MIRROR: Mirror[Any] = Mirror(_to_plain, _rebuild, lambda text: _RenderedStep([_make_message(text)]))


class _SmolRecallTool(Tool):
    """A recall tool of one agent."""

    output_type = "string"
    #: The arguments are those of `inputs`.
    skip_forward_signature_validation = True

    def __init__(self, attached: _AttachedAgent, definition: RecallDefinition) -> None:
        self.name, self.description = definition.name, definition.description
        required = definition.schema["required"]
        self.inputs = {
            name: {**schema, **({} if name in required else {"nullable": True})}
            for name, schema in definition.schema["properties"].items()
        }
        self._attached = attached
        super().__init__()

    def forward(self, *values: Any, **named: Any) -> str:
        """Answer a call, with arguments by place or by name."""
        given = {**dict(zip(self.inputs, values, strict=False)), **named}
        arguments = {name: value for name, value in given.items() if value is not None}
        return self._attached.calls.answer_recall(self._attached.session, self.name, arguments)
