"""Claude Code transcripts (`~/.claude/projects/.../<session>.jsonl` and `agent-<id>.jsonl`).

Undocumented by its maker; read off recordings, and public descriptions of them. One message of the assistant is written
in fragments, a content block a line, that share `message.id`; results of parallel calls may stand between them. Each
line names its parent (`parentUuid`), and with parallel calls that graph fans out: each result hangs from its own call,
the next fragment from the fragment before. So fragments, results and attachments are first gathered into exchanges, and
only the tree of these shows whether the user went back and continued differently.

A line of type `attachment` holds what the harness puts into a request beside messages and results: the user's words
that waited while the agent worked (`queued_command`), notifications of tasks, files, memories, what hooks said,
reminders. Versions since the middle of 2026 keep the very text that was sent as `rendered`; a line of theirs without it
was not sent. For older ones the text is made of the recorded fields alone: words that Claude Code wrote around them are
not in the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from elision.formats.assembler import Assembler, yield_run
from elision.formats.branches import RecordedBranch, TreeNode, name_branch, split_branches
from elision.formats.document import Document, JsonLine, RunOrProblem, peek_objects, read_json_lines
from elision.formats.recorded_fields import parse_timestamp
from elision.providers.anthropic import messages as anthropic
from elision.providers.anthropic.server_clearing import parse_clearing_report
from elision.providers.shared.json_reading import (
    Json,
    ToolResult,
    count_in,
    dump_json,
    join_contents,
    join_lines,
    make_opaque,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.trajectory import CompactionKind, Problem
from elision.trajectory.turn import Action, Content, join_text, make_content
from elision.trajectory.usage import Usage

#: Records at the start of transcripts that carry no message.
_BOOKKEEPING = frozenset({"summary", "queue-operation", "file-history-snapshot"})
_COMPACTIONS = frozenset({"compact_boundary", "microcompact_boundary"})
#: Lines looked at when sniffing: a transcript may begin with a run of bookkeeping.
_PEEK_LINES = 20


class ClaudeCodeReader:
    """One transcript: the main run, each sidechain, and abandoned branches that are mostly their own."""

    name: ClassVar[str] = "claude-code"

    def sniff(self, document: Document) -> bool:
        return any(_is_message(value) or _is_bookkeeping(value) for value in peek_objects(document, _PEEK_LINES))

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        lines = []
        for item in read_json_lines(document):
            if isinstance(item, Problem):
                yield item
            elif item.value.get("type") in ("user", "assistant") and not isinstance(item.value.get("message"), dict):
                reason = f"the {item.value['type']} line has no message; left out"
                yield Problem(file=document.path, line=item.number, reason=reason)
            elif _is_in_tree(item.value):
                lines.append(item)
        spoken = False
        for chain in _split_agents(_drop_repeats(lines)):
            for found in _read_agent(document.path, chain):
                spoken = spoken or not isinstance(found, Problem)
                yield found
        if not spoken:
            yield Problem(file=document.path, line=None, reason="no assistant message in this transcript")


def _get_message(line: JsonLine) -> Json:
    return mapping_in(line.value.get("message"))


def _is_message(value: Json) -> bool:
    known = value.get("type") in ("user", "assistant") and isinstance(value.get("message"), dict)
    return known and "uuid" in value and ("sessionId" in value or "parentUuid" in value)


def _is_in_tree(value: Json) -> bool:
    """Return whether a line has a place in the tree; system and progress lines do, though they say nothing."""
    return bool(text_in(value.get("uuid"))) or value.get("type") in ("user", "assistant", "attachment")


def _get_uuid(line: JsonLine) -> str:
    return text_in(line.value.get("uuid")) or f"line {line.number}"


def _is_bookkeeping(value: Json) -> bool:
    return text_in(value.get("type")) in _BOOKKEEPING and bool({"leafUuid", "sessionId", "messageId"} & value.keys())


def _drop_repeats(lines: Sequence[JsonLine]) -> list[JsonLine]:
    """Drop lines that a resumed session repeats, and attachments whose words are also a user's line.

    The first of each line is kept. Queued words that became a turn are such attachments.
    """
    first: dict[str, JsonLine] = {}
    for line in lines:
        first.setdefault(_get_uuid(line), line)
    users = {uuid for uuid, line in first.items() if line.value.get("type") == "user"}
    sources = ((line, mapping_in(line.value.get("attachment")).get("source_uuid")) for line in first.values())
    return [line for line, source in sources if text_in(source) not in users]


def _is_attachment(line: JsonLine) -> bool:
    return line.value.get("type") == "attachment"


# -- one file, several runs -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _AgentLines:
    """The lines of one agent: the main one, or a sidechain."""

    id: str
    parent: str | None
    lines: list[JsonLine] = field(default_factory=list)


def _split_agents(lines: Sequence[JsonLine]) -> list[_AgentLines]:
    """Split lines by agent: the main one first, then sidechains in the order in which they began.

    Sidechains are told apart by `agentId`, else by their first line.
    """
    by_uuid = {_get_uuid(line): line for line in lines}
    has_main = any(not _is_side(line) for line in lines)
    chains: dict[str, _AgentLines] = {}
    roots: dict[str, str] = {}
    for line in lines:
        key = ""
        if _is_side(line):
            key = text_in(line.value.get("agentId")) or _find_root(line, by_uuid, roots)
        if key not in chains:
            starter = "main" if has_main else text_in(line.value.get("sessionId")) or "main"
            chains[key] = _AgentLines(f"sidechain {key}" if key else "main", starter if key else None)
        chains[key].lines.append(line)
    return sorted(chains.values(), key=lambda chain: chain.parent is not None)


def _is_side(line: JsonLine) -> bool:
    return line.value.get("isSidechain") is True


def _find_root(line: JsonLine, by_uuid: Mapping[str, JsonLine], roots: dict[str, str]) -> str:
    """Return the uuid of the sidechain's first line; `roots` caches it for every line on the way."""
    walk: dict[str, None] = {}
    here = line
    uuid = _get_uuid(line)
    while uuid not in roots:
        walk[uuid] = None
        above = by_uuid.get(text_in(here.value.get("parentUuid")))
        if above is None or not _is_side(above) or _get_uuid(above) in walk:
            roots[uuid] = uuid
        else:
            here = above
            uuid = _get_uuid(above)
    for passed in walk:
        roots[passed] = roots[uuid]
    return roots[uuid]


