"""Values as JSON and back: what Elision's exports and stores keep of heads and turns.

Out: what has its default is left out. In: what is absent has its default, and anything of another type is a ValueError
that names the field. Keys that are not known are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

from elision.trajectory.content import Content, Opaque, Part, Text
from elision.trajectory.turn import Action, Head, Message, Observation, Turn
from elision.trajectory.usage import Usage

_T = TypeVar("_T")


# --- out ---------------------------------------------------------------------------------------------------------


def given(**fields: Any) -> dict[str, Any]:
    """Fields whose default is empty, 0 or false: those that are not."""
    return {name: value for name, value in fields.items() if value}


def stated(**fields: Any) -> dict[str, Any]:
    """Fields that may be unknown: those that are not; "" and 0 are statements."""
    return {name: value for name, value in fields.items() if value is not None}


def head_out(head: Head) -> dict[str, Any]:
    return given(
        messages=[message_out(message) for message in head.messages],
        tools=list(head.tools),
        hidden_tokens=head.hidden_tokens,
        warm_tokens=head.warm_tokens,
    )


def message_out(message: Message) -> dict[str, Any]:
    return {"role": message.role, **given(content=content_out(message.content), pinned=message.pinned)}


def content_out(parts: Content) -> list[dict[str, Any]]:
    return [part_out(part) for part in parts]


def part_out(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    return {
        "opaque": part.kind,
        **given(tokens=part.tokens),
        **stated(data=part.data),
    }


def turn_out(turn: Turn) -> dict[str, Any]:
    return {
        "turn": turn.index,
        **given(
            content=content_out(turn.content),
            reasoning=turn.reasoning,
            actions=[action_out(action) for action in turn.actions],
            observations=[observation_out(observation) for observation in turn.observations],
            interjections=[message_out(message) for message in turn.interjections],
            model=turn.model,
            pinned=turn.pinned,
        ),
        **stated(usage=turn.usage and usage_out(turn.usage), at=turn.at),
    }


def action_out(action: Action) -> dict[str, Any]:
    return {"id": action.id, "name": action.name, "arguments": action.arguments, **given(implicit=action.implicit)}


def observation_out(observation: Observation) -> dict[str, Any]:
    return {
        "action_id": observation.action_id,
        "tool": observation.tool,
        "role": observation.role,
        **stated(error=observation.error),
        **given(content=content_out(observation.content), tags=sorted(observation.tags), pinned=observation.pinned),
    }


def usage_out(usage: Usage) -> dict[str, Any]:
    counts = {"input": usage.input, "cache_read": usage.cache_read, "cache_write": usage.cache_write}
    return {
        **counts,
        "output": usage.output,
        **stated(usd=usage.usd),
        **given(
            cache_write_1h=usage.cache_write_1h,
            first_prompt=usage.first_prompt,
            others=[{"model": model, "usage": usage_out(part)} for model, part in usage.others],
        ),
    }


# --- in ----------------------------------------------------------------------------------------------------------


def head_in(value: Mapping[str, Any]) -> Head:
    return Head(
        messages=tuple(map(message_in, mappings(value, "messages"))),
        tools=tuple(mappings(value, "tools")),
        hidden_tokens=whole(value, "hidden_tokens"),
        warm_tokens=whole(value, "warm_tokens"),
    )


def message_in(value: Mapping[str, Any]) -> Message:
    role = one_of(value, "role", ("system", "developer", "user"))
    return Message(
        role=cast(Literal["system", "developer", "user"], role),
        content=content_in(value),
        pinned=flag(value, "pinned"),
    )


def content_in(value: Mapping[str, Any]) -> Content:
    return tuple(map(part_in, mappings(value, "content")))


def part_in(value: Mapping[str, Any]) -> Part:
    if "opaque" not in value:
        return Text(text(value, "text"))
    return Opaque(text(value, "opaque"), whole(value, "tokens"), optional(value, "data", mapping))


def turn_in(value: Mapping[str, Any], index: int) -> Turn:
    if "turn" not in value:
        raise ValueError("no `turn`")
    return Turn(
        index=index,
        content=content_in(value),
        reasoning=text(value, "reasoning"),
        actions=tuple(map(action_in, mappings(value, "actions"))),
        observations=tuple(map(observation_in, mappings(value, "observations"))),
        interjections=tuple(map(message_in, mappings(value, "interjections"))),
        usage=usage_in(value),
        at=optional(value, "at", number),
        model=text(value, "model"),
        pinned=flag(value, "pinned"),
    )


def action_in(value: Mapping[str, Any]) -> Action:
    arguments = text(value, "arguments")
    return Action(id=text(value, "id"), name=text(value, "name"), arguments=arguments, implicit=flag(value, "implicit"))


def observation_in(value: Mapping[str, Any]) -> Observation:
    tags = value.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("`tags` is no list of texts")
    return Observation(
        action_id=text(value, "action_id"),
        tool=text(value, "tool"),
        content=content_in(value),
        role=cast(Literal["tool", "user"], one_of(value, "role", ("tool", "user"))),
        error=optional(value, "error", flag),
        tags=frozenset(tags),
        pinned=flag(value, "pinned"),
    )


def usage_in(value: Mapping[str, Any]) -> Usage | None:
    counts = optional(value, "usage", mapping)
    if counts is None:
        return None
    return Usage(
        input=whole(counts, "input"),
        cache_read=whole(counts, "cache_read"),
        cache_write=whole(counts, "cache_write"),
        output=whole(counts, "output"),
        usd=optional(counts, "usd", number),
        cache_write_1h=whole(counts, "cache_write_1h"),
        first_prompt=whole(counts, "first_prompt"),
        others=tuple(_other_in(part) for part in mappings(counts, "others")),
    )


def _other_in(value: Mapping[str, Any]) -> tuple[str, Usage]:
    return text(value, "model"), usage_in(value) or Usage()


# --- fields: absent is the default, anything of another type is a ValueError that names the field ------------------


def optional(value: Mapping[str, Any], name: str, take: Callable[[Mapping[str, Any], str], _T]) -> _T | None:
    if value.get(name) is None:
        return None
    return take(value, name)


def text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name, "")
    if not isinstance(found, str):
        raise ValueError(f"`{name}` is no text")
    return found


def one_of(value: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    found = text(value, name)
    if found not in known:
        raise ValueError(f"`{name}` is {found[:40]!r}, not one of {', '.join(known)}")
    return found


def whole(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name, 0)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"`{name}` is no whole number")
    return found


def number(value: Mapping[str, Any], name: str) -> float:
    found = value[name]
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise ValueError(f"`{name}` is no number")
    return found


def flag(value: Mapping[str, Any], name: str) -> bool:
    found = value.get(name, False)
    if not isinstance(found, bool):
        raise ValueError(f"`{name}` is neither true nor false")
    return found


def mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"`{name}` is no object")
    return found


def mappings(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = value.get(name, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError(f"`{name}` is no list of objects")
    return found
