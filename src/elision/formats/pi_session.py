"""pi session files (`~/.pi/agent/sessions/.../*.jsonl`), versions 1 (a list) to 3 (a tree of entries).

Source: pi's docs/session-format.md, and two recorded sessions. `usage.input` excludes what was read from or written to
the cache; `message.timestamp` (ms) is when the request started, the entry's own is when it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from elision.formats.assembler import Assembler, yield_run
from elision.formats.branches import RecordedBranch, TreeNode, split_branches
from elision.formats.document import Document, JsonLine, RunOrProblem, peek_objects, read_json_lines
from elision.formats.recorded_fields import parse_timestamp, read_call
from elision.providers.shared.json_reading import (
    Json,
    bool_in,
    cost_in,
    count_in,
    join_lines,
    make_sealed,
    mapping_in,
    mappings_in,
    parse_content,
    recognize_seal,
    text_in,
)
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.trajectory import Problem
from elision.trajectory.turn import Action, Content, Opaque, make_content
from elision.trajectory.usage import Usage

#: pi answers a call that was broken off with this error when it sends the conversation again (pi-ai,
#: transform-messages.ts). It is not in the file, but the model read it: the bills of pi-compact.jsonl show such calls
#: sent on, and no provider takes a call without a result.
STAND_IN_RESULT = "No result provided"
_ROLES = frozenset({"user", "assistant", "toolResult", "system", "bashExecution"})


class PiSessionReader:
    """One session. An abandoned branch that is mostly its own is a run of its own; the others are reported."""

    name: ClassVar[str] = "pi-session"

    def sniff(self, document: Document) -> bool:
        return any(map(_is_entry, peek_objects(document)))

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        lines = []
        for item in read_json_lines(document):
            if isinstance(item, Problem):
                yield item
            elif item.value.get("type") != "session":
                lines.append(item)
        nodes = _build_tree(lines)
        found, circles = split_branches(nodes, newest=len(nodes) - 1 if nodes else None)
        for position in circles:
            yield Problem(file=document.path, line=lines[position].number, reason="entries are each other's parents")
        if not found:
            yield Problem(file=document.path, line=None, reason="no assistant message in this session")
        for number, branch in enumerate(found):
            yield from _read_branch(document.path, lines, branch, number)


def _is_entry(value: Json) -> bool:
    """Return whether a line is the header of a session, or a message of one."""
    if value.get("type") == "session":
        return "id" in value and "cwd" in value
    role = text_in(mapping_in(value.get("message")).get("role"))
    return value.get("type") == "message" and role in _ROLES and "timestamp" in value


def _build_tree(lines: Sequence[JsonLine]) -> list[TreeNode]:
    """Build the tree of entries. One whose parent is lost, or that names none (version 1), follows the one before."""
    known = {text_in(line.value.get("id")): position for position, line in enumerate(lines)}
    known.pop("", None)
    nodes = []
    for position, line in enumerate(lines):
        before = position - 1 if position else None
        parent = known.get(text_in(line.value.get("parentId")), before)
        if "parentId" in line.value and line.value["parentId"] is None:
            parent = None
        nodes.append(TreeNode(parent, is_assistant=_is_turn(mapping_in(line.value.get("message")))))
    return nodes


def _is_turn(message: Json) -> bool:
    """Return whether it is an assistant message, and not a request that was aborted before any answer."""
    return message.get("role") == "assistant" and bool(message.get("content") or _read_usage(message.get("usage")))


def _read_branch(file: str, lines: Sequence[JsonLine], branch: RecordedBranch, number: int) -> Iterator[RunOrProblem]:
    if number and not branch.is_mostly_own:
        yield Problem(file=file, line=lines[branch.start].number, reason=branch.describe_left_out())
        return
    assembler = Assembler(file, observations="tools")
    path = [lines[position] for position in branch.path]
    stand_ins = _find_open_calls(path)
    turns: dict[str, int] = {}
    for place, line in enumerate(path):
        turns[text_in(line.value.get("id")) or str(line.number - 1)] = assembler.turn_count + _is_turn(
            mapping_in(line.value.get("message"))
        )
        if line.value.get("type") == "compaction":
            _add_compaction(assembler, line.value, turns)
        else:
            _feed_entry(assembler, line)
        for call in stand_ins.get(place, ()):
            assembler.add_result(call, make_content(STAND_IN_RESULT), error=True, line=line.number)
    name, parent = (f"fork {number}", "main") if number else ("main", None)
    yield from yield_run(assembler, assembler.finish(name, format=PiSessionReader.name, parent=parent))


def _feed_entry(assembler: Assembler, line: JsonLine) -> None:
    """Feed one entry; types that carry nothing to the model (labels, model changes ...) are passed over."""
    entry = line.value
    match entry.get("type"):
        case "message":
            message = mapping_in(entry.get("message"))
            if take := _MESSAGE_HANDLERS.get(text_in(message.get("role"))):
                take(assembler, message, line)
        case "thinking_level_change":
            assembler.set_setting("the thinking level", text_in(entry.get("thinkingLevel")))
        case "context_edit":
            assembler.add_compaction(kind="cleared")
        case "branch_summary":
            _add_summary(assembler, entry, line)
        case "custom_message":
            _add_user(assembler, entry, line)


def _find_open_calls(path: Sequence[JsonLine]) -> dict[int, list[str]]:
    """Place on `path` of an assistant message -> its calls that nothing answers though the conversation went on."""
    messages = [mapping_in(line.value.get("message")) for line in path]
    answered = {text_in(message.get("toolCallId")) for message in messages}
    going = [place for place, message in enumerate(messages) if message.get("role") == "user" or _is_turn(message)]
    return {
        place: [action.id for action in _parse_actions(messages[place]) if action.id not in answered]
        for place in going[:-1]
        if _is_turn(messages[place])
    }


def _add_user(assembler: Assembler, message: Json, line: JsonLine) -> None:
    assembler.add_user(parse_content(message.get("content")))


def _add_system(assembler: Assembler, message: Json, line: JsonLine) -> None:
    assembler.add_system(parse_content(message.get("content")) + parse_content(message.get("sections")))
    assembler.add_tools(mappings_in(message.get("toolsAdded")))


def _add_assistant(assembler: Assembler, message: Json, line: JsonLine) -> None:
    if not _is_turn(message):
        return
    blocks = mappings_in(message.get("content"))
    started = parse_timestamp(message.get("timestamp"))
    line_time = parse_timestamp(line.value.get("timestamp"))
    assembler.add_assistant(
        _parse_content(message.get("content")),
        reasoning=join_lines(text_in(b.get("thinking")) for b in blocks if b.get("type") == "thinking"),
        actions=_parse_actions(message),
        usage=_read_usage(message.get("usage")),
        at=line_time if started is None else started,
        model=text_in(message.get("model")),
        line=line.number,
    )


def _parse_content(value: object) -> Content:
    """Read text and unknown blocks; thinking whose text was withheld stays an opaque block."""
    if not isinstance(value, list):
        return parse_content(value)
    withheld = [b for b in mappings_in(value) if b.get("type") == "thinking" and not text_in(b.get("thinking"))]
    kept = [block for block in value if mapping_in(block).get("type") not in ("toolCall", "thinking")]
    return tuple(map(_keep_sealed, withheld)) + parse_content(kept)


def _keep_sealed(block: Json) -> Opaque:
    """Keep thinking whose text was withheld. Of OpenAI's items pi keeps the JSON, of others the signature."""
    signature = text_in(block.get("thinkingSignature"))
    secret = text_in((parse_object(signature) or {}).get("encrypted_content")) or signature
    return make_sealed("thinking", block, secret, recognize_seal(secret))


