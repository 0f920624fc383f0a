"""Events as JSON objects and back: the form in which stores keep a log. `e` names the event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elision.trajectory.events import (
    Event,
    HeadSet,
    ObservationRecalled,
    PassDecided,
    RecallExchanged,
    RequestSent,
    SessionOpened,
    SummaryFailed,
    TurnAdded,
    TurnAmended,
    UsageReported,
    WindowLearned,
)
from elision.trajectory.json_form import (
    decode_head,
    decode_turn,
    decode_usage,
    drop_empty,
    drop_unknown,
    encode_head,
    encode_turn,
    encode_usage,
    read_flag,
    read_integer,
    read_mapping,
    read_mappings,
    read_number,
    read_optional,
    read_text,
)
from elision.trajectory.plan import RENDERER, Clip, Key, Mask, Summary


def encode_event(event: Event) -> dict[str, Any]:
    """`event` as a JSON object; what has its default is left out."""
    name, write = _ENCODERS[type(event)]
    return {"e": name, **write(event)}


def decode_event(value: Mapping[str, Any]) -> Event:
    """The event that `encode_event` wrote. Raises ValueError naming the field that is wrong."""
    name = read_text(value, "e")
    read = _DECODERS.get(name)
    if read is None:
        raise ValueError(f"unknown event {name[:40]!r}: written by a newer Elision?")
    return read(value)


# --- out ---------------------------------------------------------------------------------------------------------


def _encode_opened(event: SessionOpened) -> dict[str, Any]:
    return {
        "strategy": event.strategy,
        **drop_empty(dialect=event.dialect),
        "handles": event.handles,
        **drop_empty(shadow=event.shadow, tools=list(event.tools)),
        **({} if event.offer == "caller" else {"offer": event.offer}),
    }


def _encode_turn(event: TurnAdded | TurnAmended) -> dict[str, Any]:
    return {**drop_empty(node=event.node), **encode_turn(event.turn)}


def _encode_decision(event: PassDecided) -> dict[str, Any]:
    return {
        "call": event.call,
        "reason": event.reason,
        **drop_empty(
            masks=[_encode_edit(mask) for mask in event.masks], clips=[_encode_edit(clip) for clip in event.clips]
        ),
        **drop_unknown(summary=event.summary and _encode_summary(event.summary)),
        **drop_empty(offers=event.offers, held=event.held),
    }


def _encode_edit(edit: Mask | Clip) -> dict[str, Any]:
    return {"key": list(edit.key), "text": edit.text, **_encode_renderer(edit.renderer)}


def _encode_renderer(renderer: int) -> dict[str, Any]:
    if renderer == RENDERER:
        return {}
    return {"renderer": renderer}


def _encode_summary(summary: Summary) -> dict[str, Any]:
    return {
        "covers": summary.covers,
        "text": summary.text,
        "block": summary.block,
        **drop_empty(
            interjections=list(summary.interjections),
            input=summary.input_tokens,
            output=summary.output_tokens,
            cached=summary.cached_tokens,
        ),
        **drop_unknown(usd=summary.usd),
        "route": summary.route,
        **drop_empty(writer=summary.writer),
        **_encode_renderer(summary.renderer),
    }


def _encode_attempt(event: SummaryFailed) -> dict[str, Any]:
    return {
        "call": event.call,
        "cause": event.cause,
        "reason": event.reason,
        **drop_empty(input=event.input, cached=event.cached, output=event.output, retry_at=event.retry_at),
        **drop_unknown(usd=event.usd),
    }


def _encode_call(event: RequestSent) -> dict[str, Any]:
    called = {"call": event.call, **drop_unknown(at=event.at), **drop_empty(model=event.model), "tokens": event.tokens}
    if event.ours == "gaps":
        ours = {}
    else:
        ours = {"ours": event.ours}
    return {**called, **drop_empty(unmarked=event.unmarked), **ours, **drop_unknown(hour_turn=event.hour_turn)}


def _encode_answer(event: UsageReported) -> dict[str, Any]:
    return {"call": event.call, "usage": encode_usage(event.usage)}


def _encode_window(event: WindowLearned) -> dict[str, Any]:
    return {"call": event.call, "window": event.window, **drop_empty(tokens=event.tokens)}


def _encode_recall(event: ObservationRecalled) -> dict[str, Any]:
    return {"call": event.call, "key": list(event.key), "tokens": event.tokens, "by": event.by}


def _encode_exchange(event: RecallExchanged) -> dict[str, Any]:
    texts = drop_empty(messages=_encode_texts(event.messages), results=_encode_texts(event.results))
    return {"call": event.call, "node": event.node, **texts}


def _encode_texts(texts: Sequence[str]) -> list[dict[str, Any]]:
    # As parts of a message are written, so that stores keep what is large in them once.
    return [{"text": text} for text in texts]


_ENCODERS: dict[type, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    SessionOpened: ("opened", _encode_opened),
    HeadSet: ("head", lambda event: encode_head(event.head)),
    TurnAdded: ("turn", _encode_turn),
    TurnAmended: ("amended", _encode_turn),
    PassDecided: ("decided", _encode_decision),
    SummaryFailed: ("attempted", _encode_attempt),
    RequestSent: ("called", _encode_call),
    UsageReported: ("answered", _encode_answer),
    ObservationRecalled: ("recalled", _encode_recall),
    WindowLearned: ("learned", _encode_window),
    RecallExchanged: ("exchanged", _encode_exchange),
}


# --- in ----------------------------------------------------------------------------------------------------------


def _decode_key(value: Mapping[str, Any]) -> Key:
    found = value.get("key")
    if not isinstance(found, list) or len(found) != 2 or not all(type(part) is int for part in found):
        raise ValueError("`key` is no pair of whole numbers")
    return found[0], found[1]


def _decode_renderer(value: Mapping[str, Any]) -> int:
    return read_integer(value, "renderer") or RENDERER


def _decode_decision(value: Mapping[str, Any]) -> PassDecided:
    reason = read_text(value, "reason")
    return PassDecided(
        call=read_integer(value, "call"),
        reason=reason,
        masks=tuple(
            Mask(_decode_key(each), read_text(each, "text"), _decode_renderer(each))
            for each in read_mappings(value, "masks")
        ),
        clips=tuple(
            Clip(_decode_key(each), read_text(each, "text"), _decode_renderer(each))
            for each in read_mappings(value, "clips")
        ),
        summary=_decode_summary(found)
        if (found := read_optional(value, "summary", read_mapping)) is not None
        else None,
        offers=read_flag(value, "offers"),
        # Older records say it by the reason alone.
        held=read_flag(value, "held") or reason.startswith("held: "),
    )


def _decode_summary(value: Mapping[str, Any]) -> Summary:
    interjections = value.get("interjections", [])
    if not isinstance(interjections, list) or not all(type(each) is int for each in interjections):
        raise ValueError("`interjections` is no list of whole numbers")
    return Summary(
        covers=read_integer(value, "covers"),
        text=read_text(value, "text"),
        block=read_text(value, "block"),
        interjections=tuple(interjections),
        input_tokens=read_integer(value, "input"),
        output_tokens=read_integer(value, "output"),
        cached_tokens=read_integer(value, "cached"),
        usd=read_optional(value, "usd", read_number),
        route=read_text(value, "route"),
        writer=read_text(value, "writer"),
        renderer=_decode_renderer(value),
    )


def _decode_attempt(value: Mapping[str, Any]) -> SummaryFailed:
    counts = {name: read_integer(value, name) for name in ("call", "input", "cached", "output", "retry_at")}
    usd = read_optional(value, "usd", read_number)
    return SummaryFailed(cause=read_text(value, "cause"), reason=read_text(value, "reason"), usd=usd, **counts)


def _decode_call(value: Mapping[str, Any]) -> RequestSent:
    return RequestSent(
        call=read_integer(value, "call"),
        at=read_optional(value, "at", read_number),
        model=read_text(value, "model"),
        tokens=read_integer(value, "tokens"),
        unmarked=read_flag(value, "unmarked"),
        ours="always" if read_text(value, "ours") == "always" else "gaps",
        hour_turn=read_optional(value, "hour_turn", read_integer),
    )


def _decode_answer(value: Mapping[str, Any]) -> UsageReported:
    usage = decode_usage(value)
    if usage is None:
        raise ValueError("no `usage`")
    return UsageReported(call=read_integer(value, "call"), usage=usage)


def _decode_exchange(value: Mapping[str, Any]) -> RecallExchanged:
    return RecallExchanged(
        call=read_integer(value, "call"),
        node=read_text(value, "node"),
        messages=tuple(read_text(part, "text") for part in read_mappings(value, "messages")),
        results=tuple(read_text(part, "text") for part in read_mappings(value, "results")),
    )


_DECODERS: dict[str, Callable[[Mapping[str, Any]], Event]] = {
    "opened": lambda value: SessionOpened(
        strategy=read_text(value, "strategy"),
        dialect=read_text(value, "dialect"),
        handles=read_flag(value, "handles"),
        shadow=read_flag(value, "shadow"),
        offer=read_text(value, "offer") or "caller",
        tools=tuple(read_mappings(value, "tools")),
    ),
    "head": lambda value: HeadSet(decode_head(value)),
    "turn": lambda value: TurnAdded(decode_turn(value, read_integer(value, "turn")), read_text(value, "node")),
    "amended": lambda value: TurnAmended(decode_turn(value, read_integer(value, "turn")), read_text(value, "node")),
    "decided": _decode_decision,
    "attempted": _decode_attempt,
    "called": _decode_call,
    "answered": _decode_answer,
    "exchanged": _decode_exchange,
    "learned": lambda value: WindowLearned(
        **{name: read_integer(value, name) for name in ("call", "window", "tokens")}
    ),
    "recalled": lambda value: ObservationRecalled(
        call=read_integer(value, "call"),
        key=_decode_key(value),
        tokens=read_integer(value, "tokens"),
        by=read_text(value, "by"),
    ),
}
