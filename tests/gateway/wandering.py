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

from elision.dialects.rules import list_violations
from elision.gateway.answering import ROUNDS
from elision.gateway.app import App
from elision.gateway.routes import Api
from elision.testing.recorded_run import RecordedReply
from tests.gateway import conversing
from tests.gateway.conversing import APIS, LISTED, MODELS, PATHS, Json
from tests.gateway.fuzzing import SECRETS, Answered, Got, Heard, Odd, Provider, Toll, Trial
from tests.gateway.recalling.providers import received
from tests.gateway.recalling.test_relay import said


class Talking(Provider):
    """A provider whose model works: it speaks, calls tools, several at once, and recalls. Rarely it fails."""

    def _answer(self, url: str, raw: bytes, said: RecordedReply) -> Answered:
        found = super()._answer(url, raw, said)
        if self.chance.random() < 0.03:
            del found.parts[self.chance.randrange(len(found.parts)) :]
            found.cut = True
        return found

    def _reply(self, raw: bytes) -> RecordedReply:
        offered = b"elision_recall" in raw
        if offered and self.chance.random() < 0.25:
            found = self._recalling()
            # Of two answers that say the same, either may stand in the other's place.
            return replace(found, text=f"I look, {self.answers}.") if self.chance.random() < 0.8 else found
        # Whoever asks the same again is told the same again, by other ids.
        step, calls = raw.count(b'"role"'), self.chance.choice((0, 1, 1, 1, 1, 2, 3))
        made: list[tuple[str, str, Json]] = [
            (f"c{self.answers}_{each}", "bash", {"command": f"cat f{step}_{each}.py"}) for each in range(calls)
        ]
        return conversing.reply(f"Step {step}.", made)


@dataclass(slots=True)
class Agent:
    """One agent. history: as it sends it; hidden: ids of recalls behind its back, and the last message it was shown."""

    number: int
    api: Api
    key: str
    chance: random.Random
    history: list[Json] = field(default_factory=list)
    hidden: list[tuple[int, str]] = field(default_factory=list)
    said: int = 0

    def request(self, *, without: int = 0) -> Odd:
        """without: so many messages at its end."""
        stream = self.chance.random() < 0.5
        told = {
            "model": MODELS[self.api],
            "max_tokens": 99,
            LISTED[self.api]: self.history[: len(self.history) - without],
            "tools": conversing.tools(self.api),
            **({"stream": True} if stream else {}),
        }
        headers = [(b"content-type", b"application/json"), (b"authorization", b"Bearer " + self.key.encode())]
        return Odd(method="POST", path=PATHS[self.api].encode(), query=b"", headers=headers,
                   body=json.dumps(told).encode(), key=self.key, api=self.api)  # fmt: skip

    def says(self) -> None:
        self.said += 1
        self.history.append({"role": "user", "content": f"Go on, {self.number}, {self.said}."})

    def takes(self, messages: Sequence[Json]) -> None:
        """What it was shown, and what came of it."""
        self.history += messages
        results = [self._result(id) for message in messages for id in _calls(message)]
        if self.api == "anthropic" and results:
            self.history.append({"role": "user", "content": results})
        elif self.api != "anthropic":
            self.history += results
        if not results or self.chance.random() < 0.05:
            self.says()

    def _result(self, id: str) -> Json:
        self.said += 1
        text = conversing.observation(self.said, f"{SECRETS[self.key]} of {self.number}", 14)
        if self.api == "anthropic":
            return {"type": "tool_result", "tool_use_id": id, "content": text}
        if self.api == "openai":
            return {"role": "tool", "tool_call_id": id, "content": text}
        return {"type": "function_call_output", "call_id": id, "output": text}

    def wavers(self) -> None:
        """Now and then it goes back, or says more before it was answered."""
        way = self.chance.random()
        if way < 0.06 and len(self.history) > 3:
            self._back_to(self.chance.randrange(1, len(self.history)))
        elif way < 0.1:
            self.says()

    def _back_to(self, length: int) -> None:
        """Or farther, to where it may ask."""
        while length > 1 and not is_sound(self.api, {LISTED[self.api]: self.history[:length]}):
            length -= 1
        del self.history[length:]
        self.hidden = [each for each in self.hidden if each[0] < length]

    def parted(self, number: int) -> Agent:
        """Another one that goes on from here."""
        return Agent(number, self.api, self.key, random.Random(number), [*self.history], [*self.hidden], self.said)


def _calls(message: Json) -> list[str]:
    if message.get("type") == "function_call":
        return [str(message["call_id"])]
    blocks = message.get("content") if isinstance(message.get("content"), list) else []
    uses = [block["id"] for block in blocks or () if block.get("type") == "tool_use"]
    return [*(call["id"] for call in message.get("tool_calls") or ()), *uses]


