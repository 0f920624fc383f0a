"""opencode sessions: `opencode export` as JSON, and the folders under `storage/` of versions before SQLite.

A message is an `info` and its `parts`. One message of the assistant may hold several steps, each a request to the model
that `step-finish` closes with its tokens and cost; later versions write a message a step. A message with `summary` is
the answer to a compaction and no turn. Results that opencode clears later (`time.compacted`) are still recorded whole.
Source: `packages/opencode/src/session/message-v2.ts`, `storage/storage.ts` and `cli/cmd/export.ts` of sst/opencode, now
anomalyco/opencode.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, peek_value, read_json_value
from elision.formats.openhands_events import read_member
from elision.formats.recorded_fields import PromptTokens, parse_timestamp
from elision.formats.source import derive_run_name
from elision.providers.shared.json_reading import (
    Json,
    cost_in,
    count_in,
    dump_arguments,
    join_contents,
    join_lines,
    list_in,
    make_opaque,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.turn import Action, Content, Text, make_content
from elision.trajectory.usage import Usage

_MESSAGE = re.compile(r"(?:session/)?message/(ses_[^/]+)/(msg_[^/]+)\.json")
_PART = re.compile(r"(?:session/)?part/(?:ses_[^/]+/)?(msg_[^/]+)/(prt_[^/]+)\.json")
_SESSION = re.compile(r"session/[^/]+/(ses_[^/]+)\.json")
#: Files of the user that opencode itself turns into text parts beside them.
_SENT_AS_TEXT = frozenset(("text/plain", "application/x-directory"))
#: What opencode sends for a call that never ended.
_INTERRUPTED = "[Tool execution was interrupted]"
#: Messages that are looked at to recognise an export: the first ones may be broken.
_PEEK_MESSAGES = 10


class OpenCodeReader:
    """One run a session; a session that a task of another one started names it as its parent."""

    name: ClassVar[str] = "opencode"

    def sniff(self, document: Document) -> bool:
        if document.members:
            return any(_MESSAGE.fullmatch(name) for name in document.members)
        return any(map(_is_message, _list_messages(peek_value(document, '"parts"', '"info"'))[:_PEEK_MESSAGES]))

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        """Yield every session, the oldest first."""
        problems = Assembler(document.path)
        if document.members:
            sessions = _read_storage(problems, document)
        else:
            value = read_json_value(document)
            info = mapping_in(mapping_in(value).get("info"))
            id = text_in(info.get("id")) or derive_run_name(document.path)
            sessions = [_StoredSession(id, info, _list_messages(value))]
        yield from problems.problems
        for session in sessions:
            yield from _read_session(document.path, session, self.name)


@dataclass(slots=True)
class _StoredSession:
    """A session's own record and its messages, in the order in which they began."""

    id: str
    info: Json = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)


def _list_messages(value: Any) -> list[Any]:
    """Return the messages of an export, or of a list of them as the server returns it."""
    return value if isinstance(value, list) else list_in(mapping_in(value).get("messages"))


def _is_message(value: Any) -> bool:
    held = mapping_in(value)
    return text_in(mapping_in(held.get("info")).get("role")) in ("user", "assistant") and "parts" in held


def _read_storage(problems: Assembler, document: Document) -> list[_StoredSession]:
    """Read the sessions of a storage folder. Ids ascend with time; a part is in the folder of its message."""
    parts: dict[str, list[Any]] = {}
    for name in sorted(document.members):
        if (found := _PART.fullmatch(name)) and (part := read_member(problems, document, name)) is not None:
            parts.setdefault(found[1], []).append(part)
    sessions: dict[str, _StoredSession] = {}
    for name in sorted(document.members):
        if (found := _MESSAGE.fullmatch(name)) and (info := read_member(problems, document, name)) is not None:
            session = sessions.setdefault(found[1], _StoredSession(found[1]))
            session.messages.append({"info": info, "parts": parts.get(found[2], [])})
    for name in document.members:
        if (found := _SESSION.fullmatch(name)) and found[1] in sessions:
            sessions[found[1]].info = mapping_in(read_member(problems, document, name))
    return list(sessions.values())


