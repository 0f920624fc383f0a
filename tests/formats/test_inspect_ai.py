"""Inspect AI logs, as JSON and as zip."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from elision.errors import FormatError
from elision.formats import compressed_files
from elision.formats.document import Document
from elision.formats.inspect_ai import InspectAiReader
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.turn import Opaque, Text
from tests.corpus import CORPUS, needs_corpus
from tests.formats.found import separate

DATA = Path(__file__).parents[1] / "data" / "inspect_ai"

ASK = {"id": "m0", "role": "user", "content": "go"}
CALL = {
    "id": "m1",
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c", "function": "f", "arguments": {"x": 1}}],
}
RESULT = {"id": "m2", "role": "tool", "content": "r", "tool_call_id": "c", "function": "f"}


def fixture(name: str) -> Document:
    return Document(name, (DATA / name).read_bytes())


def log(*samples: Any) -> Document:
    return Document("x.json", json.dumps({"eval": {"model": "openai/m"}, "samples": list(samples)}).encode())


def sample(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"id": "s", "epoch": 2, "messages": list(messages), **more}


def model_event(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"event": "model", "output": {"choices": [{"message": message}], **more.pop("output", {})}, **more}


def archive(members: dict[str, Any]) -> Document:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as writer:
        for name, value in members.items():
            writer.writestr(name, value if isinstance(value, bytes) else json.dumps(value))
    return Document("x.eval", target.getvalue())


def read(document: Document) -> tuple[list[Trajectory], list[Problem]]:
    return separate(InspectAiReader().read(document))


def test_a_recorded_json_log() -> None:
    """Usage comes from the events, tools from the first call, long texts from the attachments."""
    (run,), problems = read(fixture("browser-excerpt.json"))
    assert InspectAiReader().sniff(fixture("browser-excerpt.json"))
    assert not problems
    assert (run.id, run.model, run.tool_turns, len(run.turns)) == ("1 epoch 1", "openai/gpt-4o-mini", 4, 5)
    assert [turn.usage.prompt if turn.usage else None for turn in run.turns] == [1124, 1568, 2732, 3896, 5915]
    assert [turn.usage.cache_read if turn.usage else None for turn in run.turns] == [0, 1024, 1536, 2688, 3840]
    assert [tool["name"] for tool in run.head.tools] == ["web_browser_go", "web_browser_click"]
    assert str(run.head.tools[0]["description"]).startswith("Navigate the web browser")
    assert "attachment://" not in repr(run)


def test_a_recorded_zip_with_deflated_members() -> None:
    """Samples of an .eval file are found by their names."""
    (run,), problems = read(fixture("log_message_deduplication.eval"))
    assert InspectAiReader().sniff(fixture("log_message_deduplication.eval"))
    assert not problems
    assert (run.id, run.tool_turns, run.model) == ("0 epoch 1", 5, "hardcoded/hardcoded")
    assert run.head.tools[1]["name"] == "python"


def test_a_recorded_zip_with_zstd_members() -> None:
    """Members packed with zstd are read; a call that failed and was tried again is no turn."""
    (run,), problems = read(fixture("retry-2-then-success-zstd.eval"))
    assert not problems
    assert (run.tool_turns, [turn.text for turn in run.turns]) == (0, ["ok"])


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"input_tokens": 100, "output_tokens": 5, "total_tokens": 105, "input_tokens_cache_read": 60}, (40, 60, 0)),
        ({"input_tokens": 10, "output_tokens": 5, "total_tokens": 105, "input_tokens_cache_read": 90}, (10, 90, 0)),
        ({"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_tokens_cache_write": 90}, (10, 0, 90)),
    ],
)
def test_the_total_tells_what_the_input_includes(counts: dict[str, int], expected: tuple[int, int, int]) -> None:
    """Input tokens include the cache where the total is input and output; never where the cache is the larger."""
    event = model_event(CALL, output={"usage": counts}, timestamp="2025-05-12T00:00:00+00:00")
    (run,), _ = read(log(sample(ASK, CALL, RESULT, events=[event])))
    usage = run.turns[0].usage
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write) == expected
    assert run.turns[0].at == 1747008000.0


def test_a_compaction_event_is_a_compaction() -> None:
    """It stands before the turn of the next call."""
    last = {"id": "m3", "role": "assistant", "content": "done"}
    events = [model_event(CALL), {"event": "compaction", "tokens_before": 900}, model_event(last)]
    (run,), _ = read(log(sample(ASK, CALL, RESULT, last, events=events)))
    assert [(c.before, c.tokens_before) for c in run.compactions] == [(2, 900)]


def test_a_failed_tool_shows_its_error() -> None:
    """A result with an error and no content is the error's message, as the agent was shown."""
    failed = {**RESULT, "content": "", "error": {"type": "timeout", "message": "too slow"}}
    (run,), _ = read(log(sample(ASK, CALL, failed)))
    (observation,) = run.turns[0].observations
    assert (observation.text, observation.error) == ("too slow", True)


