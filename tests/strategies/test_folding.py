"""Folding at birth, what happens to folds where a source is hidden, and which file an action reads."""

from __future__ import annotations

import msgspec
import pytest

from elision.engine import Log, decide, make_plain_terms, run_pass
from elision.errors import SpecError
from elision.strategies.folding import FileRead, edits_exactly, find_file_read, has_exact_edit_tool
from elision.strategies.placeholder import Placeholders
from elision.strategies.schedules import FixedSchedule
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Masking
from elision.trajectory.events import PassDecided
from elision.trajectory.turn import Action, Head, Observation, Turn
from tests.properties.builders import PLAIN, begin_session, call, lines, result, run_session, turn, write_brief_summary


def read(index: int, text: str, tool: str = "read_file") -> Turn:
    return turn(index, (call(tool, path=f"f{index}.py"), result(text, tool)))


def show(log: Log) -> dict[tuple[int, int], str]:
    """How each result is shown in the newest view: as what, and the first line where that is a fold."""
    assert log.newest_call is not None
    return {
        (segment.turn, segment.index): segment.text if segment.kind == "folded" else segment.kind
        for segment in log.newest_call.view.segments
        if segment.index and segment.kind in ("observation", "folded", "placeholder", "clipped")
    }


def test_a_repeat_becomes_a_line_that_names_the_place() -> None:
    """At the first call that shows it, and without a rewrite; what is new of it stays."""
    log = run_session(
        "raw(fold=true)", [read(1, lines(1, 40)), read(2, f"new\n{lines(10, 30)}\nend"), read(3, "short")]
    )
    assert show(log) == {
        (1, 1): "observation",
        (2, 1): "new\n[same as lines 10–29 of t1.1 (read_file f1.py)]\nend",
        (3, 1): "observation",
    }
    assert log.state.epoch == 1
    assert [event.call for event in log.events if isinstance(event, PassDecided) and event.folds] == [3]
    assert log.money.spent_usd < log.money.raw_spent_usd


def test_every_strategy_but_raw_folds() -> None:
    """Unless its text says otherwise, or has it as a publication does."""
    turns = [read(1, lines(1, 40)), read(2, lines(1, 40))]
    for name in ("masking", "summarization", "hybrid", "two-tier"):
        assert run_session(name, turns).state.folded
    for name in ("raw", "masking(fold=false)", "paper-masking", "swe-agent-hybrid"):
        assert not run_session(name, turns).state.folded


def test_a_masked_source_is_shown_again_by_the_first_that_referred_to_it() -> None:
    """In the same pass; later ones refer to that one from then on, and the first change stays the mask."""
    turns = [read(1, lines(1, 40)), *(read(index, lines(1, 40)) for index in (2, 3, 4))]
    log = begin_session(
        'masking(window=9, gist=0, fold=true, rules=[rule(args="*f1*", after=3)], schedule=every-turn)', PLAIN
    )
    for each in turns:
        run_pass(decide(log, make_plain_terms()), write_brief_summary)
        log.add_turn(each)
    before = log.newest_call
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    assert show(log) == {
        (1, 1): "placeholder",
        (2, 1): "observation",
        (3, 1): "[same as t2.1 (read_file f2.py)]",
        (4, 1): "[same as t2.1 (read_file f2.py)]",
    }
    assert before is not None
    assert log.newest_call is not None
    assert log.newest_call.view.count_common(before.view) == log.state.observation_places[1, 1]
    assert log.newest_call.decided.unfolded == ((2, 1),)


def test_looking_ahead_changes_no_reference() -> None:
    """What is found and described while the model thinks is what the call finds, also of two calls in one turn."""

    def decide_calls(*, looks_ahead: bool) -> list[PassDecided]:
        log = begin_session("raw(fold=true)", PLAIN)
        for index in range(1, 6):
            run_pass(decide(log, make_plain_terms()), write_brief_summary)
            if looks_ahead:
                list(log.policy.folding.look_ahead(log.state))
            first = (call("bash", cmd="tail log", id="a"), result(lines(index, index + 40), id="a"))
            second = (call("bash", cmd="tail log", id="b"), result(lines(index + 10, index + 60), id="b"))
            log.add_turn(turn(index, first, second))
        run_pass(decide(log, make_plain_terms()), write_brief_summary)
        return [event for event in log.events if isinstance(event, PassDecided)]

    decided = decide_calls(looks_ahead=True)
    assert decided == decide_calls(looks_ahead=False)
    assert [len(each.folds) for each in decided] == [0, 1, 2, 2, 2, 2]


