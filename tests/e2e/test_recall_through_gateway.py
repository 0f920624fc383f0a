"""A model recalls what was hidden from it, behind the back of a client that never hears of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from elision.gateway.recall_rounds import MAX_ROUNDS
from elision.gateway.server import GatewayThread
from elision.providers.provider import Api
from tests.e2e.agents import APIS, TOOLS, Agent, observed
from tests.e2e.doors import Wire, gateway
from tests.e2e.scripted_model import (
    RECALL,
    SEARCH,
    Asked,
    Call,
    Model,
    ResponsePart,
    bash,
    model,
    recall,
    search,
    text,
    thought,
)
from tests.soak import pair_cases, sample_cases

Json = dict[str, Any]
BOUND = "claude-opus-5-5"
BOTH = pytest.mark.parametrize("streamed", [False, True])
ALL = pytest.mark.parametrize("api", APIS)
#: Every API, streamed or not, in turn; and the other way round.
WAYS = pytest.mark.parametrize(("api", "streamed"), pair_cases(APIS, [False, True]))
OTHER_WAYS = pytest.mark.parametrize(("api", "streamed"), pair_cases(APIS, [True, False]))
#: Patterns that are too large, or no regular expressions of ours.
REFUSED = ("(?:(?:(?:a{300}){300}){300})", "(?=a)b", "(" * 5_000 + ")" * 5_000)


class Script:
    """What is said, request by request; behind its end one command after the other."""

    def __init__(self, *lines: Callable[[Asked], list[ResponsePart]], first: int = 4) -> None:
        self._lines = [*(lambda asked, n=n: [bash(n)] for n in range(1, first + 1)), *lines]
        self.number = 0

    def __call__(self, asked: Asked) -> list[ResponsePart]:
        self.number += 1
        if self.number <= len(self._lines):
            return self._lines[self.number - 1](asked)
        return [text(f"Step {self.number}.", str(self.number)), bash(self.number)]


def recalling(
    *before: ResponsePart, behind: tuple[ResponsePart, ...] = (), id: object = 0
) -> Callable[[Asked], list[ResponsePart]]:
    """Recalls the oldest thing that is hidden, between other words and calls."""
    return lambda asked: [*before, recall(asked.handles[0], id), *behind]


def opened(api: Api, wire: Wire, door: GatewayThread, streamed: bool, **more: Any) -> Agent:
    client: Any = wire.claude(door.url) if api == "anthropic" else wire.openai(door.url)
    return Agent(api=api, client=client, streamed=streamed, **more)


@contextmanager
def playing(
    api: Api, streamed: bool, script: Script, agent: Json | None = None, **given: Any
) -> Iterator[tuple[Agent, Model, GatewayThread]]:
    with model(script) as upstream, gateway(upstream.url, **given) as door:
        working = opened(api, Wire(), door, streamed, **(agent or {}))
        with working.client:
            yield working, upstream, door
    assert upstream.problems == []
    assert "elision" not in working.seen


def spoken(asked: Asked) -> list[tuple[str, bytes]]:
    """Names of the tools that are called in each message, and the message."""
    found = []
    for each in asked.messages:
        names = [name for name in (RECALL, SEARCH, "bash") if f'"name":"{name}"'.encode() in each.replace(b": ", b":")]
        found.append(("+".join(names), each))
    return found


def places(asked: Asked, name: str = RECALL) -> list[int]:
    return [place for place, (names, _) in enumerate(spoken(asked)) if name in names]


def shown(answer: Any) -> tuple[str, list[str]]:
    """(words, names of the tools called) of what a client was given."""
    told = answer.model_dump(mode="json", warnings=False)
    if "choices" in told:
        message = told["choices"][0]["message"]
        return message["content"] or "", [call["function"]["name"] for call in message.get("tool_calls") or ()]
    blocks = told.get("output") or told["content"]
    words = [part["text"] for each in blocks for part in (each.get("content") or [each]) if "text" in (part or {})]
    names = [each["name"] for each in blocks if each["type"] in ("function_call", "tool_use")]
    return "".join(word for word in words if word), names


def tokens(answer: Any) -> int:
    usage = answer.usage
    return int(getattr(usage, "input_tokens", None) or getattr(usage, "prompt_tokens", 0))


def steady(upstream: Model, first: int, place: int, count: int) -> None:
    """From request `first` on, messages `place` to `place + count` never change but into a placeholder, once."""
    before: list[bytes] = []
    for asked in upstream.asked[first:]:
        now = asked.messages[place : place + count]
        assert len(now) == count
        for old, new in zip(before, now, strict=False):
            assert new == old or (b"[t" in new and len(new) < len(old))
        before = now


# -- the ways a model recalls -----------------------------------------------------------------------------------------


@WAYS
def test_alone(api: Api, streamed: bool) -> None:
    """The client gets one answer with the usage of both; upstream call and result stand in their place for good."""
    script = Script(recalling(text("Let me look.", "w")), lambda asked: [text("So it was.", "x"), bash(5)])
    with playing(api, streamed, script) as (agent, upstream, _):
        agent.run(8)
    words, names = shown(agent.answers[4])
    assert words == "Let me look.So it was."
    assert names == ["bash"]
    assert tokens(agent.answers[4]) == 2 * tokens(agent.answers[3])
    assert len(upstream.asked) == 9
    again = upstream.asked[5]
    (place,) = places(again)
    assert b"value_1_3" in again.messages[place + 1]
    for asked in upstream.asked[5:]:
        assert places(asked) == [place]
        assert asked.messages[place] == again.messages[place]
    steady(upstream, 5, place, 2)


@OTHER_WAYS
def test_with_another_tool_in_the_same_breath(api: Api, streamed: bool) -> None:
    """The client sees the other call alone, and what was recalled joins its result."""
    script = Script(recalling(text("Both.", "w"), behind=(bash(5),)))
    with playing(api, streamed, script) as (agent, upstream, _):
        agent.run(8)
    words, names = shown(agent.answers[4])
    assert (words, names) == ("Both.", ["bash"])
    assert len(upstream.asked) == 8
    following = upstream.asked[5]
    (place,) = places(following)
    behind = b"".join(following.messages[place + 1 :])
    assert b"value_1_3" in behind
    assert b"make step-5" in behind
    for asked in upstream.asked[5:]:
        assert places(asked) == [place]
        assert asked.messages[place] == following.messages[place]


@WAYS
def test_twice_in_a_row_and_searched_before(api: Api, streamed: bool) -> None:
    """Several rounds are one answer still: a search, what it found, and another one."""
    script = Script(
        lambda asked: [text("First.", "w"), search("value_1_3", 1)],
        lambda asked: [recall(asked.handles[0], 2)],
        lambda asked: [recall(asked.handles[1], 3)],
        lambda asked: [text("Now I know.", "x")],
    )
    with playing(api, streamed, script) as (agent, upstream, _):
        agent.run(7)
    assert shown(agent.answers[4]) == ("First.Now I know.", [])
    assert tokens(agent.answers[4]) == 4 * tokens(agent.answers[3])
    last = upstream.asked[-1]
    assert len(places(last)) == 2
    assert len(places(last, SEARCH)) == 1
    found = upstream.asked[5]
    assert b"t1.1" in found.messages[places(found, SEARCH)[0] + 1]


@OTHER_WAYS
def test_for_ever(api: Api, streamed: bool) -> None:
    """A model that does nothing but recall is stopped, and the client has an answer that it can go on from."""
    forever = [recalling(text(f"{n}.", f"w{n}"), id=n) for n in range(MAX_ROUNDS)]
    with playing(api, streamed, Script(*forever)) as (agent, upstream, _):
        agent.run(7)
    words, names = shown(agent.answers[4])
    assert words == "".join(f"{n}." for n in range(MAX_ROUNDS))
    assert names == []
    assert len(upstream.asked) == 4 + MAX_ROUNDS + 2
    assert len(places(upstream.asked[-1])) == MAX_ROUNDS - 1


@WAYS
def test_of_nothing(api: Api, streamed: bool) -> None:
    """A handle that there is not is answered with words, and the conversation goes on."""
    script = Script(lambda asked: [recall("t99.9", 0)], lambda asked: [text("Then not.", "x"), bash(5)])
    with playing(api, streamed, script) as (agent, upstream, _):
        agent.run(7)
    assert shown(agent.answers[4]) == ("Then not.", ["bash"])
    again = upstream.asked[5]
    assert b"not found" in again.messages[places(again)[0] + 1]


@pytest.mark.parametrize(("api", "streamed", "pattern"), sample_cases(product(APIS, [False, True], REFUSED), 5))
def test_with_a_pattern_that_is_refused(api: Api, streamed: bool, pattern: str) -> None:
    """The model is told in one line why, and what to do; the conversation goes on."""
    asking = Call(id="r0", tool=RECALL, arguments_given=(("handle", "t1.1"), ("pattern", pattern)))
    script = Script(lambda asked: [asking], lambda asked: [text("Then simpler.", "x"), bash(5)])
    with playing(api, streamed, script) as (agent, upstream, _):
        agent.run(7)
    assert shown(agent.answers[4]) == ("Then simpler.", ["bash"])
    again = upstream.asked[5]
    answer = again.messages[places(again)[0] + 1]
    assert b"cannot be used" in answer
    assert b"Give a simpler one or plain words" in answer
    assert b"\\n" not in answer


@OTHER_WAYS
def test_with_thinking_around(api: Api, streamed: bool) -> None:
    """Thinking of every round stays where it was thought, signature and all; the client has it as well."""
    script = Script(
        recalling(thought("What was it?", "one")),
        lambda asked: [thought("I see.", "two"), text("So it was.", "x"), bash(5)],
    )
    more = {"thinking": {"type": "adaptive"}} if api == "anthropic" else {}
    with playing(api, streamed, script, {"more": more}) as (agent, upstream, _):
        agent.run(8)
    assert shown(agent.answers[4])[1] == ["bash"]
    last = upstream.asked[-1]
    (place,) = places(last)
    around = last.messages[max(0, place - 1) : place + 5]
    if api != "openai":
        assert any(b"What was it?" in each for each in around)
        assert any(b"I see." in each for each in around)
    if api == "anthropic":
        assert b"sig-one" in last.messages[place]
        assert b"sig-two" in last.messages[place + 2]
        assert "sig-two" in agent.seen


# -- over processes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "streamed", "way"), sample_cases(product(APIS, [False, True], ["alone", "beside"]), 5))
def test_after_a_restart_and_at_another_door(api: Api, streamed: bool, way: str, tmp_path: Path) -> None:
    """A new process, and another one beside it, send the same bytes for what the client never saw."""
    store = f"sqlite:////{str(tmp_path / 'a.db').lstrip('/')}"
    if way == "alone":
        script = Script(recalling(text("Let me look.", "w")), lambda asked: [text("So.", "x"), bash(5)])
    else:
        script = Script(recalling(text("Both.", "w"), behind=(bash(5),)))
    wire = Wire()
    with model(script) as upstream:
        with gateway(upstream.url, store=store) as door:
            agent = opened(api, wire, door, streamed)
            agent.run(6)
            agent.client.close()
        before = upstream.asked[-1]
        with gateway(upstream.url, store=store) as one, gateway(upstream.url, store=store) as other:
            for door in (one, other, one, other):
                agent.client = wire.claude(door.url) if api == "anthropic" else wire.openai(door.url)
                agent.run(1)
                agent.client.close()
    assert upstream.problems == []
    (place,) = places(before)
    for asked in upstream.asked[-4:]:
        assert places(asked) == [place]
        assert asked.messages[place] == before.messages[place]
        assert asked.tools == before.tools
    assert len(set(wire.sessions)) == 1
    steady(upstream, len(upstream.asked) - 5, place, 2)
    assert "elision" not in agent.seen


@ALL
def test_it_is_written_before_the_client_has_the_end(api: Api, tmp_path: Path) -> None:
    """A process that dies as its client reads the end leaves a store from which another one goes on the same."""
    script = Script(recalling(text("Let me look.", "w")), lambda asked: [text("So.", "x"), bash(5)])
    left = tmp_path / "left"
    left.mkdir()
    wire, store = Wire(), "sqlite:////{}/a.db"
    with model(script) as upstream:
        with gateway(upstream.url, store=store.format(str(tmp_path).lstrip("/"))) as door:
            agent = opened(api, wire, door, True)
            agent.run(4)
            for kind in _kinds(agent):
                if kind in _ENDS:
                    # What a killed process would leave: the files as they are at this moment.
                    for part in tmp_path.glob("a.db*"):
                        shutil.copy(part, left)
            agent.client.close()
        alive = upstream.asked[-1]
        with model(lambda asked: [text("Let me look.", "w"), text("So.", "x"), bash(5)]) as same:
            # The answer as the client had it, taken by its own accumulator.
            agent.client = wire.claude(same.url) if api == "anthropic" else wire.openai(same.url)
            agent.run(1)
            agent.client.close()
        with gateway(upstream.url, store=store.format(str(left).lstrip("/"))) as door:
            agent.client = opened(api, wire, door, True).client
            agent.run(1)
            agent.client.close()
    assert upstream.problems == []
    (place,) = places(upstream.asked[-1])
    assert upstream.asked[-1].messages[place] == alive.messages[place]
    assert "elision" not in agent.seen


_ENDS = ("message_stop", "response.completed", "tool_calls")


def _kinds(agent: Agent) -> Iterator[str]:
    """Events of one raw stream, as they come."""
    if agent.api == "anthropic":
        made: Any = agent.client.messages.create(
            model=agent.model, max_tokens=99, messages=agent.history, tools=[TOOLS["anthropic"]], stream=True
        )
        yield from (event.type for event in made)
    elif agent.api == "openai-responses":
        made = agent.client.responses.create(
            model=agent.model, input=agent.history, tools=[TOOLS["openai-responses"]], stream=True, store=False
        )
        yield from (event.type for event in made)
    else:
        made = agent.client.chat.completions.create(
            model=agent.model, messages=agent.history, tools=[TOOLS["openai"]], stream=True
        )
        yield from (str(choice.finish_reason) for chunk in made for choice in chunk.choices)


# -- when it is offered -----------------------------------------------------------------------------------------------


@ALL
def test_the_tools_enter_with_the_first_placeholder_and_stay(api: Api) -> None:
    """Not before; then the same bytes in every request, behind the client's own."""
    with playing(api, False, Script()) as (agent, upstream, _):
        agent.run(8)
    own = ["bash"]
    for asked in upstream.asked:
        assert asked.tools == (["bash", RECALL, SEARCH] if asked.handles else own)
    offered = {json.dumps(asked.body["tools"]) for asked in upstream.asked if asked.handles}
    assert len(offered) == 1
    assert upstream.asked[-1].handles


