"""Agents by chance: each goes on with what it was shown, asks again, goes back, is sent off too early, parts from
itself.

Unlike requests by chance, what was recalled behind an agent's back must stand in its place in every later request.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elision.gateway.app import GatewayApp
from elision.gateway.recall_rounds import MAX_ROUNDS
from elision.providers.provider import Api
from elision.testing.recorded_run import RecordedReply
from elision.testing.request_rules import list_violations
from tests.gateway import conversation_bytes
from tests.gateway.conversation_bytes import APIS, LIST_FIELDS, MODELS, PATHS, Json
from tests.gateway.random_requests import (
    KEY_SECRETS,
    AsgiResponse,
    FakeResponse,
    GatewayTrial,
    RandomProvider,
    RandomRequest,
    SeenRequest,
    TrialReport,
)
from tests.gateway.test_recall_rounds import said
from tests.providers.streaming.provider_responses import parse_as_client


class TalkingProvider(RandomProvider):
    """A provider whose model works: it speaks, calls tools, several at once, and recalls. Rarely it fails."""

    def _make_response(self, url: str, raw: bytes, said: RecordedReply) -> FakeResponse:
        found = super()._make_response(url, raw, said)
        if self.chance.random() < 0.03:
            del found.parts[self.chance.randrange(len(found.parts)) :]
            found.cut = True
        return found

    def _make_reply(self, raw: bytes) -> RecordedReply:
        offered = b"elision_recall" in raw
        if offered and self.chance.random() < 0.25:
            found = self._make_recall()
            # Of two answers that say the same, either may stand in the other's place.
            return replace(found, text=f"I look, {self.answers}.") if self.chance.random() < 0.8 else found
        # Whoever asks the same again is told the same again, by other ids.
        step, calls = raw.count(b'"role"'), self.chance.choice((0, 1, 1, 1, 1, 2, 3))
        made: list[tuple[str, str, Json]] = [
            (f"c{self.answers}_{each}", "bash", {"command": f"cat f{step}_{each}.py"}) for each in range(calls)
        ]
        return conversation_bytes.make_reply(f"Step {step}.", made)


@dataclass(slots=True)
class RandomAgent:
    """One agent. history: as it sends it; hidden: ids of recalls behind its back, and the last message it was shown."""

    number: int
    api: Api
    key: str
    chance: random.Random
    history: list[Json] = field(default_factory=list)
    hidden: list[tuple[int, str]] = field(default_factory=list)
    said: int = 0

    def make_request(self, *, without: int = 0) -> RandomRequest:
        """without: so many messages at its end."""
        stream = self.chance.random() < 0.5
        told = {
            "model": MODELS[self.api],
            "max_tokens": 99,
            LIST_FIELDS[self.api]: self.history[: len(self.history) - without],
            "tools": conversation_bytes.make_tools(self.api),
            **({"stream": True} if stream else {}),
        }
        headers = [(b"content-type", b"application/json"), (b"authorization", b"Bearer " + self.key.encode())]
        return RandomRequest(method="POST", path=PATHS[self.api].encode(), query=b"", headers=headers,
                   body=json.dumps(told).encode(), key=self.key, api=self.api)  # fmt: skip

    def say_something(self) -> None:
        self.said += 1
        self.history.append({"role": "user", "content": f"Go on, {self.number}, {self.said}."})

    def take_messages(self, messages: Sequence[Json]) -> None:
        """What it was shown, and what came of it."""
        self.history += messages
        results = [self._make_result(id) for message in messages for id in _list_call_ids(message)]
        if self.api == "anthropic" and results:
            self.history.append({"role": "user", "content": results})
        elif self.api != "anthropic":
            self.history += results
        if not results or self.chance.random() < 0.05:
            self.say_something()

    def _make_result(self, id: str) -> Json:
        self.said += 1
        text = conversation_bytes.make_result(self.said, f"{KEY_SECRETS[self.key]} of {self.number}", 14)
        if self.api == "anthropic":
            return {"type": "tool_result", "tool_use_id": id, "content": text}
        if self.api == "openai":
            return {"role": "tool", "tool_call_id": id, "content": text}
        return {"type": "function_call_output", "call_id": id, "output": text}

    def waver(self) -> None:
        """Now and then it goes back, or says more before it was answered."""
        way = self.chance.random()
        if way < 0.06 and len(self.history) > 3:
            self._go_back_to(self.chance.randrange(1, len(self.history)))
        elif way < 0.1:
            self.say_something()

    def _go_back_to(self, length: int) -> None:
        """Or farther, to where it may ask."""
        while length > 1 and not is_sound(self.api, {LIST_FIELDS[self.api]: self.history[:length]}):
            length -= 1
        del self.history[length:]
        self.hidden = [each for each in self.hidden if each[0] < length]

    def fork_agent(self, number: int) -> RandomAgent:
        """Another one that goes on from here."""
        return RandomAgent(
            number, self.api, self.key, random.Random(number), [*self.history], [*self.hidden], self.said
        )


def _list_call_ids(message: Json) -> list[str]:
    if message.get("type") == "function_call":
        return [str(message["call_id"])]
    blocks = message.get("content") if isinstance(message.get("content"), list) else []
    uses = [block["id"] for block in blocks or () if block.get("type") == "tool_use"]
    return [*(call["id"] for call in message.get("tool_calls") or ()), *uses]


class RandomAgents(GatewayTrial):
    """Some agents at one gateway. processes: of it, over one store; strict: whether nothing but results is hidden;
    remembers: whether whatever was recalled must be there for good."""

    def __init__(
        self, seed: int, *, agents: int, processes: int = 1, strict: bool = True, remembers: bool = True, **given: Any
    ) -> None:
        super().__init__(seed, **given)
        self.processes = [self.worker, *(self.start_worker() for _ in range(processes - 1))]
        self.strict, self.remembers = strict, remembers
        self.chance = random.Random(seed)
        self.agents = [self._make_agent(number) for number in range(agents)]
        self._asked = 0

    def _make_provider(self, seed: int) -> RandomProvider:
        return TalkingProvider(seed, self._list_handles, faults=(0.02, 0.06, 0.09), overflows=0.0)

    @property
    def app(self) -> GatewayApp:
        return self.chance.choice(self.processes).app

    async def close(self) -> None:
        for worker in self.processes:
            await worker.close()

    def _make_agent(self, number: int) -> RandomAgent:
        # Three by three they begin alike.
        task: Json = {"role": "user", "content": f"Mend parser {number // 3}."}
        key = ("sk-one", "sk-two")[number % 2]
        return RandomAgent(number, APIS[number % 3], key, random.Random(f"{self.chance.random()}"), [task])

    async def wander(self, steps: int) -> TrialReport:
        """So many requests of each agent."""
        async with self.watch_log():
            await asyncio.gather(*(self._run_agent(place, steps) for place in range(len(self.agents))))
        return self.report

    def begin_again(self) -> None:
        """Other processes over the same store; the agents go on."""
        self.processes = [self.start_worker() for _ in self.processes]
        self.worker = self.processes[0]

    async def _run_agent(self, place: int, steps: int) -> None:
        for _ in range(steps):
            agent = self.agents[place]
            if agent.chance.random() < 0.02:
                agent = self.agents[place] = agent.fork_agent(agent.number + 100)
            agent.waver()
            if agent.chance.random() < 0.04:
                # It is sent off too early, and what comes of it is for nobody.
                await self.send_request(agent.make_request(without=1), self._make_mark())
            asked = agent.make_request()
            if agent.chance.random() < 0.1:
                # A client that gave up waiting asks again.
                await asyncio.gather(self.send_request(asked, self._make_mark()), self._take_step(agent, asked))
            else:
                await self._take_step(agent, asked)

    def _make_mark(self) -> bytes:
        self._asked += 1
        return b"%d" % self._asked

    async def _take_step(self, agent: RandomAgent, asked: RandomRequest) -> None:
        length, mark = len(agent.history), self._make_mark()
        got, heard = await self.send_request(asked, mark)
        told = f"request {mark.decode()} of agent {agent.number} ({agent.api})"
        self.report.problems += [f"{told}: {each}" for each in self._find_misplaced(agent, asked, heard)]
        refused = any(each >= 400 for each in heard.statuses)
        if got.status != 200 or not got.is_complete or heard.has_failed or heard.is_odd or refused:
            return
        answer = parse_as_client(agent.api, got.body, streamed=b'"stream": true' in asked.body)
        shown = said(agent.api, answer)
        agent.take_messages(shown)
        if len(heard.bodies) < MAX_ROUNDS:
            telling = [reply for reply in heard.replies if reply.text != "I look."]
            recalls = [call.id for reply in telling for call in reply.calls if _is_recall_id(call.id)]
            agent.hidden += [(length + len(shown) - 1, id) for id in recalls]

    def _find_problems(self, asked: RandomRequest, heard: SeenRequest, got: AsgiResponse) -> list[str]:
        assert asked.api is not None
        # Of a request that would be refused anyway, nothing is asked but that it is answered.
        sound = is_sound(asked.api, json.loads(asked.body))
        return super()._find_problems(asked, heard if sound else replace(heard, bodies=[]), got)

    def _find_misplaced(self, agent: RandomAgent, asked: RandomRequest, heard: SeenRequest) -> list[str]:
        found, remembered = [], {id for _, id in agent.hidden}
        wanted = [id for message in json.loads(asked.body)[LIST_FIELDS[agent.api]] for id in _list_call_ids(message)]
        for raw in heard.bodies:
            if raw == asked.body or not self.strict:
                continue
            messages = json.loads(raw)[LIST_FIELDS[agent.api]]
            calls = [id for message in messages for id in _list_call_ids(message)]
            own = [id for id in calls if not _is_recall_id(id)]
            if own != wanted:
                found.append(f"calls {own} instead of {wanted}")
            if lost := [words for words in _list_user_words(agent.api, asked.body) if words not in raw]:
                found.append(f"words that are gone: {lost}")
            if self.remembers and (lost := remembered - set(calls)):
                found.append(f"recalls {sorted(lost)} are not in their place")
        return found


def is_sound(api: Api, body: Json) -> bool:
    """Whether a provider takes it."""
    return next(iter(list_violations(api, body)), None) is None


def _is_recall_id(id: str) -> bool:
    return id[:1] in "rs"


def _list_user_words(api: Api, body: bytes) -> list[bytes]:
    """What users said; nothing of it is ever hidden."""
    return [
        json.dumps(message["content"]).encode()
        for message in json.loads(body)[LIST_FIELDS[api]]
        if message.get("role") == "user" and isinstance(message["content"], str)
    ]
