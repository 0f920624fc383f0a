"""Whose messages a replay sends: how they are rendered, and what of a turn they carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from elision.dialects import render_anthropic, render_openai_chat, render_openai_responses
from elision.dialects.render import Renderer
from elision.errors import SpecError
from elision.trajectory.tokens import Sizer, counter

RENDERERS: Final[Mapping[str, Callable[[], Renderer]]] = {
    "openai": render_openai_chat.Renderer,
    "openai-responses": render_openai_responses.Renderer,
    "anthropic": render_anthropic.Renderer,
}


def renderer(dialect: str) -> Renderer:
    """A fresh renderer. Raises SpecError."""
    return RENDERERS[known(dialect)]()


def sizer(dialect: str, tokens: str) -> Sizer:
    """Counts what `dialect` sends, with the counter `tokens`: Anthropic and Responses take reasoning back only sealed,
    so what is recorded in clear text is not sent and not counted there. Raises SpecError."""
    return Sizer(counter(tokens), reasoning=known(dialect) == "openai")


def known(dialect: str) -> str:
    """`dialect`, if it is one. Raises SpecError."""
    if dialect not in RENDERERS:
        raise SpecError(f"no dialect {dialect!r}; there are: {', '.join(RENDERERS)}")
    return dialect
