"""From a view to the request: the client's messages with placeholders, breakpoints, and what bound thinking needs.

OpenAI's own cache breakpoints are the field `prompt_cache_breakpoint` of a part of a message (models from 5.6 on). A
request writes the prefix up to its newest message by itself. It looks for earlier ones at its breakpoints, and at the
ends of its 20 newest messages (guide of 2026-09-23). So after a rewrite further in front, what is left is found only at
a breakpoint.
Breakpoints stand on text, images and files that the client sends, never on what the model said, and not on
`instructions`. Up to three are written beside the newest message. A text is the same prompt as a list of one text part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elision.engine import Log
from elision.manager.advanced_options import CacheControl
from elision.manager.history import History
from elision.providers.anthropic import breakpoints, server_clearing
from elision.providers.anthropic.bound_thinking import DROP_BETA, ThinkingPolicy, ask_to_drop_thinking
from elision.providers.anthropic.breakpoints import find_breakpoints
from elision.providers.live.client_messages import LiveDialect, convert_to_json, remove_tags
from elision.providers.live.live_renderer import Entry, get_entry_json, resolve_entries
from elision.providers.shared.capabilities import Capabilities
from elision.providers.shared.json_reading import Json, mapping_in, mappings_in, text_in
from elision.trajectory.plan import Key, LivePrefix
from elision.trajectory.view import View

FIELD: Final = "prompt_cache_breakpoint"
BREAKPOINT: Final[Mapping[str, str]] = {"mode": "explicit"}

#: Responses: the items beside messages whose output may be a list of parts.
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
#: The parts that may bear a breakpoint, for each role or type of item.
_CHAT_PARTS: Final = ("text", "image_url", "input_audio", "file")
_RESPONSES_PARTS: Final = ("input_text", "input_image", "input_file")


def sets_own_breakpoints(messages: Iterable[Json], options: object) -> bool:
    """Return whether a client chooses the breakpoints itself. options: its `prompt_cache_options`."""
    if mapping_in(options).get("mode") == "explicit":
        return True
    contents = (message.get(name) for message in messages for name in ("content", "output"))
    return any(part.get(FIELD) for content in contents for part in mappings_in(content))


def add_breakpoint(message: Json, *, responses: bool) -> dict[str, Any] | None:
    """Return `message` with a breakpoint at its end; None where it can bear none.

    responses: whether it is an item of the Responses API.
    """
    field = "output" if responses and message.get("type") in _OUTPUTS else "content"
    if field == "content" and not _is_client_message(message, responses=responses):
        return None
    content = message.get(field)
    if isinstance(content, str):
        content = [{"type": "input_text" if responses else "text", "text": content}]
    parts = mappings_in(content)
    if not parts or content != parts or not _can_bear(parts[-1], _RESPONSES_PARTS if responses else _CHAT_PARTS):
        return None
    return {**message, field: [*parts[:-1], {**parts[-1], FIELD: dict(BREAKPOINT)}]}


def _is_client_message(message: Json, *, responses: bool) -> bool:
    if responses and text_in(message.get("type")) not in ("", "message"):
        return False
    return message.get("role") in ("system", "developer", "user", *(() if responses else ("tool",)))


def _can_bear(part: Json, kinds: Iterable[str]) -> bool:
    kind = text_in(part.get("type"))
    return kind in kinds and (not kind.endswith("text") or bool(text_in(part.get("text")).strip()))


#: First and newest messages of a request that are searched for cache breakpoints of the client. The newest are twice as
#: many as the blocks that a breakpoint looks back.
FIRST_MESSAGES: Final = 3
NEWEST_MESSAGES: Final = 2 * breakpoints.LOOK_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """The parts of a request to send.

    origins: for each of `messages` the index of the given message that it stands for; None where it is Elision's own.
    notes:   what could not be done as decided, and why. added_tools: those of `tools` that Elision added.
    defers_tools: whether `tools` are others than the client's, apart from those that were added.
    """

    messages: list[Any]
    origins: list[int | None]
    system: Any
    tools: Any
    extra: Mapping[str, Any] = field(default_factory=dict)
    betas: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    added_tools: tuple[dict[str, Any], ...] = ()
    defers_tools: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRequest:
    """The parts of a request as the client gave them.

    end: messages[:end] are the history. The rest is the beginning of an answer, or calls not yet run.
    left_out: places of `messages` that the client no longer sends, since it trims its own history; they are there so
              that the history is the one that is known.
    body_fields: other fields of the body that concern the context (`thinking`, `context_management`, `cache_control`).
    """

    messages: Sequence[Any]
    end: int
    system: Any = None
    tools: Any = None
    body_fields: Mapping[str, Any] = field(default_factory=dict)
    left_out: range = range(0)

    def find_origin(self, place: int) -> int:
        """Return the index that the message at `place` had when the client gave it."""
        return place if place < self.left_out.stop else place - len(self.left_out)

    def drop_left_out(self, messages: Sequence[Any]) -> list[Any]:
        """Return `messages`, the history or its beginning, without those that the client left out."""
        return [*messages[: self.left_out.start], *messages[self.left_out.stop :]]

    @property
    def first_messages(self) -> Sequence[Any]:
        """The first messages, where clients set cache breakpoints."""
        if self.left_out:
            return self.messages[: min(FIRST_MESSAGES, self.left_out.start)]
        return self.messages[:FIRST_MESSAGES]

    @property
    def has_own_edits(self) -> bool:
        """Whether the client has the provider clear tool results, or compact the history."""
        fields = {name: convert_to_json(value) for name, value in self.body_fields.items()}
        return server_clearing.has_own_edits(fields)

    @property
    def tail(self) -> list[Any]:
        """The messages after the history, which are sent unchanged but for tags."""
        return remove_tags(self.messages[self.end :])


def build_request(
    incoming: IncomingRequest,
    history: History,
    log: Log,
    view: View,
    thinking: ThinkingPolicy,
    model: Capabilities,
    *,
    mark: bool,
) -> OutgoingRequest:
    """Return the request of `view`.

    thinking: how bound thinking is treated. mark: whether to set breakpoints.
    """
    if thinking == "native":
        return _build_native_request(incoming, history, log)
    entries = history.splice.render_entries(view)
    messages = resolve_entries(entries, history.list_own(incoming.messages, entries))
    origins = history.splice.list_origins()
    if incoming.left_out:
        origins = [None if place is None else incoming.find_origin(place) for place in origins]
    if incoming.end < len(incoming.messages):
        messages += incoming.tail
        origins += map(incoming.find_origin, range(incoming.end, len(incoming.messages)))
    if mark and history.dialect.takes_breakpoints:
        newest = log.newest_call
        # What the client asks for is read from its own breakpoints.
        ours = newest is not None and newest.terms.no_cache_marks and newest.terms.hour_turn is not None
        kept = _collect_kept_json(entries, history)
        messages = _add_breakpoints(messages, kept, incoming, history, view, lives_an_hour=ours)
    elif mark and log.state.is_edited and takes_prompt_breakpoints(model, history.dialect):
        _add_prompt_breakpoints(messages, history, view)
    sent = OutgoingRequest(messages=messages, origins=origins, system=incoming.system, tools=incoming.tools)
    if thinking == "drop_block" and (len(log.state.edits) > log.state.edit_counts["fold"] or log.state.covered_turns):
        return _request_thinking_drop(sent, incoming, model)
    return sent


def takes_prompt_breakpoints(model: Capabilities, dialect: LiveDialect) -> bool:
    """Return whether a request to `model` may have OpenAI's breakpoints."""
    return model.mark_field == FIELD and dialect.name in ("openai", "openai-responses")


