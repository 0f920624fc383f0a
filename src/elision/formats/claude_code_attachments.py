"""Attachments of Claude Code transcripts: what its harness puts into a request beside messages and results.

A line of type `attachment` holds the user's words that waited while the agent worked (`queued_command`), notifications
of tasks, files, memories, what hooks said, reminders. Versions since the middle of 2026 keep the very text that was
sent as `rendered`; a line of theirs without it was not sent. For older ones the text is made of the recorded fields
alone: words that Claude Code wrote around them are not in the record. Undocumented; read off transcripts and public
descriptions of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from elision.providers.shared.json_reading import (
    Json,
    dump_json,
    join_contents,
    join_lines,
    make_opaque,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.content import Content, make_content

#: Events whose hooks' plain output the model is sent.
_CONTEXT_HOOKS = frozenset(("SessionStart", "UserPromptSubmit"))


def find_rendering_versions(lines: Iterable[Json]) -> frozenset[str]:
    """Return the versions of Claude Code among `lines` that keep what was sent."""
    return frozenset(text_in(line.get("version")) for line in lines if isinstance(line.get("rendered"), list))


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

    def texts_of(attachment: Json) -> Content:
        return make_content(join_lines(_flatten_text(attachment.get(name)) for name in names))

    return texts_of


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
