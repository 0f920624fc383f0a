"""Assemble recorded messages into atomic turns. This is the one place where that happens.

Every reader feeds it in recorded order. What does not fit (a result without a call, for example) becomes a Problem.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from elision.formats.document import RunOrProblem
from elision.providers.shared.json_reading import AssistantMessage, MessageTags, join_lines
from elision.trajectory.trajectory import Compaction, CompactionKind, Problem, PromptChange, Trajectory
from elision.trajectory.turn import (
    Action,
    Content,
    Head,
    Message,
    Observation,
    ObservationRole,
    TurnBuilder,
    choose_observation_role,
    find_opening_text,
)
from elision.trajectory.usage import Usage


class Assembler:
    """Builds one trajectory.

    file:         for problems.
    observations: which messages are observations; `auto` decides when `finish` is called, with everything seen.
    """

    def __init__(self, file: str, observations: ObservationRole = "auto") -> None:
        self.file = file
        self.observations = observations
        self.problems: list[Problem] = []
        self._head: list[Message] = []
        self._tool_definitions: list[Mapping[str, Any]] = []
        self._drafts: list[TurnBuilder] = []
        self._compactions: list[Compaction] = []
        self._changes: list[PromptChange] = []
        #: Settings as they are now, and as they were at the newest call.
        self._settings: dict[str, str] = {}
        self._settings_sent: dict[str, str] = {}
        self._calls: dict[str, TurnBuilder] = {}
        #: Ids given to calls of the newest message that came without one, in order: results without an id answer them.
        self._unnamed_ids: deque[str] = deque()

    @property
    def turn_count(self) -> int:
        """Return the number of turns begun so far."""
        return len(self._drafts)

    @property
    def is_unanswered(self) -> bool:
        """Return whether the newest record is an assistant message: no result and no message came after it."""
        return bool(self._drafts) and not self._drafts[-1].results and not self._drafts[-1].users

    @property
    def has_unnamed_call(self) -> bool:
        """Return whether a call that was recorded without an id waits for its result."""
        return bool(self._unnamed_ids)

    def report_problem(self, reason: str, line: int | None = None) -> None:
        """Report something unreadable; reading continues."""
        self.problems.append(Problem(file=self.file, line=line, reason=reason))

    def add_tools(self, definitions: Iterable[Mapping[str, Any]]) -> None:
        """Add tool definitions to the head."""
        self._tool_definitions.extend(definitions)

    def add_system(self, content: Content, *, role: Literal["system", "developer"] = "system") -> None:
        """Add a system prompt; one after the first turn is kept as an interjection."""
        self._add_message(Message(role=role, content=content))

    def add_user(self, content: Content, *, pinned: bool = False, tags: frozenset[str] = frozenset()) -> None:
        """Add a user message: task, interjection or, in a text protocol or tagged `tool_output`, observation."""
        self._add_message(Message(role="user", content=content, pinned=pinned), tags)

    def _add_message(self, message: Message, tags: frozenset[str] = frozenset()) -> None:
        if not message.content:
            return
        if self._drafts:
            draft = self._drafts[-1]
            if tags:
                draft.user_tags = {**draft.user_tags, len(draft.users): tags}
            draft.users += (message,)
        else:
            self._head.append(message)

    def add_assistant(
        self,
        content: Content = (),
        *,
        reasoning: str = "",
        actions: Iterable[Action] = (),
        usage: Usage | None = None,
        at: float | None = None,
        model: str = "",
        line: int | None = None,
    ) -> None:
        """Add an assistant message with its calls. Call ids that repeat within it are reported and dropped."""
        self._unnamed_ids.clear()
        unique: dict[str, Action] = {}
        for action in self._name_calls(actions, self.turn_count + 1):
            if action.id in unique:
                self.report_problem(
                    f"call id {action.id!r} occurs twice in one assistant message; the first is kept", line
                )
            else:
                unique[action.id] = action
        if self._settings != self._settings_sent:
            for name, value in self._settings.items():
                if self._drafts and self._settings_sent.get(name) != value:
                    self._changes.append(PromptChange(before=self.turn_count + 1, what=name))
            self._settings_sent = self._settings.copy()
        draft = TurnBuilder(content, reasoning, tuple(unique.values()), usage, at, model)
        self._drafts.append(draft)
        for key in unique:
            self._calls[key] = draft

    def set_setting(self, name: str, value: str) -> None:
        """Note what a setting is for the calls to come. name: as a report calls it, such as "the thinking level"."""
        self._settings[name] = value

    def take_assistant(
        self,
        said: AssistantMessage,
        *,
        continues: bool = False,
        usage: Usage | None = None,
        at: float | None = None,
        model: str = "",
        line: int | None = None,
    ) -> None:
        """Add an assistant message as a provider's parser read it; with `continues` to the newest one."""
        if continues:
            self.amend_assistant(
                content=said.content, reasoning=said.reasoning, actions=said.actions, usage=usage, model=model
            )
            return
        self.add_assistant(
            said.content, reasoning=said.reasoning, actions=said.actions, usage=usage, at=at, model=model, line=line
        )

    def tag_assistant(self, tags: MessageTags, actions: Sequence[Action] | None = None) -> None:
        """Add tags of the newest assistant message: they are of the results of its calls, or of its turn.

        actions: the calls of the part that has the tags; None for all calls so far.
        """
        if self._drafts:
            draft = self._drafts[-1]
            draft.add_tags(tags.of_text, draft.actions if actions is None else actions, tags.calls)

    def amend_assistant(
        self,
        *,
        content: Content = (),
        reasoning: str = "",
        actions: Iterable[Action] = (),
        usage: Usage | None = None,
        model: str = "",
    ) -> None:
        """Add to the newest assistant message (formats that record one message in fragments).

        usage: that of the whole message; the last one holds, since recorders know the output only at the end.
        """
        draft = self._drafts[-1]
        draft.usage = usage or draft.usage
        draft.model = draft.model or model
        known = {action.id for action in draft.actions}
        fresh = tuple(action for action in self._name_calls(actions, self.turn_count) if action.id not in known)
        draft.content += content
        draft.reasoning = join_lines((draft.reasoning, reasoning))
        draft.actions += fresh
        for action in fresh:
            self._calls[action.id] = draft

    def _name_calls(self, actions: Iterable[Action], turn: int) -> Iterator[Action]:
        """Give calls that were recorded without ids a name each, unique in their turn."""
        for action in actions:
            if action.id:
                yield action
                continue
            self._unnamed_ids.append(f"call_{turn}_{len(self._unnamed_ids) + 1}")
            yield replace(action, id=self._unnamed_ids[-1])

    def add_result(
        self,
        action_id: str,
        content: Content,
        *,
        tool: str = "",
        error: bool | None = None,
        tags: frozenset[str] = frozenset(),
        line: int | None = None,
    ) -> None:
        """Add a result to the turn of its call, however late it comes. A result without a call is reported and left
        out."""
        if not action_id and self._unnamed_ids:
            action_id = self._unnamed_ids.popleft()
        draft = self._calls.get(action_id)
        if draft is None:
            self.report_problem(f"result of call {action_id!r} has no such call before it; left out", line)
            return
        if any(known.action_id == action_id for known in draft.results):
            self.report_problem(f"call {action_id!r} is answered twice; the first result is kept", line)
            return
        if not tool:
            names = {action.id: action.name for action in draft.actions}
            tool = names[action_id]
        draft.results += (Observation(action_id=action_id, tool=tool, content=content, error=error, tags=tags),)

    def add_compaction(
        self,
        *,
        tokens_before: int | None = None,
        summary: str = "",
        kind: CompactionKind = "summary",
        kept_from: int | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Note that the recording agent rewrote its own context here. kept_from: the first turn that it kept."""
        self._compactions.append(
            Compaction(
                before=self.turn_count + 1,
                tokens_before=tokens_before,
                summary=summary,
                kind=kind,
                kept_from=kept_from,
                usage=usage,
            )
        )

    def finish(
        self,
        id: str,
        *,
        format: str,
        model: str = "",
        parent: str | None = None,
        recorded_window: int | None = None,
        usd: float | None = None,
    ) -> Trajectory | None:
        """Return the trajectory; None if there was no assistant message. usd: of the whole run, if it is recorded."""
        if not self._drafts:
            return None
        mode = self.observations
        if mode == "auto":
            seen = bool(self._tool_definitions) or any(draft.results or draft.actions for draft in self._drafts)
            mode = choose_observation_role(find_opening_text(self._drafts), has_tools=seen)
        models = Counter(draft.model for draft in self._drafts if draft.model)
        if not model and models:
            model = models.most_common(1)[0][0]
        self._name_models()
        return Trajectory(
            id=id,
            file=self.file,
            format=format,
            model=model,
            parent=parent,
            head=Head(messages=tuple(self._head), tools=tuple(self._tool_definitions)),
            turns=tuple(draft.build_turn(number, mode) for number, draft in enumerate(self._drafts, start=1)),
            compactions=tuple(self._compactions),
            changes=tuple(self._changes),
            recorded_window=recorded_window,
            observations=mode,
            usd=usd,
        )

    def _name_models(self) -> None:
        """Give each call without a model that of the call before it, or of the first that has one.

        A request with its response names the model of its last call only. Left without a name, the earlier calls would
        count as another model's, and the last would find no prompt cache.
        """
        model = next((draft.model for draft in self._drafts if draft.model), "")
        for draft in self._drafts:
            model = draft.model = draft.model or model


def yield_run(
    assembler: Assembler, run: Trajectory | None, *, missing: str = "", line: int | None = None
) -> Iterator[RunOrProblem]:
    """Yield every problem, and `run`, which `assembler` finished.

    missing: the problem where there is no run; "" for none. line: of that problem.
    """
    yield from assembler.problems
    if run is not None:
        yield run
    elif missing:
        yield Problem(file=assembler.file, line=line, reason=missing)
