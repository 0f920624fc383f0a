# mypy: ignore-errors
# What this imports is in environments of its own.
"""The frameworks' own compaction in the place of our adapters, for the scripted hosts of tests/adapters.

Each function is a hook, called as that framework's hook is. A threshold is such that the script of 30 calls reaches it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.adapters.stage import AdapterSettings


def langchain_edit(settings: AdapterSettings) -> list[Any]:
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware

    return [ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=4_000, keep=5)])]


def langchain_summary(settings: AdapterSettings) -> list[Any]:
    from langchain.agents.middleware import SummarizationMiddleware
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    writer = FakeListChatModel(responses=["A summary."])
    return [SummarizationMiddleware(writer, trigger=("tokens", 8_000), keep=("messages", 20))]


def strands_default(settings: AdapterSettings, agent: str) -> list[Any]:
    return _change_strands(conversation_manager=None)


def strands_window(settings: AdapterSettings, agent: str) -> list[Any]:
    from strands.agent.conversation_manager import SlidingWindowConversationManager

    return _change_strands(conversation_manager=SlidingWindowConversationManager(window_size=12, per_turn=True))


def strands_cleanup(settings: AdapterSettings, agent: str) -> list[Any]:
    return _change_strands(context_manager={"strategies": ["stale_tool_cleanup"]})


def _change_strands(**changes: Any) -> list[Any]:
    from strands import Agent
    from tests.adapters.hosts import strands

    strands.Agent = lambda **options: Agent(**{**options, **changes})
    return []


def agent_framework_results(settings: AdapterSettings) -> list[Any]:
    from agent_framework import ToolResultCompactionStrategy

    return _change_agent_framework(ToolResultCompactionStrategy(keep_last_tool_call_groups=5))


def agent_framework_window(settings: AdapterSettings) -> list[Any]:
    from agent_framework import SlidingWindowStrategy

    return _change_agent_framework(SlidingWindowStrategy(keep_last_groups=10))


def _change_agent_framework(strategy: Any) -> list[Any]:
    from agent_framework import Agent
    from tests.adapters.hosts import agent_framework

    agent_framework.Agent = lambda *parts, **options: Agent(*parts, **options, compaction_strategy=strategy)
    return []


def google_adk_filter(settings: AdapterSettings) -> list[Any]:
    from google.adk.plugins.context_filter_plugin import ContextFilterPlugin

    return [ContextFilterPlugin(num_invocations_to_keep=1)]


def inspect_ai_edit(settings: AdapterSettings) -> tuple[dict[str, Any], list[Any]]:
    from inspect_ai.model import CompactionEdit

    return {"compaction": CompactionEdit(threshold=9_000, keep_tool_uses=5, memory=False)}, []


def openai_agents_trimmer(settings: AdapterSettings, agent: str, config: Any) -> tuple[Any, list[Any]]:
    from agents.extensions import ToolOutputTrimmer

    return replace(config, call_model_input_filter=ToolOutputTrimmer(recent_turns=2)), []