def _read_session(file: str, session: _StoredSession, format: str) -> Iterator[RunOrProblem]:
    run = _SessionRun(Assembler(file, observations="tools"), _detect_counting(session.messages))
    run.add_head(session.messages)
    for number, message in enumerate(session.messages, start=1):
        if _is_message(message):
            run.take_message(mapping_in(message["info"]), mappings_in(message["parts"]), number)
        else:
            run.assembler.report_problem("no message of user or assistant; left out", number)
    trajectory = run.assembler.finish(session.id, format=format, parent=text_in(session.info.get("parentID")) or None)
    yield from yield_run(run.assembler, trajectory, missing=f"{session.id}: no assistant message in it")


@dataclass(slots=True)
class _SessionRun:
    """Gives the messages of a session to the assembler."""

    assembler: Assembler
    counted: PromptTokens

    def add_head(self, messages: Iterable[Any]) -> None:
        """Add the system prompt, which old versions keep with each message of the assistant."""
        for message in messages:
            prompt = mapping_in(mapping_in(message).get("info")).get("system")
            if isinstance(prompt, list) and prompt:
                self.assembler.add_system(make_content("\n".join(map(text_in, prompt))))
                return

    def take_message(self, info: Json, parts: Sequence[Json], number: int) -> None:
        if info.get("role") == "user":
            self.assembler.add_user(join_contents(map(_read_user_content, parts)))
        elif info.get("summary") is True:
            self._add_summary(info, parts)
        elif not info.get("error") or any(part.get("type") in ("text", "tool") for part in parts):
            # A message that failed or was aborted is sent again only if it said something.
            self._add_assistant(info, parts, number)

    def _add_summary(self, info: Json, parts: Sequence[Json]) -> None:
        finished = _list_finish_parts(parts)
        usage = self._read_usage(finished[0] if finished else info)
        summary = join_lines(_list_texts(parts, "text"))
        before = usage.prompt if usage else None
        self.assembler.add_compaction(tokens_before=before, summary=summary, usage=usage)

    def _add_assistant(self, info: Json, parts: Sequence[Json], number: int) -> None:
        """Add a turn for each step.

        The first request started when the message began, a later one when the results before it were complete.
        """
        at = parse_timestamp(mapping_in(info.get("time")).get("created"))
        steps = _split_steps(parts)
        for step in steps:
            finished = _list_finish_parts(step)
            holders = finished[:1] or [info] * (len(steps) == 1)
            usage = self._read_usage(holders[0]) if holders else None
            tools = [part for part in step if part.get("type") == "tool"]
            said = join_contents(make_content(text) for text in _list_texts(step, "text"))
            reasoning = join_lines(_list_texts(step, "reasoning"))
            if not (said or reasoning or tools or usage):
                continue
            self.assembler.add_assistant(
                said,
                reasoning=reasoning,
                actions=map(_read_call, tools),
                usage=usage,
                at=at,
                model=text_in(info.get("modelID")),
                line=number,
            )
            for part in tools:
                shown, error = _read_result(mapping_in(part.get("state")))
                call = text_in(part.get("callID"))
                tool = text_in(part.get("tool"))
                self.assembler.add_result(call, shown or (Text(""),), tool=tool, error=error, line=number)
            ends = [parse_timestamp(mapping_in(mapping_in(part.get("state")).get("time")).get("end")) for part in tools]
            at = max(filter(None, (at, *ends)), default=None)

    def _read_usage(self, holder: Json) -> Usage | None:
        tokens = _RecordedTokens.from_holder(holder)
        return self.counted.parse_usage(tokens.litellm_counts, usd=tokens.usd)


def _split_steps(parts: Sequence[Json]) -> list[list[Json]]:
    """Return the parts of each request; a message without steps is one."""
    steps: list[list[Json]] = [[]]
    for part in parts:
        if part.get("type") == "step-start" and steps[-1]:
            steps.append([])
        elif part.get("type") != "step-start":
            steps[-1].append(part)
    return [step for step in steps if step] or [[]]


