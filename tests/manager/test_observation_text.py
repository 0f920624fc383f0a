"""What was hidden is read again: by handle, in part, by search, by the agent's own calls; across restarts."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from elision import Advanced
from elision.errors import UnknownHandle
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.context_options import RECALLED_WINDOW_TURNS
from elision.stores.memory import MemoryStore
from elision.stores.store import Hit
from elision.trajectory.tool_definitions import RECALL_TOOL, SEARCH_TOOL
from tests.manager.agents import LONG, make_history, make_openai_step

EAGER = "masking(window=2, schedule=every-turn)"


def walked(steps: int = 8, **options: Any) -> ContextManager:
    context = ContextManager(EAGER, session="s", **gather_options(options))
    for step in range(steps + 1):
        context.prepare(make_history("openai", step))
    return context


def test_a_handle_gives_the_very_text() -> None:
    """Word for word, whatever stands in the view by now."""
    assert walked().session.recall("t3.1") == f"3\n{LONG}"
    assert walked().session.recall("t3") == f"step 3\ncat f3.py\n\n[t3.1 bash]\n3\n{LONG}"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"lines": "2-3"}, "2: line 0: value 0\n3: line 1: value 977"),
        ({"lines": "121-"}, "121: line 119: value 116263"),
        ({"lines": "7"}, "7: line 5: value 4885"),
        ({"lines": "1"}, "1: 3"),
        ({"lines": "-2"}, "1: 3\n2: line 0: value 0"),
        ({"lines": "500-600"}, "[no line matches; there are 121 lines]"),
        ({"head": 1}, "1: 3"),
        (
            {"pattern": r"value 977$"},
            "1: 3\n2: line 0: value 0\n3: line 1: value 977\n4: line 2: value 1954\n5: line 3: value 2931",
        ),
        ({"pattern": "no such"}, "[no line matches; there are 121 lines]"),
    ],
)
def test_a_part_of_it(part: dict[str, Any], expected: str) -> None:
    """Lines, the first lines, or what matches with the lines around it; numbered."""
    assert walked().session.recall("t3.1", **part) == expected


def test_matches_far_apart_are_marked() -> None:
    """A gap between two matches shows."""
    assert "\n[...]\n" in walked().session.recall("t3.1", pattern="^line (5|90):")


@pytest.mark.parametrize(
    ("handle", "part"),
    [
        ("t99.1", {}),
        ("t1.9", {}),
        ("banana", {}),
        ("", {}),
        ("other:t1.1", {}),
        ("t3.1", {"lines": "x"}),
        ("t3.1", {"lines": "-"}),
        ("t3.1", {"pattern": "("}),
    ],
)
def test_what_is_not_there_is_told(handle: str, part: dict[str, Any]) -> None:
    """An error that says what is wrong; to the agent, in words."""
    context = walked()
    with pytest.raises(UnknownHandle):
        context.session.recall(handle, **part)
    answer = context.handle_tool_call(RECALL_TOOL, json.dumps({"handle": handle, **part}))
    assert answer is not None
    assert answer.startswith("[not found: ")


@pytest.mark.parametrize(
    "arguments",
    [
        "[" * 100_000,
        '{"handle": ' + "[" * 900 + "]" * 900 + "}",
        '{"handle": "t3.1", "lines": ' + "9" * 5_000 + "}",
        {"handle": "t3.1", "lines": 10**5_000},
        {"handle": "t3.1", "head": 10**5_000},
        {"handle": "t3.1", "head": -(10**5_000)},
        {"handle": "t\ud83d.1", "pattern": "\ud83d"},
        {"handle": "t3.1", "pattern": "\0"},
        {"handle": "t" + "9" * 5_000},
        {"handle": "t3.1", "pattern": "(" * 5_000 + ")" * 5_000},
        {"handle": "t3.1", "pattern": "(?:(?:(?:a{300}){300}){300})"},
        {"handle": "t3.1", "pattern": "(?<=a)b"},
        {"handle": None, "pattern": {}, "lines": [], "head": "x"},
    ],
)
def test_no_arguments_of_a_tool_call_raise(arguments: Any) -> None:
    """What a model writes is answered in a line of words, whatever it is."""
    context = walked()
    for name in (RECALL_TOOL, SEARCH_TOOL):
        assert isinstance(context.handle_tool_call(name, arguments), str)
    assert isinstance(context.handle_tool_call(SEARCH_TOOL, {"query": "\ud83d \0 value"}), str)


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURES: dict[str, tuple[str, Any, str]] = {
    "openai": (
        "openai",
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        "image_url, image/png, 72 bytes",
    ),
    "openai-responses": (
        "openai-responses",
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        "input_image, https://example.org/a.png",
    ),
    "anthropic": (
        "anthropic",
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        "image, image/png, 72 bytes",
    ),
}


@pytest.mark.parametrize("words", ["", "screen"])
@pytest.mark.parametrize("shape", PICTURES)
def test_a_hidden_picture_is_described(shape: str, words: str) -> None:
    """No text can stand for it: what it is is said, and how to see it again. Its bytes stay in the store."""
    dialect, picture, told = PICTURES[shape]
    kind = "input_text" if dialect == "openai-responses" else "text"
    parts = [*([{"type": kind, "text": words}] if words else []), picture]
    messages = make_history(shape, 4, LONG)
    for message in messages:
        if message.get("role") == "tool":
            message["content"] = parts
        if message.get("type") == "function_call_output":
            message["output"] = parts
        if message.get("role") == "user" and isinstance(message.get("content"), list):
            message["content"][0]["content"] = parts
    context = ContextManager(EAGER, session="s", store=(store := MemoryStore()), advanced=Advanced(dialect=dialect))  # type: ignore[arg-type]
    assert context.prepare(messages).diagnostics.savings.masked == 2
    line = f"[{told}: no text can stand for it; make the call again to see it]"
    expected = f"{words}\n{line}" if words else line
    assert context.session.recall("t1.1") == expected
    assert context.handle_tool_call(RECALL_TOOL, {"handle": "t1.1"}) == expected
    assert context.session.recall("t1").endswith(expected)
    assert json.dumps(picture) in json.dumps(
        [getattr(part, "data", None) for part in store.observation("s", (1, 1)).content]
    )


def test_a_failure_of_ours_is_told_to_the_model(caplog: pytest.LogCaptureFixture) -> None:
    """A store that breaks its promise makes no tool call raise; the log has the reason."""

    class Broken(MemoryStore):
        def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
            raise ZeroDivisionError("a bug")

    context = walked(store=Broken())
    assert context.handle_tool_call(SEARCH_TOOL, {"query": "value"}) == "[not found: the recall failed]"
    assert "ZeroDivisionError: a bug" in caplog.text


def test_long_results_are_cut_in_the_middle() -> None:
    """One recall hands out a few thousand tokens, and says how to get the rest."""
    context = ContextManager(EAGER, session="s")
    context.prepare([*make_history("openai", 0), *make_openai_step(1, "word " * 50_000)])
    text = context.session.recall("t1.1")
    assert len(text) < 17_000
    assert "characters left out; ask for lines or a pattern" in text


def test_search_finds_what_is_hidden() -> None:
    """All words, whatever their case, with a handle to read on."""
    hits = walked().session.search("VALUE 116263")
    assert [hit.handle for hit in hits] == [f"t{turn}.1" for turn in range(8, 0, -1)]
    (said,) = walked().session.search("step 5")
    assert said.handle == "t5"
    assert walked().session.recall(said.handle).startswith("step 5\ncat f5.py\n\n[t5.1 bash]\n5\n")


def test_the_agent_s_own_calls_are_answered() -> None:
    """Recall and search by tool call, arguments as text or object; anybody else's call is left alone."""
    context = walked()
    given = {"handle": "t3.1", "lines": "2-2"}
    assert context.handle_tool_call(RECALL_TOOL, json.dumps(given)) == "2: line 0: value 0"
    assert context.handle_tool_call(RECALL_TOOL, given) == "2: line 0: value 0"
    assert "t8.1 bash: " in (context.handle_tool_call(SEARCH_TOOL, {"query": "value 977"}) or "")
    assert context.handle_tool_call("bash", "{}") is None
    for junk in ("", "null", "[]", '{"handle": 7}', "{", '{"handle": "t3.1", "head": "x", "lines": []}'):
        assert isinstance(context.handle_tool_call(RECALL_TOOL, junk), str)