def test_references_follow_the_lines_of_a_source_that_is_whole_again() -> None:
    """Its lines are further down then, and whoever referred to them says so in the same pass."""
    again, own = lines(1, 40), lines(500, 540)
    turns = [read(1, again), read(2, f"{again}\n{own}"), read(3, own), read(4, "x")]
    log = begin_session(
        'masking(window=9, gist=0, fold=true, rules=[rule(args="*f1*", after=3)], schedule=every-turn)', PLAIN
    )
    for each in turns:
        run_pass(decide(log, make_plain_terms()), write_brief_summary)
        log.add_turn(each)
    assert show(log)[3, 1] == "[same as lines 2–41 of t2.1 (read_file f2.py)]"
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    assert show(log)[2, 1] == "observation"
    assert show(log)[3, 1] == "[same as lines 40–79 of t2.1 (read_file f2.py)]"


def test_an_old_fold_is_masked_with_its_source() -> None:
    """Its placeholder is longer than the fold, so it stays folded as long as it can, and is never shown whole."""
    turns = [
        read(1, lines(1, 40)),
        read(2, lines(1, 40)),
        *(read(index, lines(100 * index, 100 * index + 40)) for index in (3, 4, 5)),
    ]
    log = run_session(
        Masking(window=1, gist=0, fold=True, schedule=FixedSchedule(mask_calls=frozenset({5, 6}))), turns, PLAIN
    )
    masked = [event for event in log.events if isinstance(event, PassDecided) and event.masks]
    assert [mask.key for mask in masked[0].masks] == [(1, 1), (2, 1), (3, 1), (4, 1)][: len(masked[0].masks)]
    assert not any(event.unfolded for event in masked)


def test_a_summary_unfolds_what_relied_on_its_turns() -> None:
    """A result after the summary is whole again, since its source is covered."""
    turns = [read(1, lines(1, 40)), read(2, lines(200, 240)), read(3, lines(1, 40)), read(4, "b")]
    log = run_session(
        "summarization(every=2, tail=2, fold=true, summary_max_tokens=50, schedule=every-turn)", turns, PLAIN
    )
    assert log.state.covered_turns == 2
    assert show(log) == {(3, 1): "observation", (4, 1): "observation"}
    assert log.newest_call is not None
    assert log.newest_call.decided.unfolded == ((3, 1),)
    assert log.state.folded == {}


def test_rules_keep_results_whole() -> None:
    """`verbatim` and `keep` do."""
    turns = [read(1, lines(1, 40)), read(2, lines(1, 40)), read(3, lines(1, 40), tool="search")]
    assert list(run_session("raw(fold=true)", turns).state.folded) == [(2, 1), (3, 1)]
    assert list(run_session('raw(fold=true, rules=[rule(tool="search", verbatim=true)])', turns).state.folded) == [
        (2, 1)
    ]
    assert not run_session("raw(fold=true, rules=[rule(keep=true)])", turns).state.folded


@pytest.mark.parametrize("name", ["old_string", "old_str", "oldText"])
def test_reads_stay_whole_where_edits_must_match_them(name: str) -> None:
    """From the first such edit on, or if the head defines such a tool."""
    edit = turn(3, (call("edit_file", path="f1.py", **{name: "a"}), result("done", "edit_file")))
    turns = [read(1, lines(1, 40)), read(2, lines(1, 40)), edit, read(4, lines(1, 40)), read(5, lines(1, 40), "bash")]
    assert list(run_session("raw(fold=true)", turns).state.folded) == [(2, 1), (5, 1)]
    tools = ({"name": "edit_file", "input_schema": {"properties": {name: {"type": "string"}}}},)
    assert list(run_session("raw(fold=true)", turns, start=Head(tools=tools)).state.folded) == [(5, 1)]


def test_what_is_read_again_is_whole() -> None:
    """The agent may not have found what the fold refers to; if the file changed meanwhile, it is folded again."""
    pair = (call("read_file", path="a.py"), result(lines(1, 40), "read_file"))
    turns = [turn(index, pair) for index in (1, 2, 3, 4)]
    assert list(run_session("raw(fold=true)", turns).state.folded) == [(2, 1), (4, 1)]
    changed = turn(3, (call("read_file", path="a.py"), result(f"{lines(1, 40)}\nnew", "read_file")))
    assert list(run_session("raw(fold=true)", [*turns[:2], changed]).state.folded) == [(2, 1), (3, 1)]