class Wandering(Trial):
    """Some agents at one gateway. processes: of it, over one store; strict: whether nothing but results is hidden;
    remembers: whether whatever was recalled must be there for good."""

    def __init__(
        self, seed: int, *, agents: int, processes: int = 1, strict: bool = True, remembers: bool = True, **given: Any
    ) -> None:
        super().__init__(seed, **given)
        self.processes = [self.worker, *(self.begun() for _ in range(processes - 1))]
        self.strict, self.remembers = strict, remembers
        self.chance = random.Random(seed)
        self.agents = [self._agent(number) for number in range(agents)]
        self._asked = 0

    def _provider(self, seed: int) -> Provider:
        return Talking(seed, self._handles, faults=(0.02, 0.06, 0.09), overflows=0.0)

    @property
    def app(self) -> App:
        return self.chance.choice(self.processes).app

    async def close(self) -> None:
        for worker in self.processes:
            await worker.close()

    def _agent(self, number: int) -> Agent:
        # Three by three they begin alike.
        task: Json = {"role": "user", "content": f"Mend parser {number // 3}."}
        key = ("sk-one", "sk-two")[number % 2]
        return Agent(number, APIS[number % 3], key, random.Random(f"{self.chance.random()}"), [task])

    async def wander(self, steps: int) -> Toll:
        """So many requests of each agent."""
        async with self.watched():
            await asyncio.gather(*(self._lives(place, steps) for place in range(len(self.agents))))
        return self.toll

    def begin_again(self) -> None:
        """Other processes over the same store; the agents go on."""
        self.processes = [self.begun() for _ in self.processes]
        self.worker = self.processes[0]

    async def _lives(self, place: int, steps: int) -> None:
        for _ in range(steps):
            agent = self.agents[place]
            if agent.chance.random() < 0.02:
                agent = self.agents[place] = agent.parted(agent.number + 100)
            agent.wavers()
            if agent.chance.random() < 0.04:
                # It is sent off too early, and what comes of it is for nobody.
                await self.ask(agent.request(without=1), self._mark())
            asked = agent.request()
            if agent.chance.random() < 0.1:
                # A client that gave up waiting asks again.
                await asyncio.gather(self.ask(asked, self._mark()), self._step(agent, asked))
            else:
                await self._step(agent, asked)

    def _mark(self) -> bytes:
        self._asked += 1
        return b"%d" % self._asked

    async def _step(self, agent: Agent, asked: Odd) -> None:
        length, mark = len(agent.history), self._mark()
        got, heard = await self.ask(asked, mark)
        told = f"request {mark.decode()} of agent {agent.number} ({agent.api})"
        self.toll.problems += [f"{told}: {each}" for each in self._misplaced(agent, asked, heard)]
        refused = any(each >= 400 for each in heard.statuses)
        if got.status != 200 or not got.whole or heard.failed or heard.odd or refused:
            return
        answer = received(agent.api, got.body, streamed=b'"stream": true' in asked.body)
        shown = said(agent.api, answer)
        agent.takes(shown)
        if len(heard.bodies) < ROUNDS:
            telling = [reply for reply in heard.replies if reply.text != "I look."]
            recalls = [call.id for reply in telling for call in reply.calls if _is_ours(call.id)]
            agent.hidden += [(length + len(shown) - 1, id) for id in recalls]

    def _wrong(self, asked: Odd, heard: Heard, got: Got) -> list[str]:
        assert asked.api is not None
        # Of a request that would be refused anyway, nothing is asked but that it is answered.
        sound = is_sound(asked.api, json.loads(asked.body))
        return super()._wrong(asked, heard if sound else replace(heard, bodies=[]), got)

    def _misplaced(self, agent: Agent, asked: Odd, heard: Heard) -> list[str]:
        found, remembered = [], {id for _, id in agent.hidden}
        wanted = [id for message in json.loads(asked.body)[LISTED[agent.api]] for id in _calls(message)]
        for raw in heard.bodies:
            if raw == asked.body or not self.strict:
                continue
            messages = json.loads(raw)[LISTED[agent.api]]
            calls = [id for message in messages for id in _calls(message)]
            own = [id for id in calls if not _is_ours(id)]
            if own != wanted:
                found.append(f"calls {own} instead of {wanted}")
            if lost := [words for words in _words(agent.api, asked.body) if words not in raw]:
                found.append(f"words that are gone: {lost}")
            if self.remembers and (lost := remembered - set(calls)):
                found.append(f"recalls {sorted(lost)} are not in their place")
        return found


def is_sound(api: Api, body: Json) -> bool:
    """Whether a provider takes it."""
    return next(iter(list_violations(api, body)), None) is None


def _is_ours(id: str) -> bool:
    return id[:1] in "rs"


def _words(api: Api, body: bytes) -> list[bytes]:
    """What users said; nothing of it is ever hidden."""
    return [
        json.dumps(message["content"]).encode()
        for message in json.loads(body)[LISTED[api]]
        if message.get("role") == "user" and isinstance(message["content"], str)
    ]
