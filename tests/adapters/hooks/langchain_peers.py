# mypy: ignore-errors
# What this imports is in an environment of its own.
"""LangChain's own context middleware, in the place of ours."""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware, SummarizationMiddleware
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from tests.adapters.stage import AdapterSettings


def edit(settings: AdapterSettings) -> list[Any]:
    """Return what clears all but five results above 4,000 tokens."""
    return [ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=4_000, keep=5)])]


def summarize(settings: AdapterSettings) -> list[Any]:
    """Return what summarizes all but 20 messages above 8,000 tokens."""
    writer = FakeListChatModel(responses=["A summary."])
    return [SummarizationMiddleware(writer, trigger=("tokens", 8_000), keep=("messages", 20))]