def sets_own_prompt_breakpoints(incoming: IncomingRequest) -> bool:
    """Return whether the client sets OpenAI's breakpoints itself. Only its first and newest messages are read."""
    newest = incoming.messages[max(FIRST_MESSAGES, len(incoming.messages) - NEWEST_MESSAGES) :]
    read = map(convert_to_json, (*incoming.first_messages, *newest))
    options = convert_to_json(incoming.body_fields.get("prompt_cache_options"))
    return sets_own_breakpoints(map(mapping_in, read), options)


def needs_breakpoints(who: CacheControl, log: Log) -> bool:
    """Return whether Elision sets cache breakpoints in the next request."""
    return who == "auto" or (who == "gaps" and log.state.is_edited)


@dataclass(frozen=True, slots=True)
class ClientBreakpoints:
    """The cache breakpoints that a client sets itself (Anthropic).

    has_any: whether it sets one.
    hour_messages: number of leading messages whose entries live an hour; 0 where only the system prompt and the tools
    have such entries, None where nothing has.
    """

    has_any: bool
    hour_messages: int | None


def find_client_breakpoints(incoming: IncomingRequest) -> ClientBreakpoints:
    """Return the cache breakpoints of the client.

    Clients set them in the first messages and in the newest ones, so only those are read.
    """
    messages = incoming.messages
    first = max(FIRST_MESSAGES, len(messages) - NEWEST_MESSAGES)
    front = {
        "messages": list(map(convert_to_json, incoming.first_messages)),
        "system": convert_to_json(incoming.system),
        "tools": convert_to_json(incoming.tools),
    }
    found = find_breakpoints(front)
    marks = [(mark.place[0], mark.ttl) for mark in found]
    newest = find_breakpoints({"messages": list(map(convert_to_json, messages[first:]))})
    marks += [(first + mark.place[0], mark.ttl) for mark in newest]
    automatic = convert_to_json(incoming.body_fields.get("cache_control"))
    if isinstance(automatic, Mapping):
        marks.append((len(messages) - 1, str(automatic.get("ttl"))))
    hours = [place + 1 for place, ttl in marks if ttl == "1h"]
    hour_messages = max(hours, default=None)
    return ClientBreakpoints(has_any=bool(automatic or marks), hour_messages=hour_messages)