def _read_agent(file: str, chain: _AgentLines) -> Iterator[RunOrProblem]:
    exchanges = _group_lines(chain.lines)
    nodes = _build_tree(exchanges)
    speaking = [position for position, exchange in enumerate(exchanges) if exchange.is_message]
    found, circles = split_branches(nodes, newest=speaking[-1] if speaking else None)
    for position in circles:
        yield Problem(file=file, line=exchanges[position].line_number, reason="messages are each other's parents")
    for number, branch in enumerate(found):
        yield from _read_branch(file, chain, exchanges, branch, number)


def _read_branch(
    file: str, chain: _AgentLines, exchanges: Sequence[_LineGroup], branch: RecordedBranch, number: int
) -> Iterator[RunOrProblem]:
    if number and not branch.is_mostly_own:
        yield Problem(file=file, line=exchanges[branch.start].line_number, reason=branch.describe_left_out())
        return
    # Versions of Claude Code that keep what was sent.
    rendering = [line.value for line in chain.lines if isinstance(line.value.get("rendered"), list)]
    versions = frozenset(text_in(value.get("version")) for value in rendering)
    run = _TranscriptRun(Assembler(file, observations="tools"), versions)
    for position in branch.path:
        run.feed_group(exchanges[position])
    name, parent = name_branch(chain.id, chain.parent, number)
    yield from yield_run(run.assembler, run.assembler.finish(name, format=ClaudeCodeReader.name, parent=parent))


# -- exchanges: fragments and results gathered ------------------------------------------------------------------------


@dataclass(slots=True)
class _LineGroup:
    """One assistant message with the results of its calls, or one other line; either with what is attached to it."""

    fragments: list[JsonLine] = field(default_factory=list)
    results: list[JsonLine] = field(default_factory=list)
    other: JsonLine | None = None

    @property
    def first_line(self) -> JsonLine:
        if self.fragments:
            return self.fragments[0]
        return self.other or self.results[0]

    @property
    def line_number(self) -> int:
        return self.first_line.number

    @property
    def is_turn(self) -> bool:
        """Whether the model said it: Claude Code itself writes errors and notices in the assistant's name."""
        return bool(self.fragments) and not any(
            line.value.get("isApiErrorMessage") is True or _get_message(line).get("model") == "<synthetic>"
            for line in self.fragments
        )

    @property
    def is_message(self) -> bool:
        return self.other is None or self.other.value.get("type") in ("user", "attachment")


