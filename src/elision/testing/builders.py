"""Make runs for tests: turns, trajectories, and their messages in all three shapes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from elision.providers.anthropic.messages import AnthropicRenderer
from elision.providers.openai_chat.messages import OpenAIChatRenderer
from elision.providers.openai_responses.messages import OpenAIResponsesRenderer
from elision.trajectory.events import HeadSet, TurnAdded
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Content, Head, Message, Observation, Turn, make_content

Json = dict[str, Any]


def user(text: str, *, pinned: bool = False) -> Message:
    """Make a message of the user."""
    return Message(role="user", content=make_content(text), pinned=pinned)


def head(task: str = "Mend the parser.", **options: Any) -> Head:
    """Make a system prompt and a task."""
    return Head(messages=(Message(role="system", content=make_content("You are an agent.")), user(task)), **options)


def call(name: str = "bash", *, id: str = "a", **arguments: Any) -> Action:
    """Make a tool call with those arguments."""
    return Action(id=id, name=name, arguments=json.dumps(arguments))


def result(text: str | Content, name: str = "bash", *, id: str = "a", **options: Any) -> Observation:
    """Make the result of the call with that id."""
    return Observation(
        action_id=id, tool=name, content=make_content(text) if isinstance(text, str) else text, **options
    )


def turn(
    index: int, *pairs: tuple[Action, Observation], text: str = "", said: Iterable[Message] = (), **options: Any
) -> Turn:
    """Make a turn with the calls of `pairs`, each with its result. said: interjections after it."""
    return Turn(
        index=index,
        content=make_content(text),
        actions=tuple(action for action, _ in pairs),
        observations=tuple(observation for _, observation in pairs),
        interjections=tuple(said),
        **options,
    )


def step(index: int, text: str = "", *, tool: str = "bash", **options: Any) -> Turn:
    """Make a turn with one call, whose arguments are its own, and one result: `text`, or about 100 tokens."""
    observation = {key: options.pop(key) for key in ("tags", "pinned", "error") if key in options}
    pair = (call(tool, command=f"make step-{index}"), result(text or long_text(index), tool, **observation))
    return turn(index, pair, **options)


def steps(count: int, **options: Any) -> tuple[Turn, ...]:
    """Make that many turns as `step` makes them."""
    return tuple(step(index, **options) for index in range(1, count + 1))


def long_text(number: int, lines: int = 8) -> str:
    """Make a text of about 12 tokens a line, different for each `number`."""
    return "\n".join(f"line {line}: value_{number}_{line} in src/part_{number}.py" for line in range(lines))


def trajectory(*turns: Turn, id: str = "run", task: str = "Mend the parser.", **options: Any) -> Trajectory:
    """Make a run of those turns."""
    return Trajectory(id=id, head=options.pop("head", None) or head(task), turns=turns, **options)


def commands(*lines: str, id: str = "run", task: str = "Mend the parser.", done: str = "Done.") -> Trajectory:
    """Make a run that types each of `lines` into a shell and then says `done`. What they print is left open."""
    turns = [
        Turn(index=index, content=make_content(f"Step {index}."), actions=(call(id=f"call_{index}", command=line),))
        for index, line in enumerate(lines, start=1)
    ]
    return trajectory(*turns, Turn(index=len(lines) + 1, content=make_content(done)), id=id, task=task)


# -- messages ---------------------------------------------------------------------------------------------------------


def openai_messages(run: Trajectory) -> list[Json]:
    """Render the whole run as OpenAI chat messages, nothing hidden."""
    return OpenAIChatRenderer().render_messages(_build_state(run).make_raw_view())


def anthropic_messages(run: Trajectory) -> tuple[list[Json], list[Json]]:
    """Render the whole run as Anthropic messages, nothing hidden: the system prompt's blocks, and the messages."""
    renderer = AnthropicRenderer()
    view = _build_state(run).make_raw_view()
    return renderer.render_system(view), renderer.render_messages(view)


def responses_items(run: Trajectory) -> list[Json]:
    """Render the whole run as the input of OpenAI Responses, nothing hidden."""
    return OpenAIResponsesRenderer().render_messages(_build_state(run).make_raw_view())


def _build_state(run: Trajectory) -> State:
    state = State(Sizer(make_counter()))
    return state.fold_events([HeadSet(run.head), *map(TurnAdded, run.turns)])
