"""Reading a path with whichever reader fits."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from elision.errors import FormatError
from elision.formats import registry
from elision.formats.document import Document, RunOrProblem
from elision.formats.registry import READERS, find_reader, read_runs
from elision.formats.swe_agent import SweAgentReader
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head
from tests.formats.found import read_path
from tests.formats.test_bad_input import SAMPLES

DATA = Path(__file__).parents[1] / "data"


class Scripted:
    """A reader that claims every document and then does as told."""

    name = "scripted"

    def __init__(self, *steps: RunOrProblem | Exception) -> None:
        self.steps = steps

    def sniff(self, document: Document) -> bool:
        return True

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            yield step


def run(id: str) -> Trajectory:
    return Trajectory(id=id, head=Head(), turns=())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.json"
    path.write_text("{}")
    return path


def use(monkeypatch: pytest.MonkeyPatch, reader: object) -> None:
    monkeypatch.setattr(registry, "READERS", (reader,))


def test_names_are_unique() -> None:
    """Every format has a name of its own."""
    names = [reader.name for reader in READERS]
    assert len(set(names)) == len(names) == 20


#: The readers of folders with other names.
OWN = {"elision_export": "elision", "openhands": "openhands-output", "tau2": "tau2-bench"}


@pytest.mark.parametrize("sample", SAMPLES, ids=[path.relative_to(DATA).as_posix() for path in SAMPLES])
def test_a_recording_is_known_to_its_own_reader_alone(sample: Path) -> None:
    """Whatever the file is called. The conversation in a trajectory of mini-swe-agent is a chat, too."""
    folder = sample.relative_to(DATA).parts[0]
    own = OWN.get(folder, folder.replace("_", "-"))
    document = Document("x", sample.read_bytes())
    found = [reader.name for reader in READERS if reader.sniff(document)]
    assert found == [own] or found == ["mini-swe-agent", "openai-chat"] == [own, "openai-chat"]
    assert find_reader(document).name == own


STEP = '{"action": "ls", "observation": "a.py", "response": "x", "thought": "x", "timestamp": 1}'
#: What resembles a recording and is none.
FRAGMENTS = (
    *("", "[]", "{}", "5", "\xff\xfe", '{"schema', '{"messages": []}', '{"info": {}}', '{"history": 5}'),
    *('{"schema_version": "ATIF-v1.7"}', '{"schema_version": "2", "steps": []}', '{"steps": [{"messages": []}]}'),
    *('{"type": "message", "message": {"role": "user"}}', '{"type": ["user"], "uuid": 1}', '{"type": "span.x"}'),
    *('{"type": ["event_msg"], "payload": {}}', '{"type": ["session"], "id": 1, "cwd": 2}', '{"sessionId": "s"}'),
    *('{"type": "user", "message": {"role": "user"}, "uuid": "u"}', '{"data": [{"type": "agent"}]}', f"[{STEP}]"),
    *('{"trajectory_format": "other", "note": "mini-swe-agent"}', '{"simulations": [{"name": "weather"}]}'),
    *('{"trajectory": [], "history": [{"observation": 1, "action": 2}]}', '{"history": [{"role": "user"}]}'),
    *('{"history": [{"role": "user", "content": "Orchestrator ("}]}', '[{"info": {"role": "x"}, "parts": []}]'),
    *('[{"role": "user", "parts": []}]', '{"messages": [{"role": "user", "parts": []}]}', '[1, "timestamp action"]'),
    *('[{"role": "system", "parts": [1]}]', '{"llm_interactions": [], "x": "agent_steps"}'),
)


@pytest.mark.parametrize(
    ("text", "takers"),
    [
        *((text, []) for text in FRAGMENTS),
        ('{"type": "function_call", "call_id": "c"}', ["openai-responses"]),
        ('{"role": "user", "content": "x"}', ["openai-chat"]),
        ('[{"role": "user", "content": "agent."}]', ["openai-chat"]),
        (f'{{"trajectory": [{STEP}]}}', ["swe-agent"]),
    ],
)
def test_fragments_are_taken_by_nobody_else(text: str, takers: list[str]) -> None:
    """An item, a message or a step may stand alone for the reader whose it is."""
    document = Document("x", text.encode("latin-1"))
    assert [reader.name for reader in READERS if reader.sniff(document)] == takers


def test_a_folder_gives_all_its_runs() -> None:
    """Every recording below a folder is read, each run with the file it stands in."""
    runs, _ = read_path(DATA / "swe_agent")
    assert [(Path(item.file).name, item.id) for item in runs] == [("text.traj", "text"), ("tools.traj", "tools")]


def test_only_candidates_in_a_folder_are_reported(tmp_path: Path) -> None:
    """In a folder a file called like a recording, but none, is a Problem; others are passed over."""
    (tmp_path / "a.traj").write_bytes((DATA / "swe_agent" / "text.traj").read_bytes())
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "data").write_text('{"name": "x"}')
    runs, problems = read_path(tmp_path)
    assert len(runs) == 1
    assert [Path(problem.file).name for problem in problems] == ["package.json"]


def test_an_unknown_file_names_the_formats() -> None:
    """A single file in no known format is an error that names the formats and how the file begins."""
    with pytest.raises(FormatError) as caught:
        read_path(DATA / "swe_agent" / "README.md")
    message = str(caught.value)
    assert "'Hand-made after" in message
    assert all(reader.name in message for reader in READERS)


def test_broken_json_says_where(tmp_path: Path) -> None:
    """A recording whose JSON breaks off is reported as that, not as an unknown format."""
    path = tmp_path / "run.traj"
    path.write_bytes((DATA / "swe_agent" / "text.traj").read_bytes()[:900])
    with pytest.raises(FormatError, match=r"run\.traj: \d+:\d+: broken JSON .*cut off"):
        read_path(path)


def test_a_folder_without_runs(tmp_path: Path) -> None:
    """A folder that holds no run is an error that gives the first reason."""
    (tmp_path / "package.json").write_text('{"name": "x"}')
    with pytest.raises(FormatError, match=r"no trajectory in it\. First problem: .*package\.json"):
        read_path(tmp_path)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "human", "content": "go"},
        {"type": "human", "data": {"content": "go"}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {}},
    ],
)
def test_messages_of_langchain_are_named(message: object, tmp_path: Path) -> None:
    """The error says how to save them in a format that is read."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps([message]), encoding="utf-8")
    with pytest.raises(FormatError, match=r"LangChain's own messages; save what .*convert_to_openai_messages"):
        list(read_runs(path))