def _group_lines(lines: Sequence[JsonLine]) -> list[_LineGroup]:
    """Gather lines into exchanges, in the order of their first lines."""
    exchanges: list[_LineGroup] = []
    by_message: dict[str, _LineGroup] = {}
    by_call: dict[str, _LineGroup] = {}
    by_uuid: dict[str, _LineGroup] = {}
    for line in lines:
        if line.value.get("type") == "assistant":
            id = text_in(_get_message(line).get("id"))
            key = id or text_in(line.value.get("requestId")) or _get_uuid(line)
            if key not in by_message:
                by_message[key] = _LineGroup()
                exchanges.append(by_message[key])
            by_message[key].fragments.append(line)
            by_call |= {text_in(block.get("id")): by_message[key] for block in _list_blocks(line, "tool_use")}
            by_uuid[_get_uuid(line)] = by_message[key]
            continue
        # With parallel calls attachments hang from several results; as nodes of their own they would look like forks.
        owner = by_uuid.get(text_in(line.value.get("parentUuid"))) if _is_attachment(line) else None
        owner = owner or _find_answered_group(line, by_call)
        if owner is None:
            owner = _LineGroup(other=line)
            exchanges.append(owner)
        else:
            owner.results.append(line)
        by_uuid[_get_uuid(line)] = owner
    return exchanges


def _find_answered_group(line: JsonLine, by_call: Mapping[str, _LineGroup]) -> _LineGroup | None:
    """Return the exchange whose call `line` answers."""
    for block in _list_blocks(line, "tool_result"):
        call = text_in(block.get("tool_use_id"))
        if call in by_call:
            return by_call[call]
    return None


def _list_blocks(line: JsonLine, kind: str) -> list[Json]:
    blocks = mappings_in(_get_message(line).get("content"))
    return [block for block in blocks if block.get("type") == kind]


def _build_tree(exchanges: Sequence[_LineGroup]) -> list[TreeNode]:
    """Build the tree of exchanges. One whose parent is lost (a broken line, for example) follows the one before."""
    place: dict[str, int] = {}
    for position, exchange in enumerate(exchanges):
        for line in (*exchange.fragments, *exchange.results, *filter(None, (exchange.other,))):
            place[_get_uuid(line)] = position
    return [
        TreeNode(_find_parent(exchange.first_line.value, place, position), is_assistant=exchange.is_turn)
        for position, exchange in enumerate(exchanges)
    ]


def _find_parent(value: Json, place: Mapping[str, int], position: int) -> int | None:
    """Return the position of a record's parent; None for a root.

    A compaction starts a new root in the file. The run continues, so it becomes a child of what it compacted.
    """
    named = text_in(value.get("parentUuid")) or text_in(value.get("logicalParentUuid"))
    if named in place:
        return place[named]
    lost = (
        named
        or "parentUuid" not in value
        or value.get("isCompactSummary") is True
        or text_in(value.get("subtype")) in _COMPACTIONS
    )
    return position - 1 if lost and position else None


# -- one run ----------------------------------------------------------------------------------------------------------