def test_turns_are_named_where_handles_are_not() -> None:
    """Without recall a reference says the turn."""
    log = run_session("raw(fold=true, handles=false)", [read(1, lines(1, 40)), read(2, lines(1, 40))])
    assert show(log)[2, 1] == "[same as turn 1 (read_file f1.py)]"


def test_folds_that_were_recorded_keep_their_words() -> None:
    """Those of an older session are shown as it sent them, until a source of theirs is hidden."""
    log = run_session("raw(fold=true)", [read(1, lines(1, 40)), read(2, lines(1, 40))])
    words = "[as in t1.1, lines 1–39]"
    events = [
        msgspec.structs.replace(event, edits=tuple(msgspec.structs.replace(edit, text=words) for edit in event.edits))
        if isinstance(event, PassDecided)
        else event
        for event in log.events
    ]
    older = Log.fold(events, log.setup)
    older.add_turn(read(3, lines(1, 40)))
    run_pass(decide(older, make_plain_terms()), write_brief_summary)
    assert show(older) == {
        (1, 1): "observation",
        (2, 1): words,
        (3, 1): "[same as t1.1 (read_file f1.py)]",
    }


def test_another_strategy_goes_on_with_the_folds_of_a_log() -> None:
    """One that folds nothing shows what is folded whole again when it hides the source."""
    folded = run_session("raw(fold=true)", [read(1, lines(1, 40)), read(2, lines(1, 40))], PLAIN)
    setup = begin_session("masking(window=1, gist=0, schedule=every-turn)", PLAIN).setup
    log = Log.fold(folded.events, setup)
    assert list(log.state.folded) == [(2, 1)]
    log.add_turn(read(3, "x"))
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    assert log.newest_call is not None
    assert [mask.key for mask in log.newest_call.decided.masks] == [(1, 1), (2, 1)]
    assert log.state.folded == {}


def test_terms_say_what_may_be_folded() -> None:
    """Nothing where the client has the provider clear results, and nothing that bound thinking follows."""
    turns = [read(1, lines(1, 40)), read(2, lines(1, 40)), read(3, lines(1, 40))]
    for changes, expected in (({"may_fold": False}, []), ({"new_from": 3}, [(3, 1)])):
        log = begin_session("raw(fold=true)")
        for each in turns:
            log.add_turn(each)
        run_pass(decide(log, msgspec.structs.replace(make_plain_terms(), **changes)), write_brief_summary)
        assert list(log.state.folded) == expected


def test_text_form() -> None:
    """The options are read and written, and nonsense is refused."""
    assert describe_strategy(parse_strategy("raw(fold=true)")) == "raw(fold=true)"
    assert describe_strategy(parse_strategy("hybrid(fold=true)")) == "hybrid"
    for text in ("raw(fold=1)", "raw(fold=5)", "raw(fold=yes)"):
        with pytest.raises(SpecError, match=r"fold.*: give true or false"):
            parse_strategy(text)


def test_a_reference_names_one_call() -> None:
    """Of calls that are alike it counts back, so that no later one makes it ambiguous."""
    texts = [lines(1, 40), lines(41, 80), lines(81, 120)]
    turns = [turn(index, (call(path="f.py"), result(text, "read_file"))) for index, text in enumerate(texts, 1)]
    again = [lines(81, 110), lines(1, 30), lines(41, 70)]
    turns += [turn(index, (call(name="bash"), result(text))) for index, text in enumerate(again, 4)]
    shown = show(run_session("raw(fold=true)", turns))
    assert [shown[index, 1] for index in (4, 5, 6)] == [
        "[same as lines 1–29 of t3.1 (read_file f.py, the latest before this)]",
        "[same as lines 1–29 of t1.1 (read_file f.py, 2 before the latest)]",
        "[same as lines 1–29 of t2.1 (read_file f.py, 1 before the latest)]",
    ]


