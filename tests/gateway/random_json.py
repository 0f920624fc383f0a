"""JSON texts as no encoder of ours writes them: odd white space, escapes, numbers, doubles, in any order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from elision.formats.registry import read_runs
from elision.providers.provider import Api
from elision.testing import response_anthropic, response_openai_chat, response_openai_responses
from elision.testing.exchange import ReplySpec
from elision.testing.follower import Follower
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage

RUNS = Path(__file__).parents[2] / "examples" / "runs"
APIS: tuple[Api, ...] = ("openai", "openai-responses", "anthropic")
NUMBERS = (
    "0",
    "-0",
    "-0.0",
    "1",
    "1.0",
    "1.50",
    "1e5",
    "1E+2",
    "12e-1",
    "123456789012345678901234567890",
    "0.1000000000000000055",
)
LETTERS = ("a", "B", " ", '"', "\\", "/", "\n", "\t", "{", "}", "[", "]", ",", ":", "é", "→", "😀", "\x7f", "\x00")
NAMES = ("type", "role", "content", "text", "cache_control", "id", "x", "", "messages", "input", 'na"me', "naïve", "😀")
LIST_FIELDS: dict[Api, str] = {"openai": "messages", "anthropic": "messages", "openai-responses": "input"}
_ANSWERS: dict[Api, Callable[[ReplySpec], dict[str, Any]]] = {
    "openai": response_openai_chat.build_body,
    "openai-responses": response_openai_responses.build_body,
    "anthropic": response_anthropic.build_body,
}


@dataclass
class JsonWriter:
    """Writes JSON by chance. gap: white space between any two tokens; None for another each time."""

    chance: random.Random
    gap: str | None = None
    doubles: bool = True
    names: Sequence[str] = field(default=NAMES)

    def write_space(self) -> str:
        return self.chance.choice(("", "", "", " ", "\n\t", "\r\n  ")) if self.gap is None else self.gap

    def write_text(self, value: str) -> str:
        return '"' + "".join(map(self._write_letter, value)) + '"'

    def _write_letter(self, letter: str) -> str:
        way = self.chance.randrange(4)
        if way == 0:
            return json.dumps(letter)[1:-1]
        if way == 1 and ord(letter) < 0x10000:
            code = f"{ord(letter):04x}"
            return "\\u" + (code.upper() if self.chance.random() < 0.5 else code)
        return "\\/" if (letter, way) == ("/", 2) else json.dumps(letter, ensure_ascii=False)[1:-1]

    def write_words(self) -> str:
        return self.write_text("".join(self.chance.choices(LETTERS, k=self.chance.randrange(6))))

    def write_value(self, depth: int = 3) -> str:
        way = self.chance.randrange(8 if depth else 5)
        if way == 0:
            return self.chance.choice(NUMBERS)
        if way == 1:
            return self.chance.choice(("true", "false", "null"))
        if way < 5:
            return self.write_words()
        if way == 5:
            return self.write_array([self.write_value(depth - 1) for _ in range(self.chance.randrange(4))])
        return self.write_object(self.write_pairs(depth))

    def write_pairs(self, depth: int = 3) -> list[tuple[str, str]]:
        names = self.chance.choices(self.names, k=self.chance.randrange(5))
        return [(name, self.write_value(depth - 1)) for name in (names if self.doubles else dict.fromkeys(names))]

    def write_array(self, elements: Sequence[str]) -> str:
        return (
            "["
            + ",".join(self.write_space() + each + self.write_space() for each in elements)
            + (self.write_space() or "")
            + "]"
        )

    def write_object(self, pairs: Sequence[tuple[str, str]]) -> str:
        told = (
            f"{self.write_space()}{self.write_text(name)}{self.write_space()}:{self.write_space()}{value}"
            for name, value in pairs
        )
        return "{" + (self.write_space() + ",").join(told) + self.write_space() + "}"

    def write_message(self) -> str:
        """One message: blocks or a text, and fields nobody knows."""
        role = ("role", self.write_text(self.chance.choice(("user", "assistant", "tool"))))
        blocks = [
            self.write_object([("type", self.write_text("text")), *self.write_pairs(2)])
            for _ in range(self.chance.randrange(3))
        ]
        content = ("content", self.write_array(blocks) if self.chance.random() < 0.6 else self.write_words())
        pairs = [role, content, *self.write_pairs(2)]
        self.chance.shuffle(pairs)
        return self.write_object(pairs)

    def write_body(self, api: Api, messages: Sequence[str]) -> tuple[str, str]:
        """A body in two parts: up to and with the opening bracket of its messages, and what follows the last."""
        others = [
            ("model", '"m"'),
            ("stream", "true"),
            ("tools", self.write_array([self.write_value()])),
            *self.write_pairs(),
        ]
        # A second list of messages is a list as well: of two the last one counts.
        others = [
            (name, self.write_array([self.write_message()]) if name == LIST_FIELDS[api] else value)
            for name, value in others
        ]
        self.chance.shuffle(others)
        middle = self.chance.randrange(len(others) + 1)
        ahead = "".join(f"{self.write_text(name)}{self.write_space()}:{value}," for name, value in others[:middle])
        behind = "".join(f",{self.write_space()}{self.write_text(name)}:{value}" for name, value in others[middle:])
        opening = (
            self.write_space()
            + "{"
            + ahead
            + self.write_text(LIST_FIELDS[api])
            + self.write_space()
            + ":"
            + self.write_space()
            + "["
        )
        return opening, self.write_space() + "]" + behind + self.write_space() + "}" + self.write_space()

    def write_whole(self, api: Api, messages: Sequence[str]) -> bytes:
        opening, ending = self.write_body(api, messages)
        return (
            opening + ",".join(self.write_space() + each + self.write_space() for each in messages) + ending
        ).encode()


@cache
def iterate_requests(api: Api, turns: int = 8) -> tuple[dict[str, Any], ...]:
    """The first requests of a recorded run, each the next of the one before."""
    run = next(each for each in read_runs(RUNS / "swe-agent-sympy-20801.traj.gz") if isinstance(each, Trajectory))
    follower = Follower(run, api)
    found = []
    for _ in range(turns):
        body = {"model": "m", "max_tokens": 9, **follower.request, "stream": False, "tools": [{"name": "t"}]}
        found.append(body)
        reply = follower.recorded.get_reply(follower.turn)
        follower.take(_ANSWERS[api](ReplySpec(reply=reply, usage=Usage(), model="m", id=str(follower.turn))))
    return tuple(found)