class _TranscriptRun:
    """Feeds the exchanges of one path to the assembler."""

    def __init__(self, assembler: Assembler, rendering: frozenset[str]) -> None:
        self.assembler = assembler
        self._rendering = rendering
        self._sent: float | None = None
        self._has_prompt = False
        self._before: int | None = None
        self._compacting = False
        #: Results were cleared, and their turns stayed; and how many the server has cleared.
        self._clearing = False
        self._cleared_uses = 0

    def feed_group(self, group: _LineGroup) -> None:
        if group.is_turn:
            self._settle_compaction()
            self._add_assistant(group.fragments)
        elif group.other is not None:
            self._add_other(group.other)
        for line in group.results:
            if _is_attachment(line):
                self._add_attachment(line)
            else:
                self._add_user(line)

    def _add_assistant(self, fragments: Sequence[JsonLine]) -> None:
        messages = [_get_message(line) for line in fragments]
        said = [anthropic.parse_assistant(message) for message in messages]
        content: Content = ()
        actions: list[Action] = []
        usage: Usage | None = None
        for message, fragment in zip(messages, said, strict=True):
            content += fragment.content
            actions += fragment.actions
            # Every fragment repeats the usage of the whole message; only the last one's output count is final.
            usage = anthropic.parse_usage(message.get("usage")) or usage
        cleared = parse_clearing_report(messages[-1])
        if cleared is not None and cleared.cleared_uses > self._cleared_uses:
            # Each later request has the same ones cleared.
            self._cleared_uses = cleared.cleared_uses
            self.assembler.add_compaction(kind="cleared")
        model = text_in(messages[-1].get("model"))
        if model and mapping_in(messages[-1].get("usage")).get("speed") == "fast":
            # Fast mode has prices and a cache of its own; routers call it so.
            model = f"{model}-fast"
        # A line's own time is when its block was complete; the request started when its newest input was there.
        at = parse_timestamp(fragments[0].value.get("timestamp")) if self._sent is None else self._sent
        self.assembler.add_assistant(
            content,
            reasoning=join_lines(fragment.reasoning for fragment in said),
            actions=actions,
            usage=usage,
            at=at,
            model=model,
            line=fragments[0].number,
        )

    def _add_other(self, line: JsonLine) -> None:
        value = line.value
        if value.get("type") == "system" and text_in(value.get("subtype")) in _COMPACTIONS:
            self._settle_compaction()
            metadata = mapping_in(value.get("compactMetadata")) or mapping_in(value.get("microcompactMetadata"))
            self._compacting = True
            self._clearing = value["subtype"] == "microcompact_boundary"
            self._before = count_in(metadata.get("preTokens")) or None
        elif value.get("type") == "user":
            self._add_user(line)
        elif _is_attachment(line):
            self._add_attachment(line)

    def _add_attachment(self, line: JsonLine) -> None:
        """Add what Claude Code sent beside messages and results, in the user's name."""
        if not self.assembler.turn_count and not self._has_prompt:
            prompt = read_system_prompt(line.value)
            self._has_prompt = bool(prompt)
            self.assembler.add_system(prompt)
        if sent := read_sent_content(line.value, self._rendering):
            self.assembler.add_user(sent)
            self._note_input_time(line)

    def _note_input_time(self, line: JsonLine) -> None:
        """Remember when the newest input was there: the next request started then."""
        self._sent = max(filter(None, (self._sent, parse_timestamp(line.value.get("timestamp")))), default=None)

    def _add_user(self, line: JsonLine) -> None:
        """Add results, and what the user or a hook says (`isMeta`): the model is sent both."""
        message = _get_message(line)
        if line.value.get("isCompactSummary") is True:
            self._add_summary(parse_content(message.get("content")))
        elif line.value.get("isVisibleInTranscriptOnly") is not True:
            for result in anthropic.parse_results(message):
                self._add_result(result, line)
            self.assembler.add_user(anthropic.parse_user_words(message))
            self._note_input_time(line)

    def _add_result(self, result: ToolResult, line: JsonLine) -> None:
        outcome = mapping_in(line.value.get("toolUseResult"))
        verdicts = [result.error, outcome.get("isError"), outcome.get("is_error")]
        known = [verdict for verdict in verdicts if isinstance(verdict, bool)]
        error = any(known) if known else None
        self.assembler.add_result(result.action_id, result.content, error=error, tags=result.tags, line=line.number)

    def _add_summary(self, said: Content) -> None:
        """Add a summary: of this run's own turns to the compaction, of an earlier file's to the head."""
        if self.assembler.turn_count:
            self._compacting = True
            self._settle_compaction(join_text(said))
        else:
            self._compacting = False
            self.assembler.add_user(said)

    def _settle_compaction(self, summary: str = "") -> None:
        """Record a compaction once its summary is known, or that none came."""
        if self._compacting and self.assembler.turn_count:
            kind: CompactionKind = "cleared" if self._clearing and not summary else "summary"
            self.assembler.add_compaction(tokens_before=self._before, summary=summary, kind=kind)
        self._compacting = self._clearing = False
        self._before = None


