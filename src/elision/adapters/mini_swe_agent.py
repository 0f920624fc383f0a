"""mini-swe-agent: models that hide old outputs of commands in what is sent, and answer recall.

mini --model-class elision.adapters.mini_swe_agent.ElisionLitellmModel

The agent's messages and its trajectory file stay whole.
"""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any, ClassVar, Never
from uuid import uuid4

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import SessionOwner
from elision.errors import SettingError
from elision.manager.advanced_options import ADVANCED_NAMES, CACHE_NAMES, gather_options
from elision.manager.context_options import ContextOptions
from elision.manager.recall_tools import RECALL_TOOL_DEFINITIONS, define_recall_tools
from elision.manager.session_pool import Sessions

check_framework("mini-swe-agent", "2.0.0", "mini-swe-agent")

import litellm  # noqa: E402
from minisweagent.exceptions import FormatError  # noqa: E402
from minisweagent.models.litellm_model import LitellmModel  # noqa: E402
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel  # noqa: E402
from minisweagent.models.utils.actions_toolcall import BASH_TOOL  # noqa: E402

_RECALL_NAMES = frozenset(tool["name"] for tool in RECALL_TOOL_DEFINITIONS)
_OPTION_NAMES = {*ContextOptions.__annotations__, *ADVANCED_NAMES, *CACHE_NAMES, "limit", "idle_seconds"}
#: How many runs of agents one model object tells apart.
_MOST_RUNS = 64


