"""A client that follows a recorded run: it takes an answer and adds what was recorded after it.

It does no I/O: it returns what the next request holds, in the shape of any API, and another client sends it. It tries
servers with the traffic of a real agent, since it notices at once an answer that is not of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elision.errors import ElisionError
from elision.providers.llm.answers import EndpointAnswer, EndpointFault
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.base_renderer import NO_RESULT_TEXT
from elision.providers.shared.json_reading import mappings_in
from elision.providers.streaming.rounds import RecallCall
from elision.testing.recorded_run import RecordedReply, RecordedRun
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
        provider = PROVIDERS[self.api]
        said = provider.client.parse_answer(answer)
        reply = self.recorded.get_reply(self.turn)
        if isinstance(said, EndpointFault) or not _is_reply(said, reply):
            name = self.recorded.run.id
            raise ElisionError(f"run {name!r}: what came as turn {self.turn} is not what was recorded: {said}")
        # Of Responses the items go back as they came.
        self._history += mappings_in(answer.get("output")) or [dict(said.message)]
        results = list(self._list_results(reply))
        self._history += provider.response_format.render_results(results)
        self.turn += 1
        if reply.turn is not None:
            seen = [each.text for each in reply.turn.observations if each.role == "user"]
            self._add_user_texts(seen + [message.text for message in reply.turn.interjections])
        if not self.done and self._history[-1].get("role") in ("assistant", "model"):
            self._add_user_texts(["Go on."])

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

    def _list_results(self, reply: RecordedReply) -> Iterator[tuple[RecallCall, str]]:
        """Yield the reply's calls with their recorded results, in the order of the calls."""
        if reply.turn is None or not reply.calls:
            return
        made = [action for action in reply.turn.actions if not action.implicit]
        waiting = [each for each in reply.turn.observations if each.role == "tool"]
        for call, action in zip(reply.calls, made, strict=True):
            text = ""
            answers = [observation for observation in waiting if observation.action_id == action.id]
            if answers:
                waiting.remove(answers[0])
                text = answers[0].text
            yield RecallCall(id=call.id, name=call.name, arguments={}), text if text.strip() else NO_RESULT_TEXT


def _is_reply(answer: EndpointAnswer, reply: RecordedReply) -> bool:
    ids = [call.id for call in answer.calls]
    return ids == [call.id for call in reply.calls] and answer.text.strip() == reply.text.strip()
