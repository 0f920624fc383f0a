"""Events as JSON objects and back: the form in which stores keep a log. `e` names the event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elision.trajectory.events import (
    Amended,
    Answered,
    Attempted,
    Called,
    Decided,
    Event,
    Exchanged,
    HeadSet,
    Learned,
    Opened,
    Recalled,
    TurnAdded,
)
from elision.trajectory.json_form import (
    flag,
    given,
    head_in,
    head_out,
    mapping,
    mappings,
    number,
    optional,
    stated,
    text,
    turn_in,
    turn_out,
    usage_in,
    usage_out,
    whole,
)
from elision.trajectory.plan import RENDERER, Clip, Key, Mask, Summary


def event_out(event: Event) -> dict[str, Any]:
    """`event` as a JSON object; what has its default is left out."""
    name, write = _OUT[type(event)]
    return {"e": name, **write(event)}


def event_in(value: Mapping[str, Any]) -> Event:
    """The event that `event_out` wrote. Raises ValueError naming the field that is wrong."""
    name = text(value, "e")
    read = _IN.get(name)
    if read is None:
        raise ValueError(f"unknown event {name[:40]!r}: written by a newer Elision?")
    return read(value)


# --- out ---------------------------------------------------------------------------------------------------------


def _opened_out(event: Opened) -> dict[str, Any]:
    return {
        "strategy": event.strategy,
        **given(dialect=event.dialect),
        "handles": event.handles,
        **given(shadow=event.shadow, tools=list(event.tools)),
        **({} if event.offer == "caller" else {"offer": event.offer}),
    }


def _turn_out(event: TurnAdded | Amended) -> dict[str, Any]:
    return {**given(node=event.node), **turn_out(event.turn)}


def _decided_out(event: Decided) -> dict[str, Any]:
    return {
        "call": event.call,
        "reason": event.reason,
        **given(masks=[_edit_out(mask) for mask in event.masks], clips=[_edit_out(clip) for clip in event.clips]),
        **stated(summary=event.summary and _summary_out(event.summary)),
        **given(offers=event.offers),
    }


def _edit_out(edit: Mask | Clip) -> dict[str, Any]:
    return {"key": list(edit.key), "text": edit.text, **_renderer_out(edit.renderer)}


def _renderer_out(renderer: int) -> dict[str, Any]:
    if renderer == RENDERER:
        return {}
    return {"renderer": renderer}


def _summary_out(summary: Summary) -> dict[str, Any]:
    return {
        "covers": summary.covers,
        "text": summary.text,
        "block": summary.block,
        **given(
            interjections=list(summary.interjections),
            input=summary.input_tokens,
            output=summary.output_tokens,
            cached=summary.cached_tokens,
        ),
        **stated(usd=summary.usd),
        "route": summary.route,
        **_renderer_out(summary.renderer),
    }


def _attempted_out(event: Attempted) -> dict[str, Any]:
    return {
        "call": event.call,
        "cause": event.cause,
        "reason": event.reason,
        **given(input=event.input, cached=event.cached, output=event.output, retry_at=event.retry_at),
        **stated(usd=event.usd),
    }


def _called_out(event: Called) -> dict[str, Any]:
    called = {"call": event.call, **stated(at=event.at), **given(model=event.model), "tokens": event.tokens}
    if event.ours == "gaps":
        ours = {}
    else:
        ours = {"ours": event.ours}
    return {**called, **given(unmarked=event.unmarked), **ours, **stated(hour_turn=event.hour_turn)}


def _answered_out(event: Answered) -> dict[str, Any]:
    return {"call": event.call, "usage": usage_out(event.usage)}


def _learned_out(event: Learned) -> dict[str, Any]:
    return {"call": event.call, "window": event.window, **given(tokens=event.tokens)}


def _recalled_out(event: Recalled) -> dict[str, Any]:
    return {"call": event.call, "key": list(event.key), "tokens": event.tokens, "by": event.by}


def _exchanged_out(event: Exchanged) -> dict[str, Any]:
    said = given(messages=_parts_out(event.messages), results=_parts_out(event.results))
    return {"call": event.call, "node": event.node, **said}


def _parts_out(texts: Sequence[str]) -> list[dict[str, Any]]:
    # As parts of a message are written, so that stores keep what is large in them once.
    return [{"text": text} for text in texts]


_OUT: dict[type, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    Opened: ("opened", _opened_out),
    HeadSet: ("head", lambda event: head_out(event.head)),
    TurnAdded: ("turn", _turn_out),
    Amended: ("amended", _turn_out),
    Decided: ("decided", _decided_out),
    Attempted: ("attempted", _attempted_out),
    Called: ("called", _called_out),
    Answered: ("answered", _answered_out),
    Recalled: ("recalled", _recalled_out),
    Learned: ("learned", _learned_out),
    Exchanged: ("exchanged", _exchanged_out),
}


# --- in ----------------------------------------------------------------------------------------------------------


def _key(value: Mapping[str, Any]) -> Key:
    found = value.get("key")
    if not isinstance(found, list) or len(found) != 2 or not all(type(part) is int for part in found):
        raise ValueError("`key` is no pair of whole numbers")
    return found[0], found[1]


def _renderer(value: Mapping[str, Any]) -> int:
    return whole(value, "renderer") or RENDERER


def _decided_in(value: Mapping[str, Any]) -> Decided:
    return Decided(
        call=whole(value, "call"),
        reason=text(value, "reason"),
        masks=tuple(Mask(_key(each), text(each, "text"), _renderer(each)) for each in mappings(value, "masks")),
        clips=tuple(Clip(_key(each), text(each, "text"), _renderer(each)) for each in mappings(value, "clips")),
        summary=_summary_in(found) if (found := optional(value, "summary", mapping)) is not None else None,
        offers=flag(value, "offers"),
    )


def _summary_in(value: Mapping[str, Any]) -> Summary:
    interjections = value.get("interjections", [])
    if not isinstance(interjections, list) or not all(type(each) is int for each in interjections):
        raise ValueError("`interjections` is no list of whole numbers")
    return Summary(
        covers=whole(value, "covers"),
        text=text(value, "text"),
        block=text(value, "block"),
        interjections=tuple(interjections),
        input_tokens=whole(value, "input"),
        output_tokens=whole(value, "output"),
        cached_tokens=whole(value, "cached"),
        usd=optional(value, "usd", number),
        route=text(value, "route"),
        renderer=_renderer(value),
    )


def _attempted_in(value: Mapping[str, Any]) -> Attempted:
    counts = {name: whole(value, name) for name in ("call", "input", "cached", "output", "retry_at")}
    usd = optional(value, "usd", number)
    return Attempted(cause=text(value, "cause"), reason=text(value, "reason"), usd=usd, **counts)


def _called_in(value: Mapping[str, Any]) -> Called:
    return Called(
        call=whole(value, "call"),
        at=optional(value, "at", number),
        model=text(value, "model"),
        tokens=whole(value, "tokens"),
        unmarked=flag(value, "unmarked"),
        ours="always" if text(value, "ours") == "always" else "gaps",
        hour_turn=optional(value, "hour_turn", whole),
    )


def _answered_in(value: Mapping[str, Any]) -> Answered:
    usage = usage_in(value)
    if usage is None:
        raise ValueError("no `usage`")
    return Answered(call=whole(value, "call"), usage=usage)


def _exchanged_in(value: Mapping[str, Any]) -> Exchanged:
    return Exchanged(
        call=whole(value, "call"),
        node=text(value, "node"),
        messages=tuple(text(part, "text") for part in mappings(value, "messages")),
        results=tuple(text(part, "text") for part in mappings(value, "results")),
    )


_IN: dict[str, Callable[[Mapping[str, Any]], Event]] = {
    "opened": lambda value: Opened(
        strategy=text(value, "strategy"),
        dialect=text(value, "dialect"),
        handles=flag(value, "handles"),
        shadow=flag(value, "shadow"),
        offer=text(value, "offer") or "caller",
        tools=tuple(mappings(value, "tools")),
    ),
    "head": lambda value: HeadSet(head_in(value)),
    "turn": lambda value: TurnAdded(turn_in(value, whole(value, "turn")), text(value, "node")),
    "amended": lambda value: Amended(turn_in(value, whole(value, "turn")), text(value, "node")),
    "decided": _decided_in,
    "attempted": _attempted_in,
    "called": _called_in,
    "answered": _answered_in,
    "exchanged": _exchanged_in,
    "learned": lambda value: Learned(**{name: whole(value, name) for name in ("call", "window", "tokens")}),
    "recalled": lambda value: Recalled(
        call=whole(value, "call"), key=_key(value), tokens=whole(value, "tokens"), by=text(value, "by")
    ),
}
