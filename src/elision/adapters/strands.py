"""Strands Agents: a plugin. `Agent(model=model, tools=tools, plugins=[ElisionStrandsPlugin("masking(window=10)")])`."""

from __future__ import annotations

from elision.adapters.frameworks import check_framework

check_framework("strands-agents", "1.62.0", "strands")

import base64  # noqa: E402
import copy  # noqa: E402
from collections.abc import AsyncIterator, Mapping, Sequence  # noqa: E402
from functools import partial  # noqa: E402
from itertools import takewhile  # noqa: E402
from typing import Any, Final, Never, Unpack  # noqa: E402

from strands.middleware import InvokeModelStage  # noqa: E402
from strands.plugins import Plugin  # noqa: E402
from strands.tools.tools import PythonAgentTool  # noqa: E402
from strands.types.exceptions import ContextWindowOverflowException  # noqa: E402

from elision.adapters.guarded_calls import (  # noqa: E402
    CallDescription,
    GuardedCall,
    RequestParts,
    SessionOwner,
    join_betas,
    list_recall_definitions,
    state_overflow,
)
from elision.adapters.mirror import Mirror, PlainMessage, dump_value  # noqa: E402
from elision.manager.context_options import ContextOptions  # noqa: E402
from elision.manager.context_view import ContextView  # noqa: E402
from elision.manager.session_pool import Sessions  # noqa: E402
from elision.strategies.strategy import Strategy  # noqa: E402
from elision.trajectory.usage import Usage  # noqa: E402


class ElisionStrandsPlugin(SessionOwner, Plugin):
    """Keep the context of Strands agents small: old tool results are hidden in requests, and can be read again.

    One plugin serves any number of agents. Each has a session of its own, named by its session manager and its
    `agent_id`; without a session manager the session ends with the agent. `agent.messages` and what the session
    manager stores stay whole. The agent gets the tools `elision_recall` and `elision_search`.

        with ElisionStrandsPlugin("masking(window=10)", store="sqlite:///agents.db") as elision:
            agent = Agent(model=model, tools=tools, plugins=[elision], context_manager=False)
            agent("List all parts.")

    strategy, options: as for `elision.ContextManager`; `model` is what costs are computed for until a model is asked.
    sessions: a pool to share, instead of options; it is not closed here.

    Raises SettingError, SpecError, PriceError for options without a meaning, StoreError where the store cannot be
    opened, FrameworkError (at import) without Strands 1.62 or newer. Errors of Elision during a run are logged
    (`elision.adapters`) and never reach the agent.
    """

    name = "elision"

    def __init__(
        self,
        strategy: str | Strategy = "masking",
        *misplaced: Never,
        sessions: Sessions | None = None,
        **options: Unpack[ContextOptions],
    ) -> None:
        SessionOwner.__init__(self, strategy, *misplaced, sessions=sessions, **options)
        Plugin.__init__(self)

    def init_agent(self, agent: Any) -> None:
        """Add the middleware and the recall tools to an agent; Strands calls this."""
        session = f"{agent.session_id}/{agent.agent_id}"
        agent.add_middleware(InvokeModelStage, partial(self._stream_model, session))
        for tool in list_recall_definitions():
            spec = {"name": tool.name, "description": tool.description, "inputSchema": {"json": tool.schema}}
            answer = partial(self._answer_recall, session)
            agent.tool_registry.register_tool(PythonAgentTool(tool.name, spec, answer))

    async def _stream_model(self, session: str, context: Any, next_fn: Any) -> AsyncIterator[Any]:
        # The messages of `context` are copies: what is sent of them changes nothing that the agent has.
        call = await self.calls.begin_described_async(context.messages, partial(_describe_call, session, context))
        while True:
            try:
                async for event in next_fn(_replace_request(context, call)):
                    if "stop" in event:
                        call.record(_read_usage(event["stop"][2]))
                    yield event
                return
            except ContextWindowOverflowException as error:
                if not await call.retry_async(state_overflow(error)):
                    raise

    async def _answer_recall(self, session: str, tool_use: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        answer = await self.calls.answer_recall_async(session, tool_use["name"], tool_use["input"])
        return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": answer}]}


# -- the request ------------------------------------------------------------------------------------------------------


def _describe_call(session: str, context: Any) -> CallDescription[Any]:
    system = context.system_prompt
    blocks = [{"text": system}] if isinstance(system, str) else system or ()
    parts = RequestParts(
        model=_read_model_name(context.model),
        system=[{"type": "text", "text": block["text"]} for block in blocks if "text" in block] or None,
        tools=[_convert_tool(spec) for spec in context.tool_specs] or None,
    )
    return CallDescription(name=session, mirror=_MIRROR, parts=parts)


def _read_model_name(model: Any) -> str:
    config = model.get_config()
    return str(config.get("model_id") or "") if isinstance(config, Mapping) else ""


def _convert_tool(spec: Mapping[str, Any]) -> dict[str, Any]:
    schema = spec["inputSchema"]
    return {"name": spec["name"], "description": spec["description"], "input_schema": schema.get("json", schema)}


def _replace_request(context: Any, call: GuardedCall[Any]) -> Any:
    """Return the request with the messages of `call`, and with what its view asks of the provider."""
    if call.view is None or not call.view.extra:
        return context.replace(messages=call.messages)
    return context.replace(messages=call.messages, model=_extend_model(context.model, call.view))


def _extend_model(model: Any, view: ContextView) -> Any:
    """Return a model for one call, whose requests have the fields of `view.extra`; `model` if its class has none."""
    # By name: importing the classes needs packages that another provider's user does not have.
    classes = {kind.__name__ for kind in type(model).__mro__}
    config = dict(getattr(model, "config", None) or {})
    if "AnthropicModel" in classes:
        params = dict(config.get("params") or {})
        headers = dict(params.get("extra_headers") or {})
        known = headers.get("anthropic-beta") or model.client.default_headers.get("anthropic-beta") or ""
        headers["anthropic-beta"] = join_betas(str(known), view.betas)
        params["extra_headers"] = headers
        params["extra_body"] = {**(params.get("extra_body") or {}), **view.extra}
        config["params"] = params
    elif "BedrockModel" in classes:
        fields = dict(config.get("additional_request_fields") or {})
        fields["anthropic_beta"] = list(dict.fromkeys([*(fields.get("anthropic_beta") or ()), *view.betas]))
        config["additional_request_fields"] = {**fields, **view.extra}
    else:
        return model
    extended = copy.copy(model)
    extended.config = config
    return extended


def _read_usage(usage: Mapping[str, Any]) -> Usage | None:
    """Return what a call used. Strands counts a prompt as its provider does, and only the total tells which way."""
    prompt, output, total = usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]
    read = usage.get("cacheReadInputTokens") or 0
    write = usage.get("cacheWriteInputTokens") or 0
    if not prompt and not output:
        return None
    if total == prompt + output + read + write:
        return Usage(input=prompt, output=output, cache_read=read, cache_write=write)
    return Usage.from_inclusive(prompt=prompt, output=output, cache_read=read, cache_write=write)