# -- attachments: what was sent beside messages and results -----------------------------------------------------------


#: Events whose hooks' plain output the model is sent.
_CONTEXT_HOOKS = frozenset(("SessionStart", "UserPromptSubmit"))


def read_sent_content(line: Json, rendering_versions: frozenset[str] = frozenset()) -> Content:
    """Return what the model was sent because of an attachment line; () if nothing, or if that is not recorded.

    rendering_versions: the versions that keep what was sent. The user's own words are read in any case.
    """
    rendered = line.get("rendered")
    if isinstance(rendered, list):
        return join_contents(parse_content(each.get("content")) for each in mappings_in(rendered))
    attachment = mapping_in(line.get("attachment"))
    kind = text_in(attachment.get("type"))
    if kind not in _CONTENT_READERS or (
        kind != "queued_command" and text_in(line.get("version")) in rendering_versions
    ):
        return ()
    return _CONTENT_READERS[kind](attachment)


def read_system_prompt(line: Json) -> Content:
    """Return the system prompt that a snapshot of it holds; () for any other attachment."""
    attachment = mapping_in(line.get("attachment"))
    if attachment.get("type") == "prompt_snapshot":
        return parse_content(attachment.get("systemPrompt"))
    return ()


def _join_fields(*names: str) -> Callable[[Json], Content]:
    """Return a reader that joins the texts of some fields. Lists of texts and of objects with a text are flattened."""
    return lambda attachment: make_content(join_lines(_flatten_text(attachment.get(name)) for name in names))


def _flatten_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return join_lines(map(_flatten_text, value))
    held = mapping_in(value)
    names = [text_in(held.get(name)) for name in ("path", "name", "uri")]
    said = [_flatten_text(held[name]) for name in ("content", "text", "contents", "file") if name in held]
    if said:
        return join_lines((*names, *said))
    return dump_json(held) if held else ""


def _read_file_content(attachment: Json) -> Content:
    """Read a file that the user mentioned: its name, and its text or picture."""
    held = mapping_in(attachment.get("content"))
    name = text_in(attachment.get("filename")) or text_in(attachment.get("displayPath"))
    if held.get("type") == "image":
        return (*make_content(name), make_opaque("image", held))
    return make_content(join_lines((name, _flatten_text(attachment.get("content")))))


def _read_hook_output(attachment: Json) -> Content:
    is_sent = text_in(attachment.get("hookEvent")) in _CONTEXT_HOOKS
    return make_content(text_in(attachment.get("content"))) if is_sent else ()


_CONTENT_READERS: Mapping[str, Callable[[Json], Content]] = {
    "queued_command": lambda attachment: parse_content(attachment.get("prompt")),
    "file": _read_file_content,
    "new_file": _read_file_content,
    "directory": _join_fields("path", "content"),
    "edited_text_file": _join_fields("filename", "snippet"),
    "selected_lines_in_ide": _join_fields("filename", "content"),
    "opened_file_in_ide": _join_fields("filename"),
    "mcp_resource": _join_fields("uri", "content"),
    "nested_memory": _join_fields("content"),
    "relevant_memories": _join_fields("memories"),
    "ultramemory": _join_fields("content"),
    "plan_file_reference": _join_fields("planFilePath", "planContent"),
    "compact_file_reference": _join_fields("filename"),
    "invoked_skills": _join_fields("skills"),
    "skill_listing": _join_fields("content"),
    "mcp_instructions_delta": _join_fields("addedBlocks"),
    "deferred_tools_delta": _join_fields("addedLines"),
    "agent_listing_delta": _join_fields("addedLines"),
    "todo": _join_fields("content"),
    "todo_reminder": _join_fields("content"),
    "task_reminder": _join_fields("content"),
    "task_status": _join_fields("description", "status", "deltaSummary"),
    "diagnostics": _join_fields("files"),
    "critical_system_reminder": _join_fields("content"),
    "total_tokens_reminder": _join_fields("text"),
    "date_change": _join_fields("newDate"),
    "hook_additional_context": _join_fields("content"),
    "hook_blocking_error": lambda attachment: _join_fields("blockingError")(
        mapping_in(attachment.get("blockingError"))
    ),
    "hook_success": _read_hook_output,
}