def test_a_broken_first_line_does_not_hide_the_format(tmp_path: Path) -> None:
    """JSON lines are recognised although their first line is broken."""
    path = tmp_path / "output.jsonl"
    path.write_bytes(b'{"instance_id": "cut\n' + (DATA / "openhands" / "output.jsonl").read_bytes())
    runs, problems = read_path(path)
    assert len(runs) == 3
    assert [problem.line for problem in problems] == [1]


def test_repeated_ids_are_told_apart(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one file keep distinct ids, whatever the reader called them."""
    use(monkeypatch, Scripted(run("main"), run("main"), run("main (1)"), run("main")))
    runs, _ = read_path(file)
    ids = [item.id for item in runs]
    assert ids[0] == "main"
    assert len(set(ids)) == 4


@pytest.mark.parametrize("error", [ValueError("v"), RecursionError("r")])
def test_a_reader_that_trips_is_contained(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """Whatever malformed content makes a reader raise becomes a logged Problem; runs before it are kept."""
    use(monkeypatch, Scripted(run("first"), error))
    with caplog.at_level(logging.WARNING):
        runs, problems = read_path(file)
    assert [item.id for item in runs] == ["first"]
    assert type(error).__name__ in problems[0].reason
    assert problems[0].kind == "input"
    assert "scripted" in caplog.text


@pytest.mark.parametrize("error", [KeyError("k"), IndexError("i"), TypeError("t"), AttributeError("a")])
def test_a_bug_in_a_reader_is_reported_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """An error that a file should not cause is a Problem of kind "bug" with its place; other files are read."""
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{}")
    use(monkeypatch, Scripted(run("first"), error))
    with caplog.at_level(logging.ERROR):
        runs, problems = read_path(tmp_path)
    assert [item.id for item in runs] == ["first", "first"]
    assert [problem.kind for problem in problems] == ["bug", "bug"]
    assert "a bug in Elision's scripted reader" in problems[0].reason
    assert "test_registry.py:" in problems[0].reason
    assert "Traceback" in caplog.text


def test_a_bug_in_a_sniff_is_reported_as_ours(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that fails while it looks at a file is reported, even if no reader knows the file."""

    class Failing(Scripted):
        def sniff(self, document: Document) -> bool:
            raise TypeError("x")

    use(monkeypatch, Failing())
    _, problems = read_path(file)
    assert [problem.kind for problem in problems] == ["bug", "input"]


def test_a_lack_of_memory_is_not_hidden(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory nothing more can be read: the error is raised."""
    use(monkeypatch, Scripted(MemoryError()))
    with pytest.raises(MemoryError):
        read_path(file)


def test_a_sniff_that_raises_is_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that trips while sniffing does not keep the others from being asked."""

    class Tripping(Scripted):
        def sniff(self, document: Document) -> bool:
            raise TypeError("x")

    swe = SweAgentReader()
    monkeypatch.setattr(registry, "READERS", (Tripping(), swe))
    assert find_reader(Document("x", (DATA / "swe_agent" / "text.traj").read_bytes())) is swe


def test_a_format_error_in_a_folder_is_a_problem(tmp_path: Path) -> None:
    """A file that its reader cannot read at all costs itself alone when it was not named."""
    (tmp_path / "a.json").write_text(json.dumps({"trajectory_format": "mini-swe-agent-1"}))
    (tmp_path / "b.traj").write_bytes((DATA / "swe_agent" / "text.traj").read_bytes())
    runs, problems = read_path(tmp_path)
    assert len(runs) == 1
    assert "no `messages`" in problems[0].reason
    with pytest.raises(FormatError, match="no `messages`"):
        read_path(tmp_path / "a.json")


def test_silence_is_reported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recognised file in which the reader finds nothing at all is a Problem."""
    use(monkeypatch, Scripted())
    assert "without any assistant message" in read_path(file)[1][0].reason


@pytest.mark.parametrize("data", ["", '{"messages": [{"role": "user"'])
def test_formats_are_named_only_where_the_format_is_what_is_wrong(tmp_path: Path, data: str) -> None:
    """Behind an empty or broken file the list of formats would only hide the cause."""
    path = tmp_path / "x.json"
    path.write_text(data)
    for asked in (path, tmp_path):
        with pytest.raises(FormatError) as caught:
            read_path(asked)
        assert "ormats known" not in str(caught.value)


def test_formats_have_their_article(tmp_path: Path) -> None:
    """A name that begins with a vowel is \"an\"."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"role": "user", "content": "hi"}]))
    _, (problem,) = read_path(path)
    assert problem.reason == "an openai-chat file without any assistant message"
