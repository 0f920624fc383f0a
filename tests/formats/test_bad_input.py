"""Bad input gives a clear error or a Problem, never a traceback, and costs nothing else."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elision.errors import FormatError
from elision.formats.document import Document
from elision.formats.registry import READERS, find_reader, read_runs
from elision.trajectory.trajectory import Problem, Trajectory
from tests.formats.found import encode_lines, make_document, make_lines, read_path, separate
from tests.soak import SOAK

DATA = Path(__file__).parents[1] / "data"
#: Recordings that are folders; their files are damaged in their place.
FOLDERS = [DATA / name for name in ("openhands/conversation", "openhands/session", "opencode/storage")]
SAMPLES = sorted(
    path
    for path in DATA.rglob("*")
    if path.suffix in (".json", ".jsonl", ".traj", ".eval")
    and "extractors" not in path.parts
    and not any(folder in path.parents for folder in FOLDERS)
)
MB = 2**20
Place = tuple[str | int, ...]


def error_of(path: Path) -> str:
    with pytest.raises(FormatError) as caught:
        list(read_runs(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def chat(*messages: dict[str, Any]) -> str:
    return json.dumps({"messages": list(messages)})


def call(id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "bash", "arguments": "{}"}}


GOOD = chat(
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": None, "tool_calls": [call("c1")]},
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
)


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_truncated_gzip(tmp_path: Path) -> None:
    """Of JSON lines in a truncated gzip all whole lines are read; the break and the last line are Problems."""
    noise = random.Random(1).randbytes(100_000).hex()
    lines = [GOOD] * 3 + [chat({"role": "user", "content": noise})]
    path = write(tmp_path / "x.jsonl.gz", gzip.compress("\n".join(lines).encode())[:-10_000])
    runs, problems = read_path(path)
    assert [run.tool_turns for run in runs] == [1, 1, 1]
    assert any("breaks off" in problem.reason for problem in problems)
    assert any(problem.line == 4 for problem in problems)


def test_truncated_gzip_of_one_value(tmp_path: Path) -> None:
    """A single JSON value in a truncated gzip is an error that says where it is cut off."""
    data = (DATA / "swe_agent" / "text.traj").read_bytes()
    path = write(tmp_path / "x.traj.gz", gzip.compress(data, compresslevel=1)[:-300])
    assert "cut off" in error_of(path)


def test_invalid_utf8(tmp_path: Path) -> None:
    """A line that is not UTF-8 is a Problem with its place; the lines around it are read."""
    path = write(tmp_path / "x.jsonl", GOOD.encode() + b'\n{"messages": "\xff"}\n' + GOOD.encode())
    runs, problems = read_path(path)
    assert len(runs) == 2
    assert [(problem.line, "not UTF-8" in problem.reason) for problem in problems] == [(2, True)]


def test_invalid_utf8_in_one_value(tmp_path: Path) -> None:
    """A single value that is not UTF-8 is an error with line and column."""
    data = (DATA / "swe_agent" / "text.traj").read_bytes().replace(b"a.py", b"\xffpy", 1)
    assert "is not UTF-8" in error_of(write(tmp_path / "x.traj", data))


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A line of 70 MB between two good ones, compressed to some hundred KB."""
    path = tmp_path_factory.mktemp("huge") / "x.jsonl.gz"
    begin, end = (
        gzip.compress(text) for text in (GOOD.encode() + b'\n{"messages": "', b'"}\n' + GOOD.encode() + b"\n")
    )
    # Members in a row are one file.
    path.write_bytes(begin + 70 * gzip.compress(b"a" * MB) + end)
    return path


def test_a_line_of_70_mb(huge: Path) -> None:
    """An enormous line is skipped with a Problem, the lines around it are read, and it is never copied."""
    tracemalloc.start()
    runs, problems = read_path(huge)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(runs) == 2
    assert ["70 MB, over the limit" in problem.reason for problem in problems] == [True]
    assert peak < 105 * MB  # the decompressed file itself, and room for its buffer to grow


def test_20_mb_of_nothing(tmp_path: Path) -> None:
    """20 MB that are no JSON are refused by their first bytes."""
    path = tmp_path / "x.json.gz"
    path.write_bytes(20 * gzip.compress(b"a" * MB))
    assert "begins with 'aaa" in error_of(path)


def test_a_folder_without_runs(tmp_path: Path) -> None:
    """A folder without recordings, or an empty one, is an error."""
    assert "no trajectory in it" in error_of(tmp_path)
    write(tmp_path / "notes.txt", "hello")
    assert "no trajectory in it" in error_of(tmp_path)


