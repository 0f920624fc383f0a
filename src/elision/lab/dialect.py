"""Whose messages a replay sends: how they are rendered, and what of a turn they carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from elision.errors import SpecError
from elision.providers.anthropic import render as render_anthropic
from elision.providers.openai_chat import render as render_openai_chat
from elision.providers.openai_responses import render as render_openai_responses
from elision.providers.shared.base_renderer import ViewRenderer
from elision.trajectory.tokens import Sizer, make_counter

RENDERERS: Final[Mapping[str, Callable[[], ViewRenderer]]] = {
    "openai": render_openai_chat.OpenAIChatRenderer,
    "openai-responses": render_openai_responses.OpenAIResponsesRenderer,
    "anthropic": render_anthropic.AnthropicRenderer,
}


def renderer(dialect: str) -> ViewRenderer:
    """A fresh renderer. Raises SpecError."""
    return RENDERERS[check_dialect(dialect)]()


def sizer(dialect: str, tokens: str) -> Sizer:
    """Counts what `dialect` sends, with the counter `tokens`: Anthropic and Responses take reasoning back only sealed,
    so what is recorded in clear text is not sent and not counted there. Raises SpecError."""
    return Sizer(make_counter(tokens), reasoning=check_dialect(dialect) == "openai")


def check_dialect(dialect: str) -> str:
    """`dialect`, if it is one. Raises SpecError."""
    if dialect not in RENDERERS:
        raise SpecError(f"no dialect {dialect!r}; there are: {', '.join(RENDERERS)}")
    return dialect
