"""Gemini CLI: recorded chats (`~/.gemini/tmp/<project>/chats/session-*.json` and `.jsonl`) and saved conversations.

A recorded chat is one JSON object, or since 2026 JSON lines: a header, messages, and changes. A message that is written
again under its id takes the place of the first. `$set` with `messages` is the history after the CLI masked results in
it or compressed it; `$rewindTo` takes back a message and all after it. As everywhere, the run is what was said before
it was masked or compressed. Saved conversations (`/chat save`, checkpoints of tools) hold the contents of the Gemini
API. Source: `packages/core/src/services/chatRecordingService.ts`, `chatRecordingTypes.ts` of google-gemini/gemini-cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import (
    Document,
    JsonLine,
    RunOrProblem,
    peek_objects,
    peek_value,
    read_json_lines,
    read_json_value,
)
from elision.formats.recorded_fields import parse_timestamp, read_call
from elision.formats.source import derive_run_name
from elision.providers.shared.json_reading import (
    Json,
    count_in,
    dump_json,
    join_contents,
    join_lines,
    list_in,
    make_opaque,
    mapping_in,
    mappings_in,
    text_in,
)
from elision.trajectory.trajectory import Problem
from elision.trajectory.turn import Action, Content, Text, make_content
from elision.trajectory.usage import Usage

#: Where a saved conversation keeps the contents of the API, the first that is there.
_CONTENTS = ("clientHistory", "history")
#: What the CLI itself said in the model's name, after the first message: no model was called.
_GREETING = "Got it. Thanks for the context!"
#: States of a call that has ended, and whether that was a failure.
_END_STATES = {"success": False, "error": True, "cancelled": True}


class GeminiCliReader:
    """One run a file."""

    name: ClassVar[str] = "gemini-cli"

    def sniff(self, document: Document) -> bool:
        if b'"projectHash"' in document.data:
            values = [*peek_objects(document), mapping_in(peek_value(document, '"messages"'))]
            return any(text_in(value.get("sessionId")) and "projectHash" in value for value in values)
        return b'"parts"' in document.data and bool(_find_contents(peek_value(document, '"role"')))

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        assembler = Assembler(document.path, observations="tools")
        if b'"projectHash"' not in document.data:
            _feed_contents(assembler, _find_contents(read_json_value(document)))
            yield from yield_run(assembler, assembler.finish(derive_run_name(document.path), format=self.name))
            return
        chat = _RecordedChat(document.path)
        for item in _read_records(document):
            if isinstance(item, Problem):
                yield item
            else:
                chat.take_record(item)
        yield from chat.problems
        _feed_chat(assembler, chat)
        id = text_in(chat.header.get("sessionId")) or derive_run_name(document.path)
        # A sub-agent's chat is in a folder named after the session that started it.
        folders = document.path.replace("!", "/").split("/")
        parent = folders[-2] if chat.header.get("kind") == "subagent" and len(folders) > 1 else None
        yield from yield_run(assembler, assembler.finish(id, format=self.name, parent=parent))


def _read_records(document: Document) -> Iterator[JsonLine | Problem]:
    """Yield the records of a chat: lines, or the one object of older versions."""
    value = peek_value(document, '"messages"')
    if not isinstance(value, dict) or "$set" in value:
        yield from read_json_lines(document)
        return
    yield JsonLine(1, {name: held for name, held in value.items() if name != "messages"})
    for number, message in enumerate(list_in(value["messages"]), start=1):
        if isinstance(message, dict):
            yield JsonLine(number, {"id": f"message {number}", **message})
        else:
            yield Problem(file=document.path, line=number, reason="no message; left out")


# -- a recorded chat --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _RecordedChat:
    """Every message of a chat as it was said, in order; and the summaries that took the place of some.

    messages: by id; a later record of a message adds to the first, but no result is replaced by a masked one.
    summaries: by the id of the message after which the history was compressed.
    _live: ids of what is sent: messages of user and model that were neither taken back nor compressed away.
    """

    path: str
    header: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, JsonLine] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _live: set[str] = field(default_factory=set)

    def take_record(self, line: JsonLine) -> None:
        """Take the next record. Its fields show what it is, as for the CLI itself."""
        value = line.value
        changes = mapping_in(value.get("$set"))
        if back_to := text_in(value.get("$rewindTo")):
            self._rewind_to(back_to, line)
        elif text_in(value.get("id")):
            self._add_message(line)
        elif isinstance(changes.get("messages"), list):
            self._replace_history([JsonLine(line.number, message) for message in mappings_in(changes["messages"])])
        elif not changes:
            self.header.update(value)

    def _add_message(self, line: JsonLine) -> None:
        id = text_in(line.value["id"])
        known = self.messages.get(id)
        if known is None:
            self.messages[id] = line
        else:
            self.messages[id] = JsonLine(known.number, _merge_records(known.value, line.value))
        if line.value.get("type") == "user" or _is_from_model(line.value):
            self._live.add(id)

    def _rewind_to(self, id: str, line: JsonLine) -> None:
        ids = list(self.messages)
        gone = ids[ids.index(id) :] if id in ids else ids
        said = sum(_is_from_model(self.messages[each].value) for each in gone)
        for each in gone:
            del self.messages[each]
            self._live.discard(each)
        if said:
            reason = f"the user went back here; {said} messages of the model are left out"
            self.problems.append(Problem(file=self.path, line=line.number, reason=reason))

    def _replace_history(self, history: list[JsonLine]) -> None:
        """Replace the history that is sent: if it was compressed, some messages go, and a summary comes."""
        ids = [text_in(line.value.get("id")) for line in history]
        fresh = [line for line, id in zip(history, ids, strict=True) if id not in self._live]
        if self._live - set(ids) and self.messages:
            summary = "\n".join(text for line in fresh if (text := _join_texts(line.value.get("content"))))
            self.summaries[next(reversed(self.messages))] = summary
            self._live = set(ids)
            return
        for line, id in zip(history, ids, strict=True):
            if id and id not in self.messages:
                self._add_message(line)


def _is_from_model(message: Json) -> bool:
    """Return whether the model says a message; forks of the CLI use their own type."""
    return message.get("type") == "gemini" or any(name in message for name in ("toolCalls", "thoughts", "tokens"))


def _merge_records(earlier: Json, later: Json) -> Json:
    """Merge a message that was written again. A call's first result stays: a later one may be masked."""
    calls = {text_in(call.get("id")): call for call in mappings_in(earlier.get("toolCalls"))}
    for call in mappings_in(later.get("toolCalls")):
        known = calls.get(text_in(call.get("id")), {})
        merged_call = {**known, **call}
        if known.get("result"):
            merged_call["result"] = known["result"]
        calls[text_in(call.get("id"))] = merged_call
    merged = {**earlier, **{name: value for name, value in later.items() if value not in (None, "", [])}}
    if earlier.get("content"):
        merged["content"] = earlier["content"]
    if calls:
        merged["toolCalls"] = list(calls.values())
    return merged


