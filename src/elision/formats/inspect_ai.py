"""Inspect AI logs: `.json`, and `.eval`, a zip with one member per sample or (from log version 3) many.

Long texts are stored once, as attachments, and referred to as `attachment://<hash>`. Usage is in the events of a
sample: a model event holds the message that it brought forth, whose id leads back to the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elision.errors import FormatError
from elision.formats.assembler import Assembler, yield_run
from elision.formats.compressed_files import INSPECT_HEADERS, ZIP_START, ZipMembers, is_inspect_log
from elision.formats.document import Document, RunOrProblem, peek_value, read_json_value
from elision.formats.recorded_fields import parse_timestamp, read_call
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    cost_in,
    count_in,
    join_contents,
    join_lines,
    list_in,
    make_sealed,
    mapping_in,
    mappings_in,
    parse_content,
    recognize_seal,
    text_in,
)
from elision.trajectory.trajectory import Problem
from elision.trajectory.turn import Part, make_content
from elision.trajectory.usage import Usage

_ATTACHMENT = "attachment://"


class InspectAiReader:
    name = "inspect-ai"

    def sniff(self, document: Document) -> bool:
        if document.data.startswith(ZIP_START):
            try:
                return is_inspect_log(ZipMembers(document.path, document.data))
            except FormatError:
                return False
        value = peek_value(document, '"eval"', '"samples"')
        return isinstance(value, dict) and isinstance(value.get("eval"), dict) and "samples" in value

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        if document.data.startswith(ZIP_START):
            members = ZipMembers(document.path, document.data)
            # A log that was cut off has no header yet, but its start.
            header = next((name for name in INSPECT_HEADERS if name in members.names), None)
            model = _read_model(mapping_in(_read_member_json(members, document, header))) if header else ""
            samples = _read_zip_samples(members, document)
        else:
            log = mapping_in(read_json_value(document))
            model = _read_model(log)
            samples = _read_json_samples(log, document)
        for sample in samples:
            if isinstance(sample, Problem):
                yield sample
            else:
                yield from _read_sample(document, sample, model, self.name)


# --- samples -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sample:
    """A sample with the file to name in its problems, and its number where the file holds several."""

    place: str
    number: int | None
    value: Json


def _read_model(log: Json) -> str:
    return text_in(mapping_in(log.get("eval")).get("model"))


def _read_member_json(members: ZipMembers, document: Document, name: str) -> Any:
    return read_json_value(Document(f"{document.path}!{name}", members.read_member(name)))


def _read_json_samples(log: Json, document: Document) -> Iterator[_Sample | Problem]:
    for number, sample in enumerate(list_in(log.get("samples")), start=1):
        if isinstance(sample, dict):
            yield _Sample(document.path, number, sample)
        else:
            yield Problem(file=document.path, line=number, reason="a sample that is not an object; left out")


def _read_zip_samples(members: ZipMembers, document: Document) -> Iterator[_Sample | Problem]:
    for name in members.names:
        folder, _, file = name.removeprefix("samples/").rpartition("/")
        whole = not folder and file.endswith(".json") and name.startswith("samples/")
        if not whole and not (folder and file == "sample.json" and name.startswith("samples/")):
            continue
        place = f"{document.path}!{name}"
        try:
            value: Json = mapping_in(_read_member_json(members, document, name))
            if not whole:
                value = _join_chunks(members, document, name, value)
            yield _Sample(place, None, value)
        except FormatError as error:
            yield Problem(file=place, line=None, reason=str(error).removeprefix(f"{place}: "))


def _join_chunks(members: ZipMembers, document: Document, name: str, shell: Json) -> Json:
    """Join a sample of log version 3: its lists are in chunks named by the number of their first entry.

    Attachments have numbers instead of hashes there, and the conversation is a list of ranges of messages.
    """
    folder = name.removesuffix("sample.json")
    messages, events, attachments = (
        _read_sequence(members, document, f"{folder}{part}/") for part in ("messages", "events", "attachments")
    )
    conversation: list[Any] = []
    for ref in list_in(shell.get("message_refs")):
        if isinstance(ref, list) and len(ref) == 2:
            conversation += messages[count_in(ref[0]) : count_in(ref[1])]
    return {
        **shell,
        "messages": conversation,
        "events": events,
        "attachments": {str(number): text for number, text in enumerate(attachments)},
    }


def _read_sequence(members: ZipMembers, document: Document, prefix: str) -> list[Any]:
    starts = {
        name.removeprefix(prefix).removesuffix(".json"): name for name in members.names if name.startswith(prefix)
    }
    chunks = sorted((int(start), name) for start, name in starts.items() if start.isdecimal())
    entries: list[Any] = []
    for _, name in chunks:
        entries += list_in(_read_member_json(members, document, name))
    return entries


# --- runs --------------------------------------------------------------------------------------------------------


def _read_sample(document: Document, sample: _Sample, model: str, format: str) -> Iterator[RunOrProblem]:
    """Yield the run of one sample, if a model said anything in it, and its problems."""
    assembler = Assembler(sample.place)
    name = f"{sample.value.get('id', sample.number or 1)} epoch {count_in(sample.value.get('epoch')) or 1}"
    try:
        _SampleFeeder(assembler, sample).feed_sample()
        run = assembler.finish(name, format=format, model=model)
    except RecursionError:
        yield Problem(file=sample.place, line=sample.number, reason="nested too deeply to read; left out")
        return
    yield from yield_run(assembler, run)


@dataclass(frozen=True, slots=True)
class _ModelCall:
    """What a model event says about the message that it brought forth.

    tokens_before_compaction: of the compaction that preceded the call; None if there was none, -1 if it gave no number.
    """

    usage: Usage | None
    at: float | None
    tokens_before_compaction: int | None


class _SampleFeeder:
    """Feeds the messages of one sample to an assembler, with what its events know about them."""

    def __init__(self, assembler: Assembler, sample: _Sample) -> None:
        self._assembler = assembler
        self._line = sample.number
        self._attachments = mapping_in(sample.value.get("attachments"))
        self._messages = sample.value.get("messages")
        self._events = mappings_in(sample.value.get("events"))
        self._calls = _collect_calls(self._events)

    def feed_sample(self) -> None:
        # The tools of the first call that had any.
        offered = (mappings_in(event.get("tools")) for event in self._events if event.get("event") == "model")
        self._assembler.add_tools(self._resolve_attachments(next(filter(None, offered), [])))
        for message in list_in(self._messages):
            if isinstance(message, dict):
                self._add_message(self._resolve_attachments(message))
            else:
                self._assembler.report_problem(f"a JSON {type(message).__name__} instead of a message", self._line)

    def _resolve_attachments(self, value: Any) -> Any:
        """Return `value` with every attachment in its place."""
        if isinstance(value, str) and value.startswith(_ATTACHMENT):
            found = self._attachments.get(value.removeprefix(_ATTACHMENT))
            return found if isinstance(found, str) else value
        if isinstance(value, list):
            return [self._resolve_attachments(item) for item in value]
        if isinstance(value, dict):
            return {key: self._resolve_attachments(item) for key, item in value.items()}
        return value

    def _add_message(self, message: Json) -> None:
        role = message.get("role")
        if role == "assistant":
            self._add_assistant(message)
        elif role == "tool":
            self._add_result(message)
        elif role == "user":
            self._assembler.add_user(_parse_assistant(message).content)
        elif role in ("system", "developer"):
            self._assembler.add_system(_parse_assistant(message).content)
        else:
            self._assembler.report_problem(f"a message of unknown role {str(role)[:40]!r}; left out", self._line)

    def _add_assistant(self, message: Json) -> None:
        call = self._calls.get(text_in(message.get("id")))
        if call and call.tokens_before_compaction is not None:
            tokens_before = call.tokens_before_compaction
            self._assembler.add_compaction(tokens_before=None if tokens_before < 0 else tokens_before)
        said = _parse_assistant(message)
        self._assembler.take_assistant(
            said,
            usage=call.usage if call else None,
            at=call.at if call else None,
            model=text_in(message.get("model")),
            line=self._line,
        )

    def _add_result(self, message: Json) -> None:
        error = mapping_in(message.get("error"))
        # A tool that failed leaves no content; the agent is shown the error in its place.
        said = _parse_assistant(message).content or make_content(text_in(error.get("message")))
        self._assembler.add_result(
            text_in(message.get("tool_call_id")),
            said,
            tool=text_in(message.get("function")),
            error=bool(error),
            line=self._line,
        )


def _collect_calls(events: Sequence[Json]) -> Mapping[str, _ModelCall]:
    """Return message id -> the call that produced it. Calls that failed and were retried are left out."""
    calls: dict[str, _ModelCall] = {}
    compacted: int | None = None
    for event in events:
        if event.get("event") == "compaction":
            compacted = count_in(event.get("tokens_before")) or -1
        elif event.get("event") == "model" and not event.get("error"):
            output = mapping_in(event.get("output"))
            choices = mappings_in(output.get("choices")) or [{}]
            message = mapping_in(choices[0].get("message"))
            call = _ModelCall(_read_usage(output.get("usage")), parse_timestamp(event.get("timestamp")), compacted)
            calls[text_in(message.get("id"))] = call
            compacted = None
    return calls


def _read_usage(value: object) -> Usage | None:
    """Read a `ModelUsage`.

    Whether `input_tokens` include cache reads and writes depends on Inspect's version and the provider. They do if
    `total_tokens` is no more than input and output, unless the cache's share is larger than the whole.
    """
    counts = mapping_in(value)
    if "input_tokens" not in counts:
        return None
    prompt = count_in(counts.get("input_tokens"))
    output = count_in(counts.get("output_tokens"))
    read = count_in(counts.get("input_tokens_cache_read"))
    write = count_in(counts.get("input_tokens_cache_write"))
    inclusive = read + write <= prompt and count_in(counts.get("total_tokens")) == prompt + output
    usd = cost_in(counts.get("total_cost"))
    if inclusive:
        return Usage.from_inclusive(prompt=prompt, output=output, cache_read=read, cache_write=write, usd=usd)
    return Usage(input=prompt, output=output, cache_read=read, cache_write=write, usd=usd)


# --- messages ----------------------------------------------------------------------------------------------------


def _parse_assistant(message: Json) -> AssistantMessage:
    value = message.get("content")
    parts = list_in(value)
    said = join_contents(map(_parse_parts, parts)) if parts else parse_content(value)
    return AssistantMessage(
        content=said,
        reasoning=join_lines(_read_reasoning(mapping_in(item)) for item in parts),
        actions=tuple(read_call(call, name="function") for call in mappings_in(message.get("tool_calls"))),
    )


def _read_reasoning(part: Json) -> str:
    """Return reasoning in clear text: the text itself, or the summary of a redacted one."""
    if part.get("type") != "reasoning":
        return ""
    return text_in(part.get("summary") if part.get("redacted") else part.get("reasoning"))


def _parse_parts(item: Any) -> Iterator[Part]:
    part = mapping_in(item)
    if part.get("type") == "reasoning":
        if part.get("redacted"):
            secret = text_in(part.get("reasoning"))
            yield make_sealed("reasoning", part, secret, recognize_seal(secret))
    else:
        yield from parse_content(item)
