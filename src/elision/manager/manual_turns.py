"""Turns that are added by hand: texts become values, and views become messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from elision.errors import SettingError
from elision.manager.context_options import DialectName
from elision.providers.anthropic import render as render_anthropic
from elision.providers.openai_chat import render as render_openai_chat
from elision.providers.openai_responses import render as render_openai_responses
from elision.providers.shared.base_renderer import JsonMessage, ViewRenderer
from elision.trajectory.content import make_content
from elision.trajectory.turn import TEXT_ACTION, Action, Head, Message, Observation, Turn
from elision.trajectory.view import View

_RENDERERS: Final[Mapping[str, Callable[[], ViewRenderer]]] = {
    "openai": render_openai_chat.OpenAIChatRenderer,
    "openai-responses": render_openai_responses.OpenAIResponsesRenderer,
    "anthropic": render_anthropic.AnthropicRenderer,
}


class ManualTurns:
    """Makes turns of texts, and messages of views. dialect: shape of the messages; `auto` is OpenAI chat."""

    def __init__(self, dialect: DialectName) -> None:
        self.dialect: str = "openai" if dialect == "auto" else dialect
        self._renderer = _RENDERERS[self.dialect]()

    def render_messages(self, view: View) -> tuple[list[JsonMessage], Any]:
        """Return the request's messages, and its system prompt where that is apart from them."""
        return self._renderer.render_messages(view), self._renderer.render_system(view) or None

    @staticmethod
    def make_head(task: str, system: str, tools: Sequence[Mapping[str, Any]]) -> Head:
        """Return the head of a session: system prompt and task as messages, and the tools."""
        messages = []
        if system:
            messages.append(Message(role="system", content=make_content(system)))
        if task:
            messages.append(Message(role="user", content=make_content(task)))
        return Head(messages=tuple(messages), tools=tuple(tools))

    @staticmethod
    def make_turn(
        index: int, reasoning: str, action: Any, observation: Any, text: str, tags: str | Iterable[str] = ()
    ) -> Turn:
        """Return turn `index`. tags: of its results. Raises SettingError where actions and observations do not fit."""
        own_tags = _read_tags(tags)
        actions = tuple(
            _make_action(each, f"call_{index}_{place}") for place, each in enumerate(_to_list(action), start=1)
        )
        results = _to_list(observation)
        if len(results) > len(actions):
            raise SettingError(
                f"turn {index} has {len(results)} observations for {len(actions)} actions: give an action for each"
            )
        return Turn(
            index=index,
            content=make_content(text),
            reasoning=reasoning,
            actions=actions,
            observations=tuple(
                _make_observation(each, call, own_tags) for each, call in zip(results, actions, strict=False)
            ),
        )


def _read_tags(value: Any) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset((value,)) if value else frozenset()
    tags = tuple(value) if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping) else (value,)
    for tag in tags:
        if not isinstance(tag, str) or not tag:
            raise SettingError(f"tags={value!r:.80}: give a text, or a list of texts such as ['keep_output']")
    return frozenset(tags)


def _to_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _make_action(given: Any, id: str) -> Action:
    if isinstance(given, Action):
        return given
    if isinstance(given, str):
        return Action(id=id, name=TEXT_ACTION, arguments=json.dumps({"input": given}))
    if isinstance(given, Mapping) and isinstance(given.get("name"), str):
        arguments = given.get("arguments", {})
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        return Action(id=str(given.get("id") or id), name=given["name"], arguments=arguments)
    raise SettingError(f"an action is a text or {{'name': ..., 'arguments': ...}}, not {type(given).__name__}")


def _make_observation(given: Any, call: Action, tags: frozenset[str]) -> Observation:
    if isinstance(given, Observation):
        return replace(given, tags=given.tags | tags)
    if isinstance(given, str):
        return Observation(action_id=call.id, tool=call.name, content=make_content(given), tags=tags)
    raise SettingError(f"an observation is a text, not {type(given).__name__}")