def _parse_actions(message: Json) -> list[Action]:
    return [read_call(block) for block in mappings_in(message.get("content")) if block.get("type") == "toolCall"]


def _add_result(assembler: Assembler, message: Json, line: JsonLine) -> None:
    assembler.add_result(
        text_in(message.get("toolCallId")),
        parse_content(message.get("content")),
        tool=text_in(message.get("toolName")),
        error=bool_in(message.get("isError")),
        line=line.number,
    )


def _add_command(assembler: Assembler, message: Json, line: JsonLine) -> None:
    """Add a command that the user ran. The model sees it as a user message unless the user excluded it."""
    if message.get("excludeFromContext") is True:
        return
    lines = [f"Ran `{text_in(message.get('command'))}`", text_in(message.get("output")) or "(no output)"]
    if code := count_in(message.get("exitCode")):
        lines.append(f"Command exited with code {code}")
    assembler.add_user(make_content("\n".join(lines)))


def _add_summary(assembler: Assembler, message: Json, line: JsonLine) -> None:
    """Add what was done on a branch that was abandoned."""
    assembler.add_user(make_content(text_in(message.get("summary"))))


def _add_compaction(assembler: Assembler, message: Json, turns: Mapping[str, int]) -> None:
    """Add a compaction. It holds the summary, which is no message: the raw turns it replaced are all here.

    turns: by the id, or else the position, of each entry so far, the turn that it is part of.
    """
    summary = text_in(message.get("summary"))
    if assembler.turn_count:
        kept = text_in(message.get("firstKeptEntryId")) or str(message.get("firstKeptEntryIndex", ""))
        assembler.add_compaction(
            tokens_before=count_in(message.get("tokensBefore")) or None,
            summary=summary,
            kept_from=max(1, turns[kept]) if kept in turns else None,
        )
    else:
        assembler.add_user(make_content(summary))


_Take = Callable[[Assembler, Json, JsonLine], None]
_MESSAGE_HANDLERS: dict[str, _Take] = {
    "user": _add_user,
    "custom": _add_user,
    "hookMessage": _add_user,
    "system": _add_system,
    "assistant": _add_assistant,
    "toolResult": _add_result,
    "bashExecution": _add_command,
    "branchSummary": _add_summary,
    "compactionSummary": lambda assembler, message, line: _add_compaction(assembler, message, {}),
}


def _read_usage(value: object) -> Usage | None:
    """Read usage; all zeros, as a failed request reports, is none."""
    usage = mapping_in(value)
    counts = [count_in(usage.get(key)) for key in ("input", "cacheRead", "cacheWrite", "output")]
    if not any(counts):
        return None
    plain, read, write, output = counts
    usd = cost_in(mapping_in(usage.get("cost")).get("total"))
    return Usage(input=plain, cache_read=read, cache_write=write, output=output, usd=usd)
