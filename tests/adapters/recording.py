"""What is written down of a run, in a form that no framework has: messages, requests, usage; and the scripted model.

Of the standard library: every environment imports it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.adapters.scenarios import Step

#: A placeholder that names its handle.
PLACEHOLDER: Final = re.compile(r"^\[(t\d+\.\d+) ")
#: Characters that count as one token.
CHARS_PER_TOKEN: Final = 4
ANSWER_TOKENS: Final = 20

Json = dict[str, Any]


@dataclass(slots=True)
class Call:
    """A call of a tool, as it appears in a message of the assistant."""

    id: str
    tool: str
    arguments: Json


@dataclass(slots=True)
class Message:
    """A message, or one part of it where a framework keeps several results in one message.

    role:     `system`, `user`, `assistant`, `tool`. calls: of an assistant. answers: the id of the call that a result
              belongs to. failed: whether a result is marked as an error; None where the framework does not mark them.
    images:   digests of images. thinking: pairs of text and signature.
    """

    role: str
    text: str = ""
    calls: list[Call] = field(default_factory=list)
    answers: str = ""
    failed: bool | None = None
    images: list[str] = field(default_factory=list)
    thinking: list[tuple[str, str]] = field(default_factory=list)

    @property
    def handle(self) -> str:
        """The handle that its placeholder names; "" where it is none."""
        found = PLACEHOLDER.match(self.text) if self.role == "tool" else None
        return found.group(1) if found else ""

    @property
    def tokens(self) -> float:
        """About how many tokens it has."""
        calls = sum(len(call.tool) + len(json.dumps(call.arguments)) for call in self.calls)
        return (len(self.text) + calls + sum(len(text) for text, _ in self.thinking)) / CHARS_PER_TOKEN


@dataclass(slots=True)
class Usage:
    """Tokens of a model call: `prompt` holds `cached` and `written`."""

    prompt: int
    cached: int
    written: int
    output: int = ANSWER_TOKENS


@dataclass(slots=True)
class Request:
    """One request as the model got it.

    agent:   the thread, and after a slash the number of a sub-agent. refused: whether it was too long.
    tools:   names and parameters. extra: what else the request had that concerns the context.
    objects: for each of the framework's messages whether it is the very object that was there before the adapter, and
             whether a placeholder is in it; None where the host cannot see that.
    """

    agent: str
    model: str
    messages: list[Message]
    tools: list[Json]
    usage: Usage
    refused: bool = False
    extra: Json = field(default_factory=dict)
    objects: list[tuple[bool, bool]] | None = None


@dataclass(slots=True)
class Answer:
    """What the model says: calls of tools, or a text at the end.

    overflow: (tokens, limit) of a refusal instead.
    """

    calls: list[Call]
    text: str
    usage: Usage
    overflow: tuple[int, int] | None = None

    @property
    def refusal(self) -> str:
        """The text of the refusal, as providers write it."""
        assert self.overflow is not None
        tokens, limit = self.overflow
        return f"prompt is too long: {tokens} tokens > {limit} maximum"


class Recorder:
    """Everything that one process writes down."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._given: dict[str, list[Any]] = {}
        self._sent: dict[str, list[tuple[bool, bool]]] = {}

    def note_given(self, agent: str, objects: Sequence[Any]) -> None:
        """Note the framework's messages as they are before the adapter sees them."""
        self._given[agent] = list(objects)

    def note_sent(self, agent: str, objects: Sequence[Any], read: Callable[[Any], Iterable[Message]]) -> None:
        """Note the messages as they leave the adapter, where `note_given` saw them before. read: reads one."""
        if agent not in self._given:
            return
        known = {id(each) for each in self._given.pop(agent)}
        self._sent[agent] = [(id(each) in known, any(message.handle for message in read(each))) for each in objects]

    def take_objects(self, agent: str) -> list[tuple[bool, bool]] | None:
        """Return what `note_sent` noted since the last request of the agent."""
        return self._sent.pop(agent, None)


