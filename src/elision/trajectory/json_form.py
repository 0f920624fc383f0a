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


def drop_empty(**fields: Any) -> dict[str, Any]:
    """Fields whose default is empty, 0 or false: those that are not."""
    return {name: value for name, value in fields.items() if value}


def drop_unknown(**fields: Any) -> dict[str, Any]:
    """Fields that may be unknown: those that are not; "" and 0 are statements."""
    return {name: value for name, value in fields.items() if value is not None}


def encode_head(head: Head) -> dict[str, Any]:
    return drop_empty(
        messages=[encode_message(message) for message in head.messages],
        tools=list(head.tools),
        hidden_tokens=head.hidden_tokens,
        warm_tokens=head.warm_tokens,
    )


def encode_message(message: Message) -> dict[str, Any]:
    return {"role": message.role, **drop_empty(content=encode_content(message.content), pinned=message.pinned)}


def encode_content(parts: Content) -> list[dict[str, Any]]:
    return [encode_part(part) for part in parts]


def encode_part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    return {
        "opaque": part.kind,
        **drop_empty(tokens=part.tokens),
        **drop_unknown(data=part.data),
    }


def encode_turn(turn: Turn) -> dict[str, Any]:
    return {
        "turn": turn.index,
        **drop_empty(
            content=encode_content(turn.content),
            reasoning=turn.reasoning,
            actions=[encode_action(action) for action in turn.actions],
            observations=[encode_observation(observation) for observation in turn.observations],
            interjections=[encode_message(message) for message in turn.interjections],
            model=turn.model,
            pinned=turn.pinned,
        ),
        **drop_unknown(usage=turn.usage and encode_usage(turn.usage), at=turn.at),
    }


def encode_action(action: Action) -> dict[str, Any]:
    return {"id": action.id, "name": action.name, "arguments": action.arguments, **drop_empty(implicit=action.implicit)}


def encode_observation(observation: Observation) -> dict[str, Any]:
    return {
        "action_id": observation.action_id,
        "tool": observation.tool,
        "role": observation.role,
        **drop_unknown(error=observation.error),
        **drop_empty(
            content=encode_content(observation.content), tags=sorted(observation.tags), pinned=observation.pinned
        ),
    }


def encode_usage(usage: Usage) -> dict[str, Any]:
    counts = {"input": usage.input, "cache_read": usage.cache_read, "cache_write": usage.cache_write}
    return {
        **counts,
        "output": usage.output,
        **drop_unknown(usd=usage.usd),
        **drop_empty(
            cache_write_1h=usage.cache_write_1h,
            first_prompt=usage.first_prompt,
            played=usage.played,
            others=[{"model": model, "usage": encode_usage(part)} for model, part in usage.others],
        ),
    }


# --- in ----------------------------------------------------------------------------------------------------------


def decode_head(value: Mapping[str, Any]) -> Head:
    return Head(
        messages=tuple(map(decode_message, read_mappings(value, "messages"))),
        tools=tuple(read_mappings(value, "tools")),
        hidden_tokens=read_integer(value, "hidden_tokens"),
        warm_tokens=read_integer(value, "warm_tokens"),
    )


def decode_message(value: Mapping[str, Any]) -> Message:
    role = read_choice(value, "role", ("system", "developer", "user"))
    return Message(
        role=cast(Literal["system", "developer", "user"], role),
        content=decode_content(value),
        pinned=read_flag(value, "pinned"),
    )


def decode_content(value: Mapping[str, Any]) -> Content:
    return tuple(map(decode_part, read_mappings(value, "content")))


def decode_part(value: Mapping[str, Any]) -> Part:
    if "opaque" not in value:
        return Text(read_text(value, "text"))
    return Opaque(read_text(value, "opaque"), read_integer(value, "tokens"), read_optional(value, "data", read_mapping))


def decode_turn(value: Mapping[str, Any], index: int) -> Turn:
    if "turn" not in value:
        raise ValueError("no `turn`")
    return Turn(
        index=index,
        content=decode_content(value),
        reasoning=read_text(value, "reasoning"),
        actions=tuple(map(decode_action, read_mappings(value, "actions"))),
        observations=tuple(map(decode_observation, read_mappings(value, "observations"))),
        interjections=tuple(map(decode_message, read_mappings(value, "interjections"))),
        usage=decode_usage(value),
        at=read_optional(value, "at", read_number),
        model=read_text(value, "model"),
        pinned=read_flag(value, "pinned"),
    )


def decode_action(value: Mapping[str, Any]) -> Action:
    arguments = read_text(value, "arguments")
    return Action(
        id=read_text(value, "id"),
        name=read_text(value, "name"),
        arguments=arguments,
        implicit=read_flag(value, "implicit"),
    )


def decode_observation(value: Mapping[str, Any]) -> Observation:
    tags = value.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("`tags` is no list of texts")
    return Observation(
        action_id=read_text(value, "action_id"),
        tool=read_text(value, "tool"),
        content=decode_content(value),
        role=cast(Literal["tool", "user"], read_choice(value, "role", ("tool", "user"))),
        error=read_optional(value, "error", read_flag),
        tags=frozenset(tags),
        pinned=read_flag(value, "pinned"),
    )


def decode_usage(value: Mapping[str, Any]) -> Usage | None:
    counts = read_optional(value, "usage", read_mapping)
    if counts is None:
        return None
    return Usage(
        input=read_integer(counts, "input"),
        cache_read=read_integer(counts, "cache_read"),
        cache_write=read_integer(counts, "cache_write"),
        output=read_integer(counts, "output"),
        usd=read_optional(counts, "usd", read_number),
        cache_write_1h=read_integer(counts, "cache_write_1h"),
        first_prompt=read_integer(counts, "first_prompt"),
        played=read_flag(counts, "played"),
        others=tuple(_decode_other_usage(part) for part in read_mappings(counts, "others")),
    )


def _decode_other_usage(value: Mapping[str, Any]) -> tuple[str, Usage]:
    return read_text(value, "model"), decode_usage(value) or Usage()


# --- fields: absent is the default, anything of another type is a ValueError that names the field ------------------


def read_optional(value: Mapping[str, Any], name: str, take: Callable[[Mapping[str, Any], str], _T]) -> _T | None:
    if value.get(name) is None:
        return None
    return take(value, name)


def read_text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name, "")
    if not isinstance(found, str):
        raise ValueError(f"`{name}` is no text")
    return found


def read_choice(value: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    found = read_text(value, name)
    if found not in known:
        raise ValueError(f"`{name}` is {found[:40]!r}, not one of {', '.join(known)}")
    return found


def read_integer(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name, 0)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"`{name}` is no whole number")
    return found


def read_number(value: Mapping[str, Any], name: str) -> float:
    found = value[name]
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise ValueError(f"`{name}` is no number")
    return found


def read_flag(value: Mapping[str, Any], name: str) -> bool:
    found = value.get(name, False)
    if not isinstance(found, bool):
        raise ValueError(f"`{name}` is neither true nor false")
    return found


def read_mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"`{name}` is no object")
    return found


def read_mappings(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = value.get(name, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError(f"`{name}` is no list of objects")
    return found
