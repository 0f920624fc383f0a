"""Turns that are added by hand: texts become turns, and views become messages."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from elision.errors import BudgetError, ConflictError, SettingError
from elision.manager import recall_tools
from elision.manager.branch import HistoryChange, find_newest_call
from elision.manager.context_view import ContextView
from elision.manager.drivers import Steps
from elision.manager.opened_session import OpenedSession
from elision.manager.outgoing_request import OutgoingRequest
from elision.providers.provider_table import find_provider_or_default
from elision.trajectory.turn import TEXT_ACTION, Action, Head, Message, Observation, Turn, make_content


class ManualTurns:
    """The turns of a session, as `context.turns`: a loop without a list of messages adds them here.

    `len(context.turns)` is the number of turns in the log of the present history, as far as it was read here.
    """

    def __init__(self, opened: OpenedSession) -> None:
        self._opened = opened
        provider = find_provider_or_default(opened.options.advanced.dialect)
        self._manual_dialect: str = provider.name
        self._renderer = provider.make_renderer()

    def begin(self, task: str | Head = "", *, system: str = "", tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """Set the head of a session whose turns are added by hand. task: its text, or the whole head as a value."""
        head = task if isinstance(task, Head) else make_head(task, system, tools)
        with self._opened.enter():
            branch = self._opened.preparer.follower.open_manual_branch()
            if branch.log.state.head != head:
                branch.log.set_head(head)

    def __len__(self) -> int:
        return self._opened.turn_count

    def __repr__(self) -> str:
        return f"<turns of session {self._opened.name!r}: {len(self)}>"

    def add(
        self,
        reasoning: str = "",
        action: Any = None,
        observation: Any = None,
        *,
        text: str = "",
        tags: str | Iterable[str] = (),
    ) -> Turn:
        """Add one step of a hand-written loop, and return it as a turn.

        reasoning, text: what the agent thought, and what it said.
        action:          a command as text, {"name": ..., "arguments": ...}, or a list of such.
        observation:     the result as text, or a list of as many results. Raises SettingError if they do not fit.
        tags:            of its results, for rules: `keep_output`, `remove_output`, or your own.
        """
        with self._opened.enter():
            branch = self._opened.preparer.follower.open_manual_branch()
            index = len(branch.log.state.turns) + 1
            turn = make_turn(index, reasoning, action, observation, text, tags)
            self.append(turn)
            return turn

    def append(self, turn: Turn) -> None:
        """Add a turn that is made already. It is durable with the next view."""
        with self._opened.enter():
            self._opened.has_manual_turns = True
            branch = self._opened.preparer.follower.open_manual_branch()
            _, answered = find_newest_call(branch.log.events)
            if turn.usage is None and answered is not None:
                turn = msgspec.structs.replace(turn, usage=answered.usage)
            branch.log.add_turn(turn)

    def view(self, *, model: str = "") -> ContextView:
        """Return the context of the next call, for turns that were added by hand.

        Raises BudgetError, ConflictError.
        """
        return self._opened.run(self._prepare_manual_view(model))

    async def view_async(self, *, model: str = "") -> ContextView:
        """Do as `view`, with the store and the summarizer off the event loop."""
        return await self._opened.run_async(self._prepare_manual_view(model))

    def _prepare_manual_view(self, model: str) -> Steps[ContextView]:
        started = time.perf_counter()
        self._opened.preparer.reports.begin_call()
        branch = self._opened.preparer.follower.open_manual_branch()
        model = model or self._opened.options.model
        tools = branch.log.state.head.tools
        self._opened.preparer.settle_handles(branch, tools or None, bound=False)
        terms = self._opened.preparer.make_manual_terms(branch, model)
        try:
            view = yield from self._opened.preparer.decide_view(branch, None, terms)
        except BudgetError:
            raise
        except ConflictError:
            self._opened.preparer.forget_branch()
            raise
        except BaseException:
            # Cancelled or interrupted, at any point. The log has what was added and decided.
            self._opened.preparer.fold_saved(branch)
            raise
        messages = self._renderer.render_messages(view)
        sent = OutgoingRequest(
            messages=messages,
            origins=[None] * len(messages),
            system=self._renderer.render_system(view) or None,
            tools=list(tools) or None,
        )
        sent = recall_tools.add_recall_tools(sent, branch.log, self._manual_dialect)
        self._opened.calls.warn_once(recall_tools.describe_lost_recall(branch.log, self._opened.options, sent.tools))
        result = self._opened.calls.make_view(
            branch, sent, HistoryChange.CONTINUE, model, started, self._manual_dialect
        )
        self._opened.calls.finish_call(result)
        return result


def make_head(task: str, system: str, tools: Sequence[Mapping[str, Any]]) -> Head:
    """Return the head of a session: system prompt and task as messages, and the tools."""
    messages = []
    if system:
        messages.append(Message(role="system", content=make_content(system)))
    if task:
        messages.append(Message(role="user", content=make_content(task)))
    return Head(messages=tuple(messages), tools=tuple(tools))


def make_turn(
    index: int, reasoning: str, action: Any, observation: Any, text: str, tags: str | Iterable[str] = ()
) -> Turn:
    """Return turn `index`. tags: of its results. Raises SettingError where actions and observations do not fit."""
    own_tags = _read_tags(tags)
    actions = tuple(_make_action(each, f"call_{index}_{place}") for place, each in enumerate(_to_list(action), start=1))
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
        return msgspec.structs.replace(given, tags=given.tags | tags)
    if isinstance(given, str):
        return Observation(action_id=call.id, tool=call.name, content=make_content(given), tags=tags)
    raise SettingError(f"an observation is a text, not {type(given).__name__}")
