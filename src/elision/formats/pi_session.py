"""pi session files (`~/.pi/agent/sessions/.../*.jsonl`), versions 1 (a list) to 3 (a tree of entries).

Source: pi's docs/session-format.md, and two recorded sessions. `usage.input` excludes what was read from or written to
the cache; `message.timestamp` (ms) is when the request started, the entry's own is when it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from elision.dialects import (
    Json,
    arguments_in,
    content_of,
    count_in,
    mapping_in,
    mappings_in,
    number_in,
    sealed,
    text_in,
)
from elision.formats.assembler import Assembler
from elision.formats.branches import Branch, Node, branches
from elision.formats.document import Document, Found
from elision.formats.lines import Line, json_lines, peek
from elision.formats.moments import moment
from elision.trajectory.content import Content, content
from elision.trajectory.trajectory import Problem
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage

#: pi answers a call that was broken off with this error when it sends the conversation again (pi-ai,
#: transform-messages.ts). It is not in the file, but the model read it: the bills of pi-compact.jsonl show such calls
#: sent on, and no provider takes a call without a result.
STAND_IN = "No result provided"
_ROLES = frozenset({"user", "assistant", "toolResult", "system", "bashExecution"})


class PiSession:
    """One session; each branch that was left behind and is mostly its own is a run of its own, the rest is reported."""

    name: ClassVar[str] = "pi-session"

    def sniff(self, document: Document) -> bool:
        return any(_is_header(value) or _is_message(value) for value in peek(document))

    def read(self, document: Document) -> Iterator[Found]:
        lines = []
        for item in json_lines(document):
            if isinstance(item, Problem):
                yield item
            elif item.value.get("type") != "session":
                lines.append(item)
        nodes = _nodes(lines)
        found, circles = branches(nodes, live=len(nodes) - 1 if nodes else None)
        for position in circles:
            yield Problem(file=document.path, line=lines[position].number, reason="entries are each other's parents")
        if not found:
            yield Problem(file=document.path, line=None, reason="no assistant message in this session")
        for number, branch in enumerate(found):
            yield from _run(document.path, lines, branch, number)


def _is_header(value: Json) -> bool:
    return value.get("type") == "session" and "id" in value and "cwd" in value


def _is_message(value: Json) -> bool:
    role = text_in(mapping_in(value.get("message")).get("role"))
    return value.get("type") == "message" and role in _ROLES and "timestamp" in value


def _nodes(lines: Sequence[Line]) -> list[Node]:
    """The entries as a tree; one whose parent is lost, or that names none as in version 1, follows the one before."""
    known = {key: position for position, line in enumerate(lines) if (key := text_in(line.value.get("id")))}
    nodes = []
    for position, line in enumerate(lines):
        before = position - 1 if position else None
        parent = known.get(text_in(line.value.get("parentId")), before)
        is_root = "parentId" in line.value and line.value["parentId"] is None
        nodes.append(Node(None if is_root else parent, spoken=_is_turn(mapping_in(line.value.get("message")))))
    return nodes


def _is_turn(message: Json) -> bool:
    """An assistant message; not a request that was broken off before a word of it came back."""
    return message.get("role") == "assistant" and bool(message.get("content") or _usage(message.get("usage")))


def _run(file: str, lines: Sequence[Line], branch: Branch, number: int) -> Iterator[Found]:
    if number and not branch.mostly_own:
        reason = f"a branch of {branch.own} assistant messages starts here, left behind later; left out"
        yield Problem(file=file, line=lines[branch.start].number, reason=reason)
        return
    assembler = Assembler(file, observations="tools")
    path = [lines[position] for position in branch.path]
    stand_ins = _stand_ins(path)
    for place, line in enumerate(path):
        _feed(assembler, line)
        for call in stand_ins.get(place, ()):
            assembler.result(call, content(STAND_IN), error=True, line=line.number)
    if number:
        name, parent = (f"fork {number}", "main")
    else:
        name, parent = ("main", None)
    if run := assembler.finish(name, format=PiSession.name, parent=parent):
        yield run
    yield from assembler.problems


def _feed(assembler: Assembler, line: Line) -> None:
    """One entry; types that carry nothing to the model (labels, model changes, `context_edit` ...) are passed over."""
    entry = line.value
    match entry.get("type"):
        case "message":
            message = mapping_in(entry.get("message"))
            if take := _MESSAGES.get(text_in(message.get("role"))):
                take(assembler, message, line)
        case "compaction":
            _compaction(assembler, entry, line)
        case "branch_summary":
            _summary(assembler, entry, line)
        case "custom_message":
            _user(assembler, entry, line)


def _stand_ins(path: Sequence[Line]) -> dict[int, list[str]]:
    """Place on `path` of an assistant message -> its calls that nothing answers though the conversation went on."""
    messages = [mapping_in(line.value.get("message")) for line in path]
    answered = {text_in(message.get("toolCallId")) for message in messages}
    going = [place for place, message in enumerate(messages) if message.get("role") == "user" or _is_turn(message)]
    return {
        place: [action.id for action in _actions(messages[place]) if action.id not in answered]
        for place in going[:-1]
        if _is_turn(messages[place])
    }


def _user(assembler: Assembler, message: Json, line: Line) -> None:
    assembler.user(content_of(message.get("content")))


def _system(assembler: Assembler, message: Json, line: Line) -> None:
    assembler.system(content_of(message.get("content")) + content_of(message.get("sections")))
    assembler.tools(mappings_in(message.get("toolsAdded")))


def _assistant(assembler: Assembler, message: Json, line: Line) -> None:
    if not _is_turn(message):
        return
    blocks = mappings_in(message.get("content"))
    assembler.assistant(
        _said(message.get("content")),
        reasoning="\n".join(filter(None, (text_in(b.get("thinking")) for b in blocks if b.get("type") == "thinking"))),
        actions=_actions(message),
        usage=_usage(message.get("usage")),
        at=_at(message, line),
        model=text_in(message.get("model")),
        line=line.number,
    )


def _said(value: object) -> Content:
    """Text and unknown blocks; thinking whose text was withheld stays as the opaque block it is."""
    if not isinstance(value, list):
        return content_of(value)
    withheld = [b for b in mappings_in(value) if b.get("type") == "thinking" and not text_in(b.get("thinking"))]
    kept = [block for block in value if mapping_in(block).get("type") not in ("toolCall", "thinking")]
    hidden = tuple(sealed("thinking", block, text_in(block.get("thinkingSignature"))) for block in withheld)
    return hidden + content_of(kept)


def _actions(message: Json) -> list[Action]:
    return [_action(block) for block in mappings_in(message.get("content")) if block.get("type") == "toolCall"]


def _action(block: Json) -> Action:
    return Action(
        id=text_in(block.get("id")), name=text_in(block.get("name")), arguments=arguments_in(block.get("arguments"))
    )


def _result(assembler: Assembler, message: Json, line: Line) -> None:
    assembler.result(
        text_in(message.get("toolCallId")),
        content_of(message.get("content")),
        tool=text_in(message.get("toolName")),
        error=_verdict(message.get("isError")),
        line=line.number,
    )


def _bash(assembler: Assembler, message: Json, line: Line) -> None:
    """A command that the user ran; the model is shown it as a user message unless the user kept it to himself."""
    if message.get("excludeFromContext") is True:
        return
    lines = [f"Ran `{text_in(message.get('command'))}`", text_in(message.get("output")) or "(no output)"]
    if code := count_in(message.get("exitCode")):
        lines.append(f"Command exited with code {code}")
    assembler.user(content("\n".join(lines)))


def _summary(assembler: Assembler, message: Json, line: Line) -> None:
    """What was done on a branch that was left."""
    assembler.user(content(text_in(message.get("summary"))))


def _compaction(assembler: Assembler, message: Json, line: Line) -> None:
    """The summary stands in the compaction, not among the messages: the raw turns it replaced are all here."""
    summary = text_in(message.get("summary"))
    if assembler.turns:
        assembler.compaction(tokens_before=count_in(message.get("tokensBefore")) or None, summary=summary)
    else:
        assembler.user(content(summary))


_Take = Callable[[Assembler, Json, Line], None]
_MESSAGES: dict[str, _Take] = {
    "user": _user,
    "custom": _user,
    "hookMessage": _user,
    "system": _system,
    "assistant": _assistant,
    "toolResult": _result,
    "bashExecution": _bash,
    "branchSummary": _summary,
    "compactionSummary": _compaction,
}


def _verdict(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return None


def _at(message: Json, line: Line) -> float | None:
    started = moment(message.get("timestamp"))
    if started is None:
        return moment(line.value.get("timestamp"))
    return started


def _usage(value: object) -> Usage | None:
    """Usage; all zeros, as a request that failed reports, is none."""
    usage = mapping_in(value)
    counts = [count_in(usage.get(key)) for key in ("input", "cacheRead", "cacheWrite", "output")]
    if not any(counts):
        return None
    plain, read, write, output = counts
    usd = number_in(mapping_in(usage.get("cost")).get("total"))
    return Usage(input=plain, cache_read=read, cache_write=write, output=output, usd=usd)