def _add_breakpoints(
    messages: list[Any],
    read: list[Any],
    incoming: IncomingRequest,
    history: History,
    view: View,
    *,
    lives_an_hour: bool = False,
) -> list[Any]:
    """Return `messages` with cache breakpoints where the stable prefix ends, within the four that a request may have.

    read: the same messages, without the trailing ones of the assistant, as `choose_breakpoints` takes them.
    lives_an_hour: whether their cache entries shall.
    """
    request = {
        "messages": [*read, *map(convert_to_json, incoming.tail)],
        "system": convert_to_json(incoming.system),
        "tools": convert_to_json(incoming.tools) if incoming.tools else [],
        "cache_control": convert_to_json(incoming.body_fields.get("cache_control")),
    }
    # The last one first: without it the next call reads nothing of the newest messages from the cache.
    wanted = []
    for mark in reversed(view.marks):
        block = history.splice.find_last_block(mark)
        if block is not None:
            wanted.append(block)
    places = breakpoints.choose_breakpoints(request, wanted, lives_an_hour=lives_an_hour)
    marked = breakpoints.add_breakpoints(request, places)["messages"]
    result = list(messages)
    for place in places:
        result[place.message] = marked[place.message]
    return result


def _add_prompt_breakpoints(messages: list[Any], history: History, view: View) -> None:
    """Set OpenAI's breakpoints in `messages`: after the head, and where a rewrite ends or a later one may begin.

    The newest message needs none: the provider puts one there.
    """
    for end in {view.find_message_end(mark) for mark in view.marks} - {view.length}:
        block = history.splice.find_last_block(end)
        if block is not None:
            message = mapping_in(convert_to_json(messages[block[0]]))
            marked = add_breakpoint(message, responses=history.dialect.name == "openai-responses")
            if marked is not None:
                messages[block[0]] = marked


def _collect_kept_json(entries: Sequence[Entry], history: History) -> list[Any]:
    """Return the messages as JSON; those of which only the bytes are kept, which bear no marks, as they are."""
    read: list[Any] = []
    for entry in entries:
        if isinstance(entry, int):
            message = history.messages[entry].sent
            read.append(message.kept_json or message)
        else:
            read.append(entry)
    return read