@ALL
def test_off_there_is_no_tool_and_no_handle(api: Api) -> None:
    """Where recall is off, gaps name no handle, and a call of the name is the client's to see."""
    with playing(api, False, Script(), recall="never") as (agent, upstream, _):
        agent.run(8)
    assert not any(asked.handles or RECALL in asked.tools for asked in upstream.asked)
    assert json.dumps(observed("make step-1"))[1:-1].encode() not in upstream.asked[-1].raw
    assert b"hidden" in upstream.asked[-1].raw


@BOTH
@pytest.mark.parametrize("thinking", ["defer", "auto"])
def test_at_a_model_whose_thinking_is_bound(thinking: str, streamed: bool) -> None:
    """From the first call, or not at all where the provider clears results: tools may not change behind thinking."""
    when = "start" if thinking == "defer" else "never"
    think = {"type": "adaptive"}
    lines = [lambda asked, n=n: [thought(f"Step {n}.", str(n)), bash(n)] for n in range(1, 7)]
    script = Script(
        *lines,
        lambda asked: [recall("t1.1", 0)] if when == "start" else [text("So.", "x")],
        first=0,
    )
    agent = {"model": BOUND, "more": {"thinking": think}}
    with playing("anthropic", streamed, script, agent, thinking=thinking) as (working, upstream, _):
        working.run(9)
    tools = {tuple(asked.tools) for asked in upstream.asked}
    assert tools == ({("bash", RECALL, SEARCH)} if when == "start" else {("bash",)})
    assert when == "start" or not any(asked.handles for asked in upstream.asked)
    if when == "start":
        again = upstream.asked[7]
        assert b"value_1_3" in again.messages[places(again)[0] + 1]
        assert upstream.asked[-1].messages[places(again)[0]] == again.messages[places(again)[0]]