@pytest.mark.parametrize("circle", [("a", "a"), ("b", "a"), ("c", "b")])
def test_cyclic_parents(tmp_path: Path, circle: tuple[str, str]) -> None:
    """Records that are their own ancestors do not hang the reader."""
    parents = {"a": circle[0], "b": "a", "c": circle[1]}
    records = [
        {
            "type": "user" if id == "a" else "assistant",
            "uuid": id,
            "parentUuid": parent,
            "sessionId": "s",
            "timestamp": "2025-01-01T00:00:00Z",
            "message": {"role": "user" if id == "a" else "assistant", "id": id, "content": "hi"},
        }
        for id, parent in parents.items()
    ]
    runs, _ = read_path(write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, records))))
    assert sum(len(run.turns) for run in runs) == 2


def test_turns_without_results(tmp_path: Path) -> None:
    """A call that nobody answered is a turn without observations, not a tool turn."""
    unanswered = {"role": "assistant", "content": None, "tool_calls": [call("c1"), call("c2")]}
    runs, problems = read_path(write(tmp_path / "x.json", chat({"role": "user", "content": "go"}, unanswered)))
    assert [(len(run.turns), run.tool_turns) for run in runs] == [(1, 0)]
    assert problems == []


def test_results_without_calls(tmp_path: Path) -> None:
    """A result that answers no call is a Problem; the turns around it are read."""
    data = json.loads(GOOD)
    data["messages"].insert(1, {"role": "tool", "tool_call_id": "c0", "content": "lost"})
    runs, problems = read_path(write(tmp_path / "x.json", json.dumps(data)))
    assert [run.tool_turns for run in runs] == [1]
    assert ["'c0'" in problem.reason for problem in problems] == [True]


def test_deep_nesting(tmp_path: Path) -> None:
    """JSON nested beyond reason is an error or a Problem, not a RecursionError."""
    deep = '{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}"
    assert "nested too deeply" in error_of(write(tmp_path / "x.json", deep))
    runs, problems = read_path(write(tmp_path / "x.jsonl", f"{GOOD}\n{deep}\n{GOOD}"))
    assert len(runs) == 2
    assert [problem.line for problem in problems] == [2]


@pytest.mark.parametrize("depth", [150, 400, 900])
def test_nesting_that_json_can_read(tmp_path: Path, depth: int) -> None:
    """Nesting that the JSON parser survives, but recursive code may not, is contained too."""
    data = json.loads(GOOD)
    data["messages"][1]["content"] = [{"type": "odd", "x": json.loads("[" * depth + '"\\ud800"' + "]" * depth)}]
    path = write(tmp_path / "x.jsonl", f"{GOOD}\n{json.dumps(data)}\n{GOOD}")
    runs, problems = read_path(path)
    assert len(runs) + len(problems) >= 3


@pytest.mark.parametrize("data", [b"", b"\n\n", gzip.compress(b"", mtime=0)])
def test_an_empty_file(tmp_path: Path, data: bytes) -> None:
    """An empty file is an error."""
    assert "x.json" in error_of(write(tmp_path / "x.json", data))


def test_a_picture(tmp_path: Path) -> None:
    """A PNG is an error that shows how it begins and names the formats."""
    message = error_of(write(tmp_path / "x.png", b"\x89PNG\r\n\x1a\n" + bytes(100)))
    assert "PNG" in message
    assert "swe-agent" in message


def test_a_symlink_loop(tmp_path: Path) -> None:
    """A link to itself is an error when named, a Problem or nothing inside a folder; its neighbours are read."""
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    (tmp_path / "up").symlink_to(tmp_path)
    write(tmp_path / "x.json", GOOD)
    assert "cannot be read" in error_of(loop)
    runs, problems = read_path(tmp_path)
    assert len(runs) == 1
    assert [Path(problem.file).name for problem in problems] == ["loop.json"]


def test_a_broken_zip(tmp_path: Path) -> None:
    """A file that begins like an Inspect log and is none is an error or a Problem."""
    write(tmp_path / "x.eval", b"PK\x03\x04" + bytes(200))
    write(tmp_path / "y.json", GOOD)
    runs, problems = read_path(tmp_path)
    assert len(runs) == 1
    assert [Path(problem.file).name for problem in problems] == ["x.eval"]


