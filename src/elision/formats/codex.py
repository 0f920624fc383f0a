"""Codex CLI rollouts (`~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`): `{timestamp, type, payload}` a line.

Sources: codex-rs/protocol (RolloutItem, ResponseItem) and public descriptions of rollouts up to CLI 0.169. What the
model read and wrote are the `response_item` lines; `event_msg` lines repeat it for the screen and are used
for token counts and rollbacks only. Reasoning, text and calls are items of their own: the items up to the next result,
user message or token count are one assistant message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec.structs import replace

from elision.formats.assembler import Assembler, yield_run
from elision.formats.branches import RecordedBranch, TreeNode, name_branch, split_branches
from elision.formats.document import Document, JsonLine, RunOrProblem, peek_objects, read_json_lines
from elision.formats.recorded_fields import parse_timestamp
from elision.providers.openai_responses import messages as openai_responses
from elision.providers.openai_responses.messages import OUTPUTS
from elision.providers.shared.json_reading import (
    Json,
    ToolResult,
    bool_in,
    count_in,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.trajectory import Problem
from elision.trajectory.turn import join_text
from elision.trajectory.usage import Usage

_TYPES = frozenset({"session_meta", "response_item", "turn_context", "event_msg", "compacted", "token_usage_record"})
#: Items that are kept for the user's sake (undo points) or mean nothing; the model is not sent them.
_UNSENT_TYPES = frozenset({"ghost_snapshot", "other"})
#: Items in which the server hands over its own summary, unreadable.
_COMPACTIONS = frozenset({"compaction", "compaction_summary", "context_compaction"})
#: User messages that Codex writes itself begin like this; they start no turn of the user's.
_CODEX_OWN_STARTS = ("<", "# AGENTS.md")
_EXIT_CODE = re.compile(
    r"\A(?:Chunk ID: .*\n)?(?:Wall time: .*\n)?(?:Exit code: |Process exited with code )(-?\d+)\s*$", re.M
)


class CodexReader:
    """One rollout; turns that were rolled back are a run of their own where they are mostly their own."""

    name: ClassVar[str] = "codex"

    def sniff(self, document: Document) -> bool:
        return any(
            text_in(value.get("type")) in _TYPES and isinstance(value.get("payload"), dict)
            for value in peek_objects(document)
        )

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        lines = []
        for item in read_json_lines(document):
            if isinstance(item, Problem):
                yield item
            elif isinstance(item.value.get("payload"), dict):
                lines.append(item)
            elif text_in(item.value.get("type")) in _TYPES:
                yield Problem(file=document.path, line=item.number, reason="a line without payload; left out")
        nodes = _build_tree(lines)
        found, _ = split_branches(nodes, newest=len(nodes) - 1 if nodes else None)
        if not found:
            yield Problem(file=document.path, line=None, reason="no assistant message in this rollout")
        for number, branch in enumerate(found):
            yield from _read_branch(document.path, lines, branch, number)


def _read_branch(file: str, lines: Sequence[JsonLine], branch: RecordedBranch, number: int) -> Iterator[RunOrProblem]:
    if number and not branch.is_mostly_own:
        reason = f"{branch.own_count} items of the assistant from here on were rolled back; left out"
        yield Problem(file=file, line=lines[branch.start].number, reason=reason)
        return
    rollout = _Rollout(Assembler(file, observations="tools"), [lines[position] for position in branch.path])
    name, parent = name_branch(rollout.session or "main", rollout.parent, number)
    yield from yield_run(rollout.assembler, rollout.assembler.finish(name, format=CodexReader.name, parent=parent))


# -- rollbacks --------------------------------------------------------------------------------------------------------


def _build_tree(lines: Sequence[JsonLine]) -> list[TreeNode]:
    """Build a list of the lines, except that what follows a rollback is a child of where it went back to."""
    nodes: list[TreeNode] = []
    starts: list[int] = []
    last: int | None = None
    for position, line in enumerate(lines):
        payload = _get_payload(line)
        if payload.get("type") == "thread_rolled_back" and starts:
            dropped = starts[-max(1, count_in(payload.get("num_turns"))) :]
            del starts[-len(dropped) :]
            last = dropped[0] - 1 if dropped[0] else None
        elif _is_item(line) and _starts_turn(payload):
            starts.append(position)
        nodes.append(TreeNode(last, is_assistant=_is_item(line) and _is_from_model(payload)))
        last = position
    return nodes


def _get_payload(line: JsonLine) -> Json:
    return mapping_in(line.value.get("payload"))


def _is_item(line: JsonLine) -> bool:
    return line.value.get("type") == "response_item"


def _is_from_model(item: Json) -> bool:
    """Return whether the model produced this item."""
    kind = text_in(item.get("type"))
    if kind == "message":
        return item.get("role") == "assistant"
    return bool(kind) and kind not in OUTPUTS | _UNSENT_TYPES | _COMPACTIONS


def _starts_turn(item: Json) -> bool:
    said = join_text(parse_content(item.get("content"))).lstrip()
    return item.get("type") == "message" and item.get("role") == "user" and not said.startswith(_CODEX_OWN_STARTS)


# -- what each call was billed ----------------------------------------------------------------------------------------


class _CallBills:
    """Where on a path each assistant message starts, and what the call that wrote it was billed.

    A token count belongs to the newest message: it comes after its items, before or after the results. Older
    versions announced it before the items were written; then the newest message has its count already, and the next
    one is meant.
    """

    def __init__(self, path: Sequence[JsonLine]) -> None:
        self.usages: dict[int, Usage | None] = {}
        self._newest: int | None = None
        #: Nothing can be added to the newest message: a result, the user, a count or a compaction came.
        self._closed = True
        #: The newest message's count was announced, and no input came since: a further count corrects it.
        self._unsure = False
        self._announced: Usage | None = None
        self._total: Json = {}
        #: Newer versions record each call on a line of its own; the events then only repeat it.
        records = any(line.value.get("type") == "token_usage_record" for line in path)
        for place, line in enumerate(path):
            self._read_line(place, line, records)

    def _read_line(self, place: int, line: JsonLine, records: bool) -> None:
        payload = _get_payload(line)
        match line.value.get("type"):
            case "response_item" if _is_from_model(payload):
                self._begin_message(place)
            case "response_item" if text_in(payload.get("type")) not in _UNSENT_TYPES:
                self._closed = True
                self._unsure = False
            case "compacted":
                self._newest = None
                self._closed = True
                self._announced = None
            case "token_usage_record":
                self._take_usage(_read_usage(mapping_in(payload.get("usage"))))
            case "event_msg" if payload.get("type") == "token_count" and not records:
                self._take_usage(self._read_new_usage(mapping_in(payload.get("info"))))

    def _begin_message(self, place: int) -> None:
        if self._closed:
            self._newest = place
            self._closed = False
            self.usages[place] = self._announced
            self._announced = None
            self._unsure = self.usages[place] is not None

    def _take_usage(self, usage: Usage | None) -> None:
        if usage is None:
            return
        if self._newest is not None and (self._unsure or self.usages[self._newest] is None):
            self.usages[self._newest] = usage
            self._closed = True
            self._unsure = False
        else:
            self._announced = usage

    def _read_new_usage(self, token_info: Json) -> Usage | None:
        """Return the usage of the last call; None if the event repeats one (as when rate limits changed)."""
        before = self._total
        self._total = mapping_in(token_info.get("total_token_usage"))
        if self._total and self._total == before:
            return None
        usage = _read_usage(mapping_in(token_info.get("last_token_usage")))
        if usage is not None:
            return usage
        added = {key: count_in(self._total.get(key)) - count_in(before.get(key)) for key in _COUNTS}
        # Totals that sank have started over: they are this call's.
        return _read_usage(self._total if min(added.values()) < 0 else added)


_COUNTS = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")


def _read_usage(counts: Json) -> Usage | None:
    """Read counts whose `input_tokens` include cache reads and writes; all zeros is no usage."""
    prompt, read, write, output = (count_in(counts.get(key)) for key in _COUNTS)
    if not prompt and not output:
        return None
    return Usage.from_inclusive(prompt=prompt, output=output, cache_read=read, cache_write=write)


# -- one run ----------------------------------------------------------------------------------------------------------


class _Rollout:
    """Feeds the lines of one path to the assembler."""

    def __init__(self, assembler: Assembler, path: Sequence[JsonLine]) -> None:
        self.assembler = assembler
        self.session = ""
        self.parent: str | None = None
        self._model = ""
        self._sent: float | None = None
        usages = _CallBills(path).usages
        for place, line in enumerate(path):
            self._feed_line(line, place in usages, usages.get(place))

    def _feed_line(self, line: JsonLine, starts: bool, usage: Usage | None) -> None:
        payload = _get_payload(line)
        match line.value.get("type"):
            case "session_meta":
                self._add_head(payload)
            case "turn_context":
                self._model = text_in(payload.get("model")) or self._model
                self.assembler.set_setting("the reasoning effort", text_in(payload.get("effort")))
            case "response_item" if _is_from_model(payload):
                if starts:
                    at = parse_timestamp(line.value.get("timestamp")) if self._sent is None else self._sent
                    self.assembler.add_assistant(usage=usage, at=at, model=self._model, line=line.number)
                self._add_output(payload, line)
            case "response_item":
                self._add_input(payload, line)
            case "compacted":
                # The rewritten history is not read: the raw turns it replaced are all here. Of these it keeps none.
                kept = self.assembler.turn_count + 1
                self.assembler.add_compaction(summary=text_in(payload.get("message")), kept_from=kept)

    def _add_head(self, meta: Json) -> None:
        """Add the head. A fork repeats its parent's; the first is the session's own."""
        if self.session:
            return
        self.session = text_in(meta.get("id")) or text_in(meta.get("session_id")) or "main"
        spawn = mapping_in(mapping_in(mapping_in(meta.get("source")).get("subagent")).get("thread_spawn"))
        self.parent = text_in(spawn.get("parent_thread_id")) or None
        self.assembler.add_tools(mappings_in(meta.get("dynamic_tools")))
        self.assembler.add_system(parse_content(mapping_in(meta.get("base_instructions")).get("text")))
        self.assembler.add_system(parse_content(meta.get("instructions")))

    def _add_output(self, item: Json, line: JsonLine) -> None:
        said = openai_responses.parse_item(item)
        self.assembler.take_assistant(said, continues=True)
        if result := openai_responses.parse_inline_result(item):
            self.assembler.add_result(result.action_id, result.content, error=result.error, line=line.number)

    def _add_input(self, item: Json, line: JsonLine) -> None:
        """Add input for the next call, whose request starts no earlier."""
        kind = text_in(item.get("type"))
        if kind in _UNSENT_TYPES:
            return
        self._sent = parse_timestamp(line.value.get("timestamp"))
        if kind in OUTPUTS:
            result = _parse_outcome(item)
            self.assembler.add_result(
                result.action_id, result.content, error=result.error, tags=result.tags, line=line.number
            )
        elif kind in _COMPACTIONS:
            self.assembler.add_compaction(kept_from=self.assembler.turn_count + 1)
        elif kind == "message":
            self._add_message(item, line)
        else:
            self.assembler.report_problem("a response item without type; left out", line.number)

    def _add_message(self, item: Json, line: JsonLine) -> None:
        said = parse_content(item.get("content"))
        match item.get("role"):
            case "user":
                self.assembler.add_user(said)
            case "developer":
                self.assembler.add_system(said, role="developer")
            case "system":
                self.assembler.add_system(said)
            case _:
                self.assembler.report_problem("a message of unknown role; left out", line.number)


# -- results ----------------------------------------------------------------------------------------------------------


def _parse_outcome(item: Json) -> ToolResult:
    """Read an output item: its text out of the wrappings of several versions, and whether it failed."""
    result = openai_responses.parse_result(item)
    output = item.get("output")
    wrapped = mapping_in(output)
    # Command output that only looks like JSON is left alone.
    if text_in(output).startswith("{"):
        wrapped = parse_object(text_in(output)) or {}
    if "success" in wrapped and "content" in wrapped:
        success = bool_in(wrapped["success"])
        error = None if success is None else not success
        return replace(result, content=parse_content(wrapped["content"]), error=error)
    metadata = mapping_in(wrapped.get("metadata"))
    if "output" in wrapped and "exit_code" in metadata:
        return replace(result, content=parse_content(wrapped["output"]), error=metadata["exit_code"] != 0)
    if found := _EXIT_CODE.search(text_in(output)[:400]):
        return replace(result, error=int(found[1]) != 0)
    return result