class _SessionModel(SessionOwner):
    """What both models have in common: each run of an agent has a session, and each query is a call in it."""

    tools: ClassVar[list[dict[str, Any]] | None] = None
    config: Any

    def _begin_sessions(
        self, strategy: str, misplaced: tuple[Never, ...], sessions: Sessions | None, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Open the sessions with the options that are ours, and return the others."""
        ours: Any = gather_options({name: options.pop(name) for name in _OPTION_NAMES & options.keys()})
        SessionOwner.__init__(self, strategy, *misplaced, sessions=sessions, **ours)
        #: Each run's first message, by which it is known again, and the name of its session.
        self._runs: list[tuple[dict[str, Any], str]] = []
        return options

    def _check_names(self, options: dict[str, Any]) -> None:
        """Raise SettingError for names that the framework's configuration would ignore."""
        unknown = options.keys() - type(self.config).model_fields.keys()
        if unknown:
            raise SettingError(
                f"model: {', '.join(sorted(unknown))}: no option of mini-swe-agent's, and none of Elision's"
            )

    def query(self, messages: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        """Query the model as the framework does, with old outputs hidden; once more where that was too long."""
        session = self._name_session(messages)
        plain = [{key: value for key, value in message.items() if key != "extra"} for message in messages]
        call = self.calls.begin(session, plain, tools=self.tools, model=self.config.model_name)
        ask: Any = super().query  # type: ignore[misc]
        try:
            try:
                message: dict[str, Any] = ask(call.messages, **kwargs)
            except litellm.exceptions.BadRequestError as error:
                if not call.retry(error):
                    raise
                message = ask(call.messages, **kwargs)
        except FormatError as error:
            # The answer is billed, though it cannot be used.
            response = error.messages[0].get("extra", {}).get("response")
            if isinstance(response, dict):
                call.record(response)
            raise
        call.record(message["extra"]["response"])
        for action in message["extra"]["actions"]:
            if "recall" in action:
                action["recall"] = self.calls.answer_recall(session, **action["recall"])
        return message

    def _name_session(self, messages: list[dict[str, Any]]) -> str:
        """Return the session of these messages' run: the agent keeps the very message that a run begins with."""
        for opening, session in self._runs:
            if messages and messages[0] is opening:
                return session
        session = f"mini-swe-agent-{uuid4().hex[:12]}"
        self._runs = [*self._runs[1 - _MOST_RUNS :], (messages[0] if messages else {}, session)]
        return session

    def list_sessions(self) -> list[str]:
        """Return the names of the sessions of the runs so far, in order."""
        return [session for _, session in self._runs]

    def serialize(self) -> dict[str, Any]:
        """Return what the trajectory file says of the model: the names of its sessions, too."""
        serialized: dict[str, Any] = super().serialize()  # type: ignore[misc]
        serialized["info"]["config"]["elision"] = {"sessions": self.list_sessions()}
        return serialized


class ElisionLitellmModel(_SessionModel, LitellmModel):
    """mini-swe-agent's default model, with old outputs hidden in what is sent, and the recall tools beside `bash`.

        model:
          model_class: elision.adapters.mini_swe_agent.ElisionLitellmModel
          strategy: masking(window=10)
          store: sqlite:///mini.db

    strategy, sessions, options: as for every adapter; see `elision.Sessions`. What is no option of Elision's goes to
    mini-swe-agent's own model, such as `model_name`. Each run of an agent is a session; the trajectory file names it.
    The context manager's model is `model_name`.

    Raises SettingError for options that neither knows, and what `Sessions` raises.
    """

    tools: ClassVar = [BASH_TOOL, *define_recall_tools("openai")]

    def __init__(
        self, strategy: str = "masking", *misplaced: Never, sessions: Sessions | None = None, **options: Any
    ) -> None:
        config = self._begin_sessions(strategy, misplaced, sessions, options)
        LitellmModel.__init__(self, **config)
        self._check_names(config)

    def _query(self, messages: list[dict[str, Any]], **kwargs: Any) -> Any:
        return litellm.completion(
            model=self.config.model_name, messages=messages, tools=self.tools, **(self.config.model_kwargs | kwargs)
        )

    def _parse_actions(self, response: Any) -> list[dict[str, Any]]:
        """Return the actions of a response. A recall is a command that does nothing, and says what was asked."""
        choice = response.choices[0]
        calls = choice.message.tool_calls or []
        commands = [call for call in calls if call.function.name not in _RECALL_NAMES]
        actions: dict[str, dict[str, Any]] = {}
        if commands or not calls:
            message = SimpleNamespace(tool_calls=commands)
            rest = SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason=choice.finish_reason)])
            actions = {action["tool_call_id"]: action for action in super()._parse_actions(rest)}
        return [actions.get(call.id) or _make_recall_action(call) for call in calls]

    def format_observation_messages(
        self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return the outputs of a message's actions as messages, and the answers of its recalls."""
        formatted: list[dict[str, Any]] = super().format_observation_messages(message, outputs, template_vars)
        actions = message.get("extra", {}).get("actions", [])
        return [
            {**output, "content": action["recall"]} if "recall" in action else output
            for action, output in zip(actions, formatted, strict=True)
        ]


def _make_recall_action(call: Any) -> dict[str, Any]:
    name, arguments = call.function.name, call.function.arguments
    # Shells take a colon as the command that does nothing, and whoever confirms commands sees what it is.
    command = f": {name} {shlex.quote(arguments)}"
    return {"command": command, "tool_call_id": call.id, "recall": {"tool": name, "arguments": arguments}}


class ElisionLitellmTextbasedModel(_SessionModel, LitellmTextbasedModel):
    """mini-swe-agent's model without tools (`litellm_textbased`), with old outputs hidden in what is sent.

    Outputs of commands are messages of the user there. As there are no tools, the model cannot recall; the store keeps
    what was hidden. strategy, sessions, options: as for `ElisionLitellmModel`; give sessions `observations="user"`.
    """

    def __init__(
        self, strategy: str = "masking", *misplaced: Never, sessions: Sessions | None = None, **options: Any
    ) -> None:
        if sessions is None:
            options = {"observations": "user", "recall": "never", **options}
        config = self._begin_sessions(strategy, misplaced, sessions, options)
        LitellmTextbasedModel.__init__(self, **config)
        self._check_names(config)