@pytest.mark.parametrize("dialect", ["openai", "openai-responses", "anthropic"])
def test_definitions_are_the_same_bytes(dialect: str) -> None:
    """Tools stand at the front of the prompt: a byte that changes there rewrites everything."""
    one, other = (json.dumps(ContextManager().tool_definitions(dialect)) for _ in range(2))
    assert one == other
    assert RECALL_TOOL in one


def test_what_was_recalled_stays_while_it_is_fresh() -> None:
    """What was recalled is not hidden again for some turns, whatever the window; then its placeholder says whose."""
    context = walked(6, recall="caller")
    recalled = context.session.recall("t1.1", by="tool")
    call = {"id": "r", "type": "function", "function": {"name": RECALL_TOOL, "arguments": '{"handle": "t1.1"}'}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [*make_history("openai", 6), asked, {"role": "tool", "tool_call_id": "r", "content": recalled}]
    for step in range(7, 7 + RECALLED_WINDOW_TURNS):
        assert context.prepare(messages).messages[14]["content"] == recalled
        messages += make_openai_step(step)
    view = context.prepare(messages)
    assert view.messages[14]["content"].startswith(f"[t7.1 {RECALL_TOOL}: ")
    assert view.diagnostics.recalls == 1
    assert view.diagnostics.costs.recalls > 0


def test_handles_live_as_long_as_the_store_keeps_the_turn(tmp_path: Path) -> None:
    """In another process, before anything is prepared; gone with the session."""
    url = f"sqlite:///{tmp_path}/a.db"
    walked(store=url).close()
    with ContextManager(EAGER, session="s", store=url) as context:
        assert context.session.recall("t2.1").startswith("2\n")
        assert context.session.search("value 977")
    with ContextManager(EAGER, session="other", store=url) as context, pytest.raises(UnknownHandle):
        context.session.recall("t2.1")


def test_before_anything_is_prepared_the_newest_branch_is_read() -> None:
    """A restarted agent's first call may be a recall: it is about the history that it was in."""
    context = walked(6)
    fork = [*make_history("openai", 4), *make_openai_step(50)]
    context.prepare(fork)
    again = ContextManager(EAGER, session="s", store=context._opened.store)
    assert again.session.recall("t5.1").startswith("50\n")
    assert [hit.handle for hit in again.session.search("step 50")] == ["t5"]


def test_where_recall_is_not_served_placeholders_name_no_handle() -> None:
    """Fixed when the session begins, also for a process that goes on with other settings."""
    context = walked(recall="never")
    assert "[bash: f1.py" in json.dumps(context.prepare(make_history("openai", 8)).messages)
    store = context._opened.store
    again = ContextManager(EAGER, session="s", store=store, recall="caller")
    assert "[bash: f7.py" in json.dumps(again.prepare(make_history("openai", 9)).messages)


def test_who_gives_up_waits_for_the_end() -> None:
    """A recall whose caller is gone is at its end before anything else is done with the session."""
    begun, go, steps = threading.Event(), threading.Event(), list[str]()

    class Slow(MemoryStore):
        def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
            begun.set()
            go.wait(10)
            steps.append("searched")
            return super().search(session, query, limit)

    async def test() -> None:
        context = walked(store=Slow())
        asking = asyncio.ensure_future(context.handle_tool_call_async(SEARCH_TOOL, {"query": "value"}))
        await asyncio.to_thread(begun.wait, 10)
        asking.cancel()
        following = asyncio.ensure_future(context.prepare_async(make_history("openai", 9)))
        await asyncio.wait({asking, following}, timeout=0)
        go.set()
        await following
        steps.append("prepared")
        assert asking.cancelled()
        assert steps == ["searched", "prepared"]
        assert "t8.1" in (await context.handle_tool_call_async(SEARCH_TOOL, {"query": "value 977"}) or "")

    asyncio.run(test())


@pytest.mark.parametrize("arguments", [None, 5, 1.5, True, [], ["t3.1"], object()])
def test_arguments_of_no_shape_are_answered(arguments: Any) -> None:
    """Whatever a framework hands over for them: no tool call raises."""
    context = walked()
    for name in (RECALL_TOOL, SEARCH_TOOL):
        answer = context.handle_tool_call(name, arguments)
        assert answer is not None
        assert answer.startswith("[")


def test_an_answer_to_the_agent_can_be_encoded() -> None:
    """A lone half of a surrogate pair would end the agent in its client; who asks by hand gets the very text."""
    with ContextManager(EAGER, session="s", store="memory:") as context:
        for steps in range(6):
            said = [message for step in range(1, steps + 1) for message in make_openai_step(step, "a\ud83db")]
            context.prepare([*make_history("openai", 0), *said])
        assert context.session.recall("t1.1") == "1\na\ud83db"
        for arguments in ({"handle": "t1.1"}, {"handle": "t1.1", "pattern": "a"}):
            assert "a\ufffdb" in (context.handle_tool_call(RECALL_TOOL, arguments) or "")