def _list_finish_parts(parts: Sequence[Json]) -> list[Json]:
    return [part for part in parts if part.get("type") == "step-finish"]


@dataclass(frozen=True, slots=True)
class _RecordedTokens:
    """What a step or a message was billed, as recorded."""

    input: int
    output: int
    reasoning: int
    read: int
    write: int
    total: int
    usd: float | None

    @classmethod
    def from_holder(cls, holder: Json) -> _RecordedTokens:
        tokens = mapping_in(holder.get("tokens"))
        cache = mapping_in(tokens.get("cache"))
        return cls(
            input=count_in(tokens.get("input")),
            output=count_in(tokens.get("output")),
            reasoning=count_in(tokens.get("reasoning")),
            read=count_in(cache.get("read")),
            write=count_in(cache.get("write")),
            total=count_in(tokens.get("total")),
            usd=cost_in(holder.get("cost")),
        )

    @property
    def litellm_counts(self) -> Json:
        """Return the counts as `PromptTokens` reads them."""
        # Versions differ in whether the output holds the reasoning; a part cannot be larger than its whole.
        sums = {self.input + self.output + cached for cached in (0, self.read + self.write)}
        if self.total not in sums | {0}:
            apart = self.total - self.reasoning in sums
        else:
            apart = self.reasoning > self.output
        return {
            "prompt_tokens": self.input,
            "completion_tokens": self.output + (self.reasoning if apart else 0),
            "cache_read_input_tokens": self.read,
            "cache_creation_input_tokens": self.write,
        }

    @property
    def excludes_cache(self) -> bool:
        """Return whether the total shows that the input does not include what the cache served."""
        cached = self.read + self.write
        return bool(cached) and self.total in (
            self.input + self.output + cached,
            self.input + self.output + self.reasoning + cached,
        )


def _detect_counting(messages: Iterable[Any]) -> PromptTokens:
    """What the input of a session's requests includes: versions and providers differ in that too."""
    holders: list[Json] = []
    for message in map(mapping_in, messages):
        holders += _list_finish_parts(mappings_in(message.get("parts")))
        holders.append(mapping_in(message.get("info")))
    tokens = [_RecordedTokens.from_holder(holder) for holder in holders]
    if any(each.excludes_cache for each in tokens):
        return PromptTokens(includes_reads=False, includes_writes=False)
    return PromptTokens.detect(each.litellm_counts for each in tokens)


def _read_user_content(part: Json) -> Content:
    """What a part of a user's message says to the model."""
    kind = part.get("type")
    if kind == "text" and part.get("ignored") is not True:
        return make_content(text_in(part.get("text")))
    if kind == "file" and text_in(part.get("mime")) not in _SENT_AS_TEXT:
        return (_keep_media(part),)
    return ()


def _list_texts(parts: Sequence[Json], kind: str) -> list[str]:
    """Return the texts of the parts of one type."""
    return [text_in(part.get("text")) for part in parts if part.get("type") == kind]


def _keep_media(part: Json) -> Any:
    return make_opaque("image" if text_in(part.get("mime")).startswith("image/") else "file", part)


def _read_call(part: Json) -> Action:
    state = mapping_in(part.get("state"))
    return Action(
        id=text_in(part.get("callID")), name=text_in(part.get("tool")), arguments=dump_arguments(state.get("input"))
    )


def _read_result(state: Json) -> tuple[Content, bool]:
    """What opencode sends of a call's outcome, and whether it failed."""
    status = state.get("status")
    if status == "completed":
        attached = tuple(_keep_media(part) for part in mappings_in(state.get("attachments")))
        return parse_content(state.get("output")) + attached, False
    if status == "error":
        metadata = mapping_in(state.get("metadata"))
        partial = text_in(metadata.get("output")) if metadata.get("interrupted") is True else ""
        return make_content(partial or text_in(state.get("error"))), True
    return make_content(_INTERRUPTED), True