def test_content_parts() -> None:
    """Reasoning is read, a redacted one is kept sealed beside its summary, images and server tools are opaque."""
    parts = [
        {"type": "reasoning", "reasoning": "why"},
        {"type": "reasoning", "reasoning": "A" * 64, "redacted": True, "summary": "because"},
        {"type": "text", "text": "look"},
        {"type": "image", "image": "attachment://abc"},
        {"type": "tool_use", "id": "w", "name": "web_search", "arguments": "{}", "result": "[]"},
    ]
    said = {"id": "m1", "role": "assistant", "content": parts}
    (run,), _ = read(log(sample(ASK, said, attachments={"abc": "data:image/png;base64,AA=="})))
    turn = run.turns[0]
    assert turn.reasoning == "why\nbecause"
    assert [part.kind for part in turn.content if isinstance(part, Opaque)] == ["reasoning", "image", "tool_use"]
    assert turn.content[1] == Text("look")
    assert isinstance(turn.content[2], Opaque)
    assert turn.content[2].data == {"type": "image", "image": "data:image/png;base64,AA=="}


def test_a_sample_in_chunks() -> None:
    """From log version 3 a sample's lists lie in chunks, and attachments have numbers."""
    folder = "samples/s_epoch_1/"
    made = archive(
        {
            "_journal/start.json": {"eval": {"model": "m"}},
            f"{folder}sample.json": {"id": "s", "epoch": 1, "message_refs": [[0, 1], [2, 4]]},
            f"{folder}messages/0.json": [ASK, {"role": "user", "content": "not here"}],
            f"{folder}messages/2.json": [CALL, {**RESULT, "content": "attachment://1"}],
            f"{folder}events/0.json": [model_event(CALL, output={"usage": {"input_tokens": 7, "output_tokens": 1}})],
            f"{folder}events/stats.json": {"x": 1},
            f"{folder}attachments/0.json": ["zero", "one"],
        }
    )
    (run,), problems = read(made)
    assert not problems
    assert (run.id, run.model, run.turns[0].observations[0].text) == ("s epoch 1", "m", "one")
    assert [message.text for message in run.head.messages] == ["go"]
    assert run.turns[0].usage is not None


def test_a_sample_without_an_assistant_yields_nothing() -> None:
    """A sample that failed before its first call is neither a run nor an error."""
    assert read(log(sample(ASK), sample())) == ([], [])


def test_broken_samples_are_problems_and_the_rest_is_read() -> None:
    """A member that is no JSON, a sample that is not an object, a message that is none."""
    made = archive(
        {"header.json": {}, "samples/a_epoch_1.json": b"{", "samples/b_epoch_1.json": sample(ASK, CALL, RESULT)}
    )
    runs, problems = read(made)
    assert [run.tool_turns for run in runs] == [1]
    assert [problem.file for problem in problems] == ["x.eval!samples/a_epoch_1.json"]
    runs, problems = read(log(7, sample(ASK, "junk", CALL, RESULT)))
    assert ([run.tool_turns for run in runs], [problem.line for problem in problems]) == ([1], [1, 2])


def test_a_damaged_member_is_a_problem() -> None:
    """Bytes that were changed are noticed by their checksum."""
    for name in ("log_message_deduplication.eval", "retry-2-then-success-zstd.eval"):
        data = bytearray((DATA / name).read_bytes())
        with zipfile.ZipFile(io.BytesIO(bytes(data))) as broken:
            info = next(info for info in broken.infolist() if info.filename.startswith("samples/"))
        at = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
        data[at : at + 8] = b"\0" * 8
        runs, problems = read(Document("x.eval", bytes(data)))
        assert (runs, len(problems)) == ([], 1)


def test_a_zip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that unpacks beyond the limit is a Problem, whatever size its header claims."""
    made = archive({"header.json": {}, "samples/a_epoch_1.json": b" " * 100_000})
    monkeypatch.setattr(compressed_files, "MEMBER_SIZE_LIMIT", 10_000)
    runs, problems = read(made)
    assert not runs
    assert "refused" in problems[0].reason


def test_what_is_no_log_raises_or_is_not_taken() -> None:
    """A cut-off zip and foreign files are not recognised; reading the zip says what is wrong."""
    cut = Document("x.eval", fixture("log_message_deduplication.eval").data[:3000])
    assert not InspectAiReader().sniff(cut)
    assert not InspectAiReader().sniff(archive({"word/document.xml": b"<x/>"}))
    assert not InspectAiReader().sniff(Document("x.json", b'{"messages": []}'))
    with pytest.raises(FormatError, match="broken zip"):
        list(InspectAiReader().read(cut))


@needs_corpus("recordings of Inspect AI")
@pytest.mark.parametrize(
    ("name", "turns"),
    [("browser.json.gz", 4), ("log_message_deduplication.eval", 5), ("retry-2-then-success-zstd.eval", 0)],
)
def test_the_corpus_is_read_whole(name: str, turns: int) -> None:
    """The tool turns of each log agree with the manifest, and nothing is lost."""
    data = (CORPUS / "inspect-ai" / name).read_bytes()
    runs, problems = read(Document(name, gzip.decompress(data) if name.endswith(".gz") else data))
    assert ([run.tool_turns for run in runs], problems) == ([turns], [])
