"""A client that follows a recorded run: it takes an answer and adds what was recorded after it.

It does no I/O: it returns what the next request holds, in the shape of any API, and another client sends it. It tries
servers with the traffic of a real agent, since it notices at once an answer that is not of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from elision.errors import ElisionError
from elision.providers.anthropic import parse as anthropic
from elision.providers.gemini import parse as gemini
from elision.providers.openai_chat import parse as openai_chat
from elision.providers.openai_responses import parse as openai_responses
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.base_renderer import NO_RESULT_TEXT
from elision.providers.shared.json_reading import AssistantMessage, mapping_in, mappings_in
from elision.testing.parsed_request import join_messages
from elision.testing.recorded_run import RecordedReply, RecordedRun
from elision.trajectory.content import join_text
from elision.trajectory.trajectory import Trajectory

Json = dict[str, Any]


class Follower:
    """One pass through `run` at a server of `api`.

    `request` holds the fields of the next request that hold the conversation; `take` takes its answer.
    """

    def __init__(self, run: Trajectory, api: Api) -> None:
        self.api = api
        self.recorded = RecordedRun(run)
        self.turn = 1
        said = [message for message in run.head.messages if message.role != "user" and message.text]
        self._system = "\n\n".join(message.text for message in said)
        self._history: list[Json] = []
        self._add_user_texts([message.text for message in run.head.messages if message.role == "user"] or [""])

    @property
    def done(self) -> bool:
        """Return whether every recorded turn was answered."""
        return self.turn > len(self.recorded.replies)

    @property
    def request(self) -> Json:
        """Return the conversation so far: `messages` and `system`, or the fields that the API has for them.

        The lists are the caller's.
        """
        history = list(self._history)
        if self.api == "openai":
            if self._system:
                system = [{"role": "system", "content": self._system}]
            else:
                system = []
            return {"messages": system + history}
        provider = PROVIDERS[self.api]
        request: Json = {}
        if self._system:
            request[provider.system_field] = self._system
            if self.api == "gemini":
                request[provider.system_field] = {"parts": [{"text": self._system}]}
        request[provider.list_field] = history
        return request

    def take(self, answer: Mapping[str, Any]) -> None:
        """Continue after `answer`, the body of a response as JSON. Raises ElisionError if it is another answer."""
        said, messages = _READERS[self.api](answer)
        reply = self.recorded.get_reply(self.turn)
        self._compare_reply(said, reply)
        self._history += messages
        self._history += self._list_results(reply)
        self.turn += 1
        if reply.turn is not None:
            seen = [each.text for each in reply.turn.observations if each.role == "user"]
            self._add_user_texts(seen + [message.text for message in reply.turn.interjections])
        if not self.done and self._history[-1].get("role") in ("assistant", "model"):
            self._add_user_texts(["Go on."])

    def _compare_reply(self, message: AssistantMessage, reply: RecordedReply) -> None:
        ids = [call.id for call in message.actions]
        if ids != [call.id for call in reply.calls] or join_text(message.content).strip() != reply.text.strip():
            name = self.recorded.run.id
            raise ElisionError(f"run {name!r}: what came as turn {self.turn} is not what was recorded: {message}")

    def _add_user_texts(self, texts: list[str]) -> None:
        """Add words of the user. If the last message is the user's already, they join it."""
        texts = [text for text in texts if text.strip()]
        if not texts and not self._history:
            texts = ["Go on."]
        live = PROVIDERS[self.api].live
        field = live.content_field
        for text in texts:
            last = self._history[-1] if self._history else {}
            if live.has_blocks and last.get("role") == "user":
                self._history[-1] = {**last, field: [*last[field], live.make_block(text)]}
            else:
                self._history.append(live.make_user_message(text))

    def _list_results(self, reply: RecordedReply) -> Iterator[Json]:
        """Yield the recorded results of the reply's calls, in the order of the calls."""
        if reply.turn is None or not reply.calls:
            return
        made = [action for action in reply.turn.actions if not action.implicit]
        waiting = [each for each in reply.turn.observations if each.role == "tool"]
        blocks: list[Json] = []
        for call, action in zip(reply.calls, made, strict=True):
            text = ""
            answers = [observation for observation in waiting if observation.action_id == action.id]
            if answers:
                waiting.remove(answers[0])
                text = answers[0].text
            if not text.strip():
                text = NO_RESULT_TEXT
            if self.api == "openai":
                yield {"role": "tool", "tool_call_id": call.id, "content": text}
            elif self.api == "openai-responses":
                yield {"type": "function_call_output", "call_id": call.id, "output": text}
            elif self.api == "gemini":
                response = {"id": call.id, "name": call.name, "response": {"output": text}}
                blocks.append({"functionResponse": response})
            else:
                blocks.append({"type": "tool_result", "tool_use_id": call.id, "content": text})
        if blocks:
            yield {"role": "user", PROVIDERS[self.api].live.content_field: blocks}


def _read_chat(answer: Mapping[str, Any]) -> tuple[AssistantMessage, list[Json]]:
    choices = mappings_in(answer.get("choices"))
    message = mapping_in(choices[0].get("message")) if choices else {}
    known = ("role", "content", "tool_calls", "reasoning_content")
    kept = {name: message[name] for name in known if message.get(name) is not None}
    if "content" not in kept and "tool_calls" not in kept:
        kept["content"] = ""
    return openai_chat.parse_assistant(message), [kept]


def _read_anthropic(answer: Mapping[str, Any]) -> tuple[AssistantMessage, list[Json]]:
    message = {"role": "assistant", "content": mappings_in(answer.get("content"))}
    return anthropic.parse_assistant(message), [message]


def _read_gemini(answer: Mapping[str, Any]) -> tuple[AssistantMessage, list[Json]]:
    candidates = mappings_in(answer.get("candidates"))
    message = mapping_in(candidates[0].get("content")) if candidates else {}
    return gemini.parse_assistant(message), [message]


def _read_responses(answer: Mapping[str, Any]) -> tuple[AssistantMessage, list[Json]]:
    items = [dict(item) for item in mappings_in(answer.get("output"))]
    said = AssistantMessage()
    for item in items:
        said = join_messages(said, openai_responses.parse_item(item))
    return said, items


_READERS: Final[Mapping[Api, Callable[[Mapping[str, Any]], tuple[AssistantMessage, list[Json]]]]] = {
    "openai": _read_chat,
    "openai-responses": _read_responses,
    "anthropic": _read_anthropic,
    "gemini": _read_gemini,
}