def test_the_calls_of_a_turn_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first reference on; before it none is described."""
    described: list[int] = []
    describe = Placeholders.describe_call

    def count(self: Placeholders, turn: Turn, observation: Observation) -> str:
        described.append(turn.index)
        return describe(self, turn, observation)

    monkeypatch.setattr(Placeholders, "describe_call", count)
    log = begin_session("raw(fold=true)", PLAIN)
    seen = []
    for index, first in enumerate([1, 101, 1, 201, 1, 301, 1], 1):
        log.add_turn(read(index, lines(first, first + 40)))
        run_pass(decide(log, make_plain_terms()), write_brief_summary)
        during = described.copy()
        described.clear()
        list(log.policy.folding.look_ahead(log.state))
        seen.append((during, described.copy()))
        described.clear()
    assert seen == [([], []), ([], []), ([1, 2], [3]), *(([], [each]) for each in range(4, 8))]


def test_a_result_of_one_line_that_comes_again_is_folded() -> None:
    """Such as JSON: it is the same as the result that is shown."""
    text = "{" + ", ".join(f'"key_{number}": {number * 7919}' for number in range(99)) + "}"
    log = run_session("raw(fold=true)", [read(index, text, "get") for index in (1, 2, 3)])
    assert show(log) == {
        (1, 1): "observation",
        (2, 1): "[same as t1.1 (get f1.py)]",
        (3, 1): "[same as t1.1 (get f1.py)]",
    }


@pytest.mark.parametrize(
    ("action", "path"),
    [
        (call("read_file", path="a.py"), "a.py"),
        (call("Read", file_path="/x/a.py"), "/x/a.py"),
        (call("str_replace_editor", command="view", path="a.py"), "a.py"),
        (call("bash", command="cat a.py"), "a.py"),
        (call("bash", command="cd /repo && cat src/a.py"), "/repo/src/a.py"),
        (Action(id="", name="bash", arguments="cat a.py", implicit=True), "a.py"),
    ],
)
def test_reads_name_their_file(action: Action, path: str) -> None:
    """By the tool, or by the command of a shell; the folder is part of the name."""
    assert find_file_read(action) == FileRead(path)


@pytest.mark.parametrize(
    "action",
    [
        call("str_replace_editor", command="str_replace", path="a.py", old_str="x"),
        call("str_replace_editor", command="create", path="a.py"),
        call("Write", file_path="a.py"),
        call("bash", command="cat a.py | head"),
        call("bash", command="make test"),
        call("search", query="x"),
        Action(id="", name="bash", arguments="ls", implicit=True),
        Action(id="a", name="tool", arguments="{"),
    ],
)
def test_everything_else_is_no_read(action: Action) -> None:
    """Edits, commands that do more, and broken arguments."""
    assert find_file_read(action) is None


def test_parts_of_a_file_differ() -> None:
    """Another offset, the first ten lines and the last ten are parts of their own; the order of arguments is not."""
    reads = [
        call("read_file", path="a.py"),
        call("read_file", path="a.py", offset=10),
        call("read_file", path="a.py", offset=20),
        call("bash", command="head a.py"),
        call("bash", command="tail a.py"),
    ]
    assert len({find_file_read(each) for each in reads}) == len(reads)
    swapped = call("read_file", offset=10, path="a.py")
    assert find_file_read(swapped) == find_file_read(reads[1])


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Edit", {"old_string": "a", "new_string": "b"}, True),
        ("MultiEdit", {"edits": [{"old_string": "a"}]}, True),
        ("edit", {"path": "a.py", "oldText": "a"}, True),
        ("apply_patch", {"input": "*** Begin Patch"}, True),
        ("edit", {"start_line": 3, "text": "the old_string of it"}, False),
        ("bash", {"command": "sed -i s/old_str/new/ a.py"}, False),
    ],
)
def test_calls_that_edit_exactly(name: str, arguments: dict[str, object], expected: bool) -> None:
    """Known by the names of arguments, wherever they are, and by patches."""
    assert edits_exactly(turn(1, (call(name, **arguments), result("done", name)))) is expected


def test_tools_that_edit_exactly() -> None:
    """Their schemas name the same arguments."""
    tool = {"name": "Edit", "input_schema": {"type": "object", "properties": {"old_string": {"type": "string"}}}}
    assert has_exact_edit_tool(Head(tools=({"name": "bash"}, tool)))
    assert not has_exact_edit_tool(Head(tools=({"name": "bash", "description": "no old_string"},)))