class Player:
    """The model of one agent: it plays its steps, one for each request."""

    def __init__(self, recorder: Recorder, agent: str, model: str, steps: Sequence[Step]) -> None:
        self.agent, self.model = agent, model
        self._recorder, self._steps = recorder, steps
        self._next = 0
        self._has_refused = False
        self._has_recalled = False
        self._before: list[Message] = []

    def answer(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, model: str = "", **extra: Any
    ) -> Answer:
        """Return the answer to a request. tools: `name` and `parameters` of each."""
        usage = self._count_usage(messages)
        request = Request(
            self.agent, model or self.model, list(messages), [dict(tool) for tool in tools], usage, extra=extra
        )
        request.objects = self._recorder.take_objects(self.agent)
        self._recorder.requests.append(request)
        step = self._steps[self._next] if self._next < len(self._steps) else None
        if step is not None and step.overflows and not self._has_refused:
            self._has_refused = request.refused = True
            return Answer([], "", usage, (usage.prompt, int(usage.prompt * 0.8)))
        self._before = request.messages
        self._next += 1
        if step is None:
            return Answer([], "All parts are listed.", usage)
        return Answer(self._make_calls(step, messages), "", usage)

    def _make_calls(self, step: Step, messages: Sequence[Message]) -> list[Call]:
        handle = next((message.handle for message in messages if message.handle), "")
        if step.recalls and handle and not self._has_recalled:
            self._has_recalled = True
            return [Call(f"call_recall_{self._next}", "elision_recall", {"handle": handle})]
        # Parts are unique in a scenario, and so are the ids.
        return [Call(f"call_{call.tool}_{call.part}", call.tool, {"part": call.part}) for call in step.calls]

    def _count_usage(self, messages: Sequence[Message]) -> Usage:
        same = count_common(self._before, messages)
        total = sum(message.tokens for message in messages)
        cached = sum(message.tokens for message in messages[:same])
        return Usage(round(total), round(cached), round(total) - round(cached))


class SuccessivePlayers:
    """The model of several sub-agents, one after another: a request without an answer in it begins the next."""

    def __init__(self, make_next: Callable[[], Player]) -> None:
        self._make_next = make_next
        self._player: Player | None = None

    def answer(self, messages: Sequence[Message], *arguments: Any, **named: Any) -> Answer:
        """Do as `Player.answer`."""
        if self._player is None or not any(message.role == "assistant" for message in messages):
            self._player = self._make_next()
        return self._player.answer(messages, *arguments, **named)


def count_common(one: Sequence[Any], two: Sequence[Any]) -> int:
    """Return how many messages both begin with."""
    limit = min(len(one), len(two))
    return next((at for at in range(limit) if one[at] != two[at]), limit)


def digest_image(data: bytes) -> str:
    """Return a short name for an image."""
    return hashlib.sha256(data).hexdigest()[:12]


def take_turns(messages: Sequence[Message], turns: int) -> int:
    """Return how many messages the first `turns` turns are, with what comes before them."""
    seen = 0
    for at, message in enumerate(messages):
        if message.role == "assistant":
            seen += 1
            if seen > turns:
                return at
    return len(messages)


@dataclass(slots=True)
class LegRecord:
    """What one process of a scenario wrote down.

    stored: by thread, the framework's own history afterwards. texts: what each run returned, by thread.
    error:  what a run ended with; "" if it ended well. versions: of the packages.
    """

    scenario: str
    leg: int
    requests: list[Request] = field(default_factory=list)
    stored: dict[str, list[Message]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0
    missing: str = ""

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> LegRecord:
        """Return what `to_json` wrote."""
        found = json.loads(line)
        found["requests"] = [_read_request(each) for each in found["requests"]]
        found["stored"] = {name: [_read_message(each) for each in history] for name, history in found["stored"].items()}
        return cls(**found)


def _read_message(found: Json) -> Message:
    calls = [Call(**call) for call in found.pop("calls")]
    thinking = [(text, signature) for text, signature in found.pop("thinking")]
    return Message(**found, calls=calls, thinking=thinking)


def _read_request(found: Json) -> Request:
    messages = [_read_message(each) for each in found.pop("messages")]
    usage = Usage(**found.pop("usage"))
    objects = found.pop("objects")
    return Request(
        **found,
        messages=messages,
        usage=usage,
        objects=None if objects is None else [(same, hidden) for same, hidden in objects],
    )