def _feed_chat(assembler: Assembler, chat: _RecordedChat) -> None:
    """Feed the messages in order. A request started when its newest input was complete: a message, or results."""
    clock: float | None = None
    answered: set[str] = set()
    for id, line in chat.messages.items():
        message = line.value
        parts = _list_parts(line.value.get("content"))
        if _is_from_model(message):
            _add_model_message(assembler, line, parts, clock)
        elif message.get("type") == "user":
            assembler.add_user(_read_content(parts))
        for call, shown, error in [*_read_recorded_results(message), *_read_results(parts)]:
            if call not in answered:
                assembler.add_result(call, shown, error=error, line=line.number)
                answered.add(call)
        ends = [parse_timestamp(call.get("timestamp")) for call in mappings_in(message.get("toolCalls"))]
        clock = max(filter(None, (clock, parse_timestamp(message.get("timestamp")), *ends)), default=None)
        if id in chat.summaries:
            assembler.add_compaction(summary=chat.summaries[id])


def _add_model_message(assembler: Assembler, line: JsonLine, parts: Sequence[Json], clock: float | None) -> None:
    message = line.value
    calls: dict[str, Action] = {}
    for call in mappings_in(message.get("toolCalls")):
        action = read_call(call, arguments="args")
        calls[action.id] = action
    for part in parts:
        if call := mapping_in(part.get("functionCall")):
            action = read_call(call, arguments="args")
            calls.setdefault(action.id, action)
    thoughts = [
        ": ".join(filter(None, (text_in(thought.get("subject")), text_in(thought.get("description")))))
        for thought in mappings_in(message.get("thoughts"))
    ]
    said = _read_content(parts)
    usage = _read_usage(message.get("tokens"))
    if not (said or calls or any(thoughts) or usage):
        return  # begun and given up: nothing was answered
    assembler.add_assistant(
        said,
        reasoning=join_lines((*thoughts, *_list_thoughts(parts))),
        actions=calls.values(),
        usage=usage,
        at=parse_timestamp(message.get("timestamp")) if clock is None else clock,
        model=text_in(message.get("model")),
        line=line.number,
    )


def _read_recorded_results(message: Json) -> Iterator[tuple[str, Content, bool | None]]:
    """Yield (call, what was shown, whether it failed) of each recorded call that has ended."""
    for call in mappings_in(message.get("toolCalls")):
        status = text_in(call.get("status"))
        parts = _list_parts(call.get("result"))
        if parts or status in _END_STATES:
            shown = join_contents(result for _, result, _ in _read_results(parts)) + _read_content(parts)
            yield text_in(call.get("id")), shown or (Text(""),), _END_STATES.get(status)