# -- messages: Bedrock's blocks as Anthropic's ------------------------------------------------------------------------


def _convert_message(message: Mapping[str, Any]) -> list[PlainMessage]:
    if message.get("role") not in ("user", "assistant") or not isinstance(message.get("content"), list):
        return []
    blocks = [_convert_block(block) for block in message["content"] if "cachePoint" not in block]
    return [{"role": message["role"], "content": blocks}]


def _convert_block(block: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    if use := block.get("toolUse"):
        return {"type": "tool_use", "id": use["toolUseId"], "name": use["name"], "input": use["input"]}
    if result := block.get("toolResult"):
        return {
            "type": "tool_result",
            "tool_use_id": result["toolUseId"],
            "content": [_convert_result_part(part) for part in result["content"]],
            "is_error": result.get("status") == "error",
        }
    if reasoning := block.get("reasoningContent"):
        said = reasoning.get("reasoningText") or {}
        if "signature" in said:
            return {"type": "thinking", "thinking": said.get("text", ""), "signature": said["signature"]}
        if "redactedContent" in reasoning:
            return {"type": "redacted_thinking", "data": base64.b64encode(reasoning["redactedContent"]).decode()}
    return _convert_result_part(block)


def _convert_result_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    if "json" in part:
        return {"type": "text", "text": dump_value(part["json"])}
    image = part.get("image")
    if image and "bytes" in image["source"]:
        data = base64.b64encode(image["source"]["bytes"]).decode()
        media_type = f"image/{image['format']}"
        return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
    # Documents, videos, and blocks that are not known here: they are sent as they are, and counted as their JSON.
    return {"type": "text", "text": dump_value(part)}


def _rebuild_message(message: Mapping[str, Any], sent: Mapping[int, PlainMessage]) -> Any:
    """Return a copy of a message with the blocks that are sent; the message itself where only cache marks differ."""
    given = message["content"]
    unused = [index for index, block in enumerate(given) if "cachePoint" not in block]
    content: list[Any] = []
    for marked in sent[0]["content"]:
        plain = {name: value for name, value in marked.items() if name != "cache_control"}
        index = _find_block(given, unused, plain)
        if index is None:
            content.append({"text": plain["text"]})
            continue
        unused.remove(index)
        own = given[index]
        content.append(own if _convert_block(own) == plain else _replace_result(own, plain["content"]))
        content += takewhile(lambda block: "cachePoint" in block, given[index + 1 :])
    if content == given:
        return message
    return {**message, "content": content} if content else None


def _find_block(given: Sequence[Any], indexes: Sequence[int], plain: Mapping[str, Any]) -> int | None:
    """Return which of the blocks at `indexes` a plain one stands for: a result by its id, any other by what it says."""
    for index in indexes:
        if plain["type"] == "tool_result":
            if given[index].get("toolResult", {}).get("toolUseId") == plain["tool_use_id"]:
                return index
        elif _convert_block(given[index]) == plain:
            return index
    return None


def _replace_result(own: Mapping[str, Any], content: Any) -> dict[str, Any]:
    text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    return {**own, "toolResult": {**own["toolResult"], "content": [{"text": text}]}}


_MIRROR: Final[Mirror[Any]] = Mirror(
    _convert_message, _rebuild_message, lambda text: {"role": "user", "content": [{"text": text}]}
)