def _request_thinking_drop(sent: OutgoingRequest, incoming: IncomingRequest, model: Capabilities) -> OutgoingRequest:
    """Return `sent` with the request to drop thinking that our edits made invalid. The client's own settings stay."""
    found = ask_to_drop_thinking({"thinking": convert_to_json(incoming.body_fields.get("thinking"))}, model)
    if found is None:
        return replace(sent, notes=("thinking is off: nothing is bound, and nothing needs to be dropped",))
    return replace(sent, extra={"thinking": found["thinking"]}, betas=(DROP_BETA,))


def build_unchanged_request(incoming: IncomingRequest, history: History) -> OutgoingRequest:
    """Return the client's own request, without tags."""
    kept = incoming.drop_left_out(history.list_own(incoming.messages[: incoming.end], range(incoming.end)))
    messages = [*kept, *incoming.tail]
    return make_unchanged_request(incoming, messages)


def make_unchanged_request(incoming: IncomingRequest, messages: list[Any]) -> OutgoingRequest:
    """Return a request of `messages`, each of which stands for the given one at its place."""
    return OutgoingRequest(
        messages=messages, origins=list(range(len(messages))), system=incoming.system, tools=incoming.tools
    )


def _build_native_request(incoming: IncomingRequest, history: History, log: Log) -> OutgoingRequest:
    """Return the messages as they were first sent, with the order to clear the longest run of the oldest results that
    are hidden."""
    sent = build_unchanged_request(incoming, history)
    fixed = {key: edit.text for key, edit in log.state.fixed.items()}
    for place, message in history.splice.replace_results(fixed).items():
        sent.messages[incoming.find_origin(place)] = message
    kept = set(log.policy.candidates.protected)
    keys = server_clearing.list_tool_uses(log.state.turns[log.state.dropped_turns :])
    uses = [key not in kept and _is_cleared(log, key) for key in keys]
    cleared = server_clearing.count_uses_to_clear(uses)
    cleared = server_clearing.keep_references(cleared, keys, log.state.list_fixed_folds())
    held = uses[cleared:].count(True)
    if held:
        note = f"{held} of {uses.count(True)} hidden results are sent all the same: what the provider clears is a run"
        sent = replace(sent, notes=(f"{note} of the oldest, and one that stays precedes them",))
    edit = server_clearing.build_clearing_edit(uses=len(uses), cleared=cleared)
    if edit is None:
        return sent
    found = server_clearing.add_clearing_edit(
        {"context_management": convert_to_json(incoming.body_fields.get("context_management"))}, edit
    )
    if found is None:
        return replace(sent, notes=("the client has the server clear tool uses itself: nothing is added",))
    notes = (*sent.notes, "the provider clears results itself: its placeholders have no gist and no handle")
    return replace(
        sent,
        extra={"context_management": found["context_management"]},
        betas=(server_clearing.CLEARING_BETA,),
        notes=notes,
    )


def _is_cleared(log: Log, key: Key | None) -> bool | None:
    """Return whether a tool use is decided to be hidden; None where only its result is too short for that."""
    if key is None:
        return False
    if key[0] <= log.state.covered_turns:
        return True
    if log.state.find_hiding_text(key) is not None:
        # What is cut to fit is sent so, until it is masked.
        return key not in log.state.fixed or log.state.find_segment(key).kind != "clipped"
    if key in log.policy.candidates.not_shortened:
        return None
    return False


def build_live_prefix(incoming: IncomingRequest, history: History, view: View, model: str, *, mark: bool) -> LivePrefix:
    """Return the messages as sent if nothing more were hidden, which a summary request may extend.

    mark: whether to set breakpoints, so that the prefix is read from the cache of the call before.
    """
    read: list[Json] = [get_entry_json(entry, history.messages) for entry in history.splice.render_entries(view)]
    if mark and history.dialect.takes_breakpoints:
        read = _add_breakpoints(list(read), read, replace(incoming, messages=(), end=0), history, view)
    return LivePrefix(
        dialect=history.dialect.name,
        messages=tuple(read),
        system=convert_to_json(incoming.system),
        tools=tuple(convert_to_json(incoming.tools) or ()),
        model=model,
    )