def _read_usage(value: object) -> Usage | None:
    """Read the counts of a response; `input` includes cache reads, but not what the provider's tools added."""
    tokens = mapping_in(value)
    names = ("input", "tool", "cached", "output", "thoughts")
    prompt, tools, cached, output, thoughts = (count_in(tokens.get(name)) for name in names)
    if not prompt and not output:
        return None
    return Usage.from_inclusive(prompt=prompt + tools, cache_read=cached, output=output + thoughts)


# -- parts of the Gemini API ------------------------------------------------------------------------------------------


def _find_contents(value: Any) -> Sequence[Json]:
    """Return the contents that a saved conversation holds; [] if it is none."""
    held = mapping_in(value)
    listed = value
    if not isinstance(value, list):
        kept = [held[name] for name in _CONTENTS if held.get(name)]
        listed = kept[0] if kept else []
    contents = mappings_in(listed)
    roles = {text_in(each.get("role")) for each in contents if isinstance(each.get("parts"), list)}
    return contents if "model" in roles and roles <= {"user", "model"} else []


def _feed_contents(assembler: Assembler, contents: Sequence[Json]) -> None:
    waiting: list[tuple[str, str]] = []
    for number, each in enumerate(contents, start=1):
        parts = _list_parts(each.get("parts"))
        if each.get("role") == "model":
            if number == 2 and _join_texts(parts) == _GREETING:
                continue
            calls = [mapping_in(part["functionCall"]) for part in parts if "functionCall" in part]
            named = [(text_in(call.get("id")) or f"call {number}.{at}", call) for at, call in enumerate(calls, start=1)]
            waiting = [(id, text_in(call.get("name"))) for id, call in named]
            actions = [read_call({**call, "id": id}, arguments="args") for id, call in named]
            reasoning = "\n".join(_list_thoughts(parts))
            if assembler.is_unanswered:
                # Two contents of the model with nothing between them are one response.
                assembler.amend_assistant(content=_read_content(parts), reasoning=reasoning, actions=actions)
            else:
                assembler.add_assistant(_read_content(parts), reasoning=reasoning, actions=actions, line=number)
            continue
        for id, shown, error in _read_results(parts, waiting):
            assembler.add_result(id, shown, error=error, line=number)
        assembler.add_user(_read_content(parts))


def _list_parts(value: object) -> Sequence[Json]:
    """Return the parts of a PartListUnion: a text, a part, or a list of both."""
    if isinstance(value, list):
        return [part for item in value for part in _list_parts(item)]
    if isinstance(value, str) and value:
        return [{"text": value}]
    return [value] if isinstance(value, dict) and value else []


def _read_content(parts: Sequence[Json]) -> Content:
    """Return what parts say beside calls, results and thoughts. Pictures and unknown parts are kept opaque."""
    said: list[Any] = []
    for part in parts:
        if isinstance(part.get("text"), str):
            if part.get("thought") is not True:
                said += make_content(part["text"])
        elif "inlineData" in part or "fileData" in part:
            said.append(make_opaque("image", part))
        elif "functionCall" not in part and "functionResponse" not in part:
            said.append(make_opaque("unknown", part))
    return tuple(said)


def _join_texts(value: object) -> str:
    return "\n".join(part["text"] for part in _list_parts(value) if isinstance(part.get("text"), str))


def _list_thoughts(parts: Sequence[Json]) -> list[str]:
    return [part["text"] for part in parts if part.get("thought") is True and isinstance(part.get("text"), str)]


def _read_results(
    parts: Sequence[Json], waiting: list[tuple[str, str]] | None = None
) -> Iterator[tuple[str, Content, bool | None]]:
    """Yield (call, what was shown, whether it failed) of each response among `parts`.

    waiting: (id, name) of calls without answer; a response without an id answers the first of its name.
    """
    for part in parts:
        if "functionResponse" not in part:
            continue
        answer = mapping_in(part["functionResponse"])
        id = text_in(answer.get("id"))
        name = text_in(answer.get("name"))
        if waiting:
            id = _take_waiting(waiting, id, name)
        response = mapping_in(answer.get("response"))
        error = response.get("error")
        shown = error or response.get("output", response or "")
        yield id, make_content(dump_json(shown)) or (Text(""),), True if error else None


def _take_waiting(waiting: list[tuple[str, str]], id: str, name: str) -> str:
    """Remove the first call of `waiting` that fits `id` and `name`, of which "" fits any; return its id, else `id`."""
    for call in waiting:
        if id in ("", call[0]) and name in ("", call[1]):
            waiting.remove(call)
            return call[0]
    return id