def damaged(data: bytes, dice: random.Random) -> Iterator[bytes]:
    """Cut off, with a byte changed, with a piece missing."""
    for _ in range(4):
        at = dice.randrange(1, len(data))
        yield data[:at]
        yield data[: at - 1] + bytes([dice.randrange(256)]) + data[at:]
        yield data[: at // 2] + data[at:]


#: What may stand where a recorder should have put something else.
ODD: tuple[Any, ...] = (
    None,
    0,
    -1,
    10**400,
    float("nan"),
    "",
    "x",
    True,
    [],
    {},
    [None],
    [[]],
    {"type": 1},
    [{"id": 3}],
)


def survives(path: Path) -> None:
    """Reading `path` ends in values, Problems or a FormatError."""
    with contextlib.suppress(FormatError):
        assert all(isinstance(item, Trajectory | Problem) for item in read_runs(path))


@pytest.mark.parametrize("sample", SAMPLES, ids=[path.relative_to(DATA).as_posix() for path in SAMPLES])
def test_damaged_files(tmp_path: Path, sample: Path) -> None:
    """Every sample, cut or with bytes changed, is read or refused."""
    dice = random.Random(sample.name)
    for data in damaged(sample.read_bytes(), dice):
        survives(write(tmp_path / sample.name, data))


#: What tells the records of a list apart, where they are of several kinds.
KINDS = ("type", "role", "event", "event_type", "action", "observation", "kind", "source")


def list_places(value: Any, field: tuple[str, ...] = (), path: Place = ()) -> Iterator[tuple[tuple[str, ...], Place]]:
    """Yield each place in `value`: its field, which has the kinds of records in it, and the path to it."""
    yield field, path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from list_places(item, (*field, name), (*path, name))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            kinds = (item.get(name) for name in KINDS) if isinstance(item, dict) else ()
            kind = next((kind for kind in kinds if isinstance(kind, str)), "*")
            yield from list_places(item, (*field, kind), (*path, at))


def replace_at(value: Any, path: Place, odd: Any) -> Any:
    """Return a copy of `value` with `odd` at `path`."""
    if not path:
        return odd
    copy = value.copy()
    copy[path[0]] = replace_at(value[path[0]], path[1:], odd)
    return copy


@pytest.mark.parametrize("sample", SAMPLES, ids=[path.relative_to(DATA).as_posix() for path in SAMPLES])
def test_odd_values(sample: Path) -> None:
    """Every field of every sample with a value of the wrong type is read or refused, and its reader needs no rescue."""
    if sample.suffix == ".eval":
        pytest.skip("a zip")
    name = sample.relative_to(DATA).as_posix()
    reader = next(each for each in READERS if each.sniff(Document(name, sample.read_bytes())))
    text = sample.read_text()
    value = [load_line(line) for line in text.splitlines()] if sample.suffix == ".jsonl" else json.loads(text)
    fields = {field: path for field, path in reversed([*list_places(value)]) if path}
    for number, path in enumerate(fields.values()):
        for odd in ODD if SOAK else [ODD[number % len(ODD)]]:
            changed = replace_at(value, path, odd)
            data = encode_lines(*changed) if sample.suffix == ".jsonl" else json.dumps(changed).encode()
            document = Document(name, data)
            with contextlib.suppress(FormatError):
                reader.sniff(document)
                assert all(isinstance(item, Trajectory | Problem) for item in reader.read(document))


def load_line(line: str) -> Any:
    """Return what a line holds; a broken one as it is."""
    try:
        return json.loads(line)
    except ValueError:
        return line


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.relative_to(DATA).as_posix() for folder in FOLDERS])
def test_odd_values_in_folders(tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A recording that is a folder, with one file of it damaged or with a value of the wrong type, is read or refused,
    and no reader needs rescue for it."""
    dice = random.Random(folder.name)
    copy = Path(shutil.copytree(folder, tmp_path / folder.name))
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    # Each time the folder is read 13 times.
    for _ in range(60 if SOAK else 8):
        file = dice.choice(files)
        whole = file.read_bytes()
        value = json.loads(whole)
        for data in (
            json.dumps(replace_at(value, dice.choice([*list_places(value)])[1], dice.choice(ODD))).encode(),
            *damaged(whole, dice),
        ):
            survives(write(file, data).parents[len(file.relative_to(copy).parts) - 1])
        write(file, whole)
    assert [record.getMessage() for record in caplog.records] == []


def test_an_event_folder_with_everything_broken(tmp_path: Path) -> None:
    """A conversation folder of which every file is broken is an error, file by file reported."""
    shutil.copytree(DATA / "openhands" / "conversation", tmp_path / "c")
    for path in (tmp_path / "c").rglob("*.json"):
        write(path, b"\xff")
    assert "no trajectory in it" in error_of(tmp_path)


GO, HI = {"role": "user", "content": "go"}, {"role": "assistant", "content": "hi"}
STOP = {"role": "system", "content": "Stop."}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
PARTS = [{"type": "text", "text": "hi"}]
CALLS = [{"id": "c", "name": "n", "result": "one"}, {"id": "d", "name": "n"}]
ENTRY = {"type": "attachment", "uuid": "f", "parentUuid": "u", "sessionId": "s"}
END = "span.model_request_end"
RESPONSE = ("user.message", END, "span.model_request_start", "agent.message", END, END)


def put_message(name: str, field: str, start: int, end: int, message: dict[str, Any]) -> Any:
    """Return a sample with a message in place of `start` ... `end` of its list `field`."""
    value = json.loads((DATA / name).read_text())
    value[field][start:end] = [message]
    return value


#: What no sample has: who reads it, and the texts of its turns, their results, and what came between. Lines in tuples.
UNUSUAL: tuple[tuple[str, Any, list[str]], ...] = (
    ("anthropic-messages", {"messages": [GO, {"role": "assistant", "content": [USE]}, STOP, HI]}, ["", "Stop.", "hi"]),
    (
        "atif",
        {
            "schema_version": "ATIF-v1.7",
            "steps": [
                {"source": "user", "message": "go"},
                {
                    "source": "agent",
                    "message": "hi",
                    "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {}}],
                    "observation": {"results": [{"content": "seen"}, {"content": "more"}]},
                },
            ],
        },
        ["hi", "seen", "more"],
    ),
    (
        "claude-code",
        (
            {**ENTRY, "type": "user", "uuid": "u", "parentUuid": None, "message": GO},
            {**ENTRY, "attachment": {"type": "hook_blocking_error", "blockingError": {"blockingError": "no"}}},
            {**ENTRY, "type": "assistant", "uuid": "a", "parentUuid": "f", "message": {**HI, "id": "a"}},
            {**ENTRY, "uuid": "g", "parentUuid": "a", "attachment": {"type": "hook_blocking_error"}},
        ),
        ["hi"],
    ),
    (
        "gemini-cli",
        [
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
            {"role": "model", "parts": [{"text": "hi"}]},
        ],
        ["hi"],
    ),
    (
        "gemini-cli",
        (
            {"sessionId": "s", "projectHash": "p"},
            {"id": "g", "type": "gemini", "content": "hi", "toolCalls": CALLS},
            {"id": "g", "type": "gemini", "content": "hi", "toolCalls": [{**CALLS[0], "result": "two"}]},
        ),
        ["hi", "one"],
    ),
    ("inspect-ai", {"eval": {"model": "m"}, "samples": [{"id": "s", "messages": [GO, HI, STOP]}]}, ["hi", "Stop."]),
    (
        "magentic-one",
        {
            "history": [
                {"role": "human", "content": "go"},
                {"role": "Orchestrator (-> A)", "content": "do"},
                {"role": "A", "content": "done"},
            ]
        },
        ["", "done"],
    ),
    ("managed-agents", tuple({"id": "e", "type": kind, "content": PARTS} for kind in RESPONSE), ["hi"]),
    (
        "mini-swe-agent",
        put_message("mini_swe_agent/tools.traj.json", "messages", 5, 6, HI),
        ["", "a.py", "No such file", "hi"],
    ),
    (
        "opencode",
        {
            "info": {"id": "s"},
            "messages": [
                {"info": {"role": "user"}, "parts": PARTS},
                {"info": {"role": "assistant"}, "parts": [{"type": "file"}]},
                {"info": {"role": "assistant"}, "parts": PARTS},
            ],
        },
        ["hi"],
    ),
    (
        "swe-agent",
        put_message("swe_agent/tools.traj", "history", 4, 4, {"role": "user", "content": "And?"}),
        ["Looking.", "OBSERVATION:\n./a.py", "And?", "Done.", "diff"],
    ),
    (
        "tau2-bench",
        {
            "domain": "airline",
            "model": "m",
            "simulations": [{"id": "x", "task_id": "1", "trial": 0, "messages": [GO, HI, STOP]}],
        },
        ["hi", "Stop."],
    ),
)


@pytest.mark.parametrize(("name", "value", "expected"), UNUSUAL, ids=[name for name, _, _ in UNUSUAL])
def test_what_no_sample_has(name: str, value: Any, expected: list[str]) -> None:
    """Words in the middle, responses in parts, calls that never ended: read without a Problem."""
    document = make_lines(*value) if isinstance(value, tuple) else make_document(value)
    assert find_reader(document).name == name
    (run,), problems = separate(find_reader(document).read(document))
    assert problems == []
    texts = [[turn, *turn.observations, *turn.interjections] for turn in run.turns]
    assert [each.text for turn in texts for each in turn] == expected
