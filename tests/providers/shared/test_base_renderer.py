"""What all renderers owe: the same messages however they came about, pairs, ids, and parts that fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.engine import Log, decide, make_plain_terms, run_pass
from elision.lab.run_as_recorded import calls
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.base_renderer import NO_RESULT_TEXT, Image, ViewRenderer, describe_part, find_image
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Message, Observation, Opaque, Text, Turn, make_content
from elision.trajectory.view import View
from tests.properties.builders import begin_session, head, result, run_session, steps, turn, user, write_brief_summary
from tests.properties.cases import CASES, SMALL, write_summary
from tests.properties.trajectories import trajectories
from tests.providers.render_checks import check_messages, render_run

every_dialect = pytest.mark.parametrize("dialect", PROVIDERS)


def make_renderer(dialect: str, **options: Any) -> ViewRenderer:
    return type(PROVIDERS[dialect].make_renderer())(**options)


def every_view(trajectory: Trajectory, session: Log) -> Iterator[View]:
    session.set_head(trajectory.head)
    for each, (now, model) in zip(trajectory.turns, calls(trajectory), strict=True):
        yield run_pass(decide(session, make_plain_terms(now, model)), write_summary)
        session.add_turn(each)
    yield run_pass(decide(session, make_plain_terms()), write_summary)


# -- mischief: what generated runs lack and recordings have ---------------------------------------------------------

_IDS = ("", "a", "a.b", "a:b", "call_1_1", "x" * 70, "fc|1")
_ARGUMENTS = ("", "null", "[1]", "{", '{"a": NaN}', '"text"', '{"a": 1}', "[" * 3_000)
_PARTS = (
    Opaque("thinking", 9, {"type": "thinking", "thinking": "", "signature": "abc"}),
    Opaque("redacted_thinking", 9, {"type": "redacted_thinking", "data": "abc"}),
    Opaque("thinking", 9, {"type": "thinking"}),
    Opaque("image_url", 9, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
    Opaque("image", 9, {"type": "image", "data": "AAAA", "mimeType": "image/tiff"}),
    Opaque("document", 9, {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}}),
    Opaque("input_audio", 9, {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    Opaque("file", 9, None),
    Text(" "),
    Text("said"),
)


def mischievous(each: Turn, number: int) -> Turn:
    """`each` with odd ids, arguments and parts, and now and then an observation in the user's words in between."""
    if number % 3 == 0:
        return each
    ids = {action.id: _IDS[(number + place) % len(_IDS)] for place, action in enumerate(each.actions)}
    part, other = _PARTS[number % len(_PARTS)], _PARTS[number // 7 % len(_PARTS)]
    observations = [
        msgspec.structs.replace(seen, action_id=ids[seen.action_id], content=(*seen.content, other))
        for seen in each.observations
    ]
    if number % 4 == 0:
        observations.insert(
            number % (len(observations) + 1), msgspec.structs.replace(_REMARK, content=(part, *_REMARK.content))
        )
    said = (*each.interjections, Message(role="system", content=(Text("Be brief."),))) if number % 5 == 0 else ()
    return msgspec.structs.replace(
        each,
        content=(part, *each.content),
        actions=tuple(
            msgspec.structs.replace(action, id=ids[action.id], arguments=_ARGUMENTS[(number + place) % len(_ARGUMENTS)])
            for place, action in enumerate(each.actions)
        ),
        observations=tuple(observations),
        interjections=said or each.interjections,
    )


_REMARK = Observation(action_id="", tool="", content=make_content("seen beside the results"), role="user")


@st.composite
def odd_runs(draw: st.DrawFn) -> Trajectory:
    run = draw(trajectories(most=14))
    number = draw(st.integers(0, 10_000))
    return replace(run, turns=tuple(mischievous(each, number * each.index) for each in run.turns))


@given(
    trajectory=st.one_of(odd_runs(), trajectories()),
    case=st.sampled_from(sorted(CASES)),
    prices=st.sampled_from(sorted(SMALL)),
)
def test_messages_are_accepted_and_the_same_however_they_came_about(
    trajectory: Trajectory, case: str, prices: str
) -> None:
    """A renderer that saw every view and one that sees only the newest say the same; the provider takes it; what was
    in front of a rewrite stays the same object, and nothing that was returned before is changed."""
    followers = {dialect: make_renderer(dialect) for dialect in PROVIDERS}
    said: dict[str, list[dict[str, Any]]] = {dialect: [] for dialect in PROVIDERS}
    copies = dict.fromkeys(PROVIDERS, "[]")
    before: View | None = None
    for view in every_view(trajectory, begin_session(CASES[case], SMALL[prices])):
        for dialect, follower in followers.items():
            messages = check_messages(dialect, follower, view)
            assert messages == make_renderer(dialect).render_messages(view)
            old = said[dialect]
            assert repr(old) == copies[dialect]
            kept = _whole(dialect, before, view, old)
            plain = follower.render_unmarked(view)
            assert all(ours is theirs for ours, theirs in zip(old[:kept], plain[:kept], strict=True))
            said[dialect], copies[dialect] = plain, repr(plain)
        before = view


def _whole(dialect: str, before: View | None, view: View, old: list[dict[str, Any]]) -> int:
    """Messages made of shared segments alone; the last may go on where content is in blocks, so it does not count."""
    shared = view.count_common(before)
    if not shared:
        return 0
    front = View(call=0, epoch=0, track=view.track, length=shared)
    count = len(make_renderer(dialect).render_unmarked(front))
    return min(max(0, count - PROVIDERS[dialect].live.has_blocks), len(old))


@every_dialect
def test_an_older_view_is_still_rendered_right(dialect: str) -> None:
    """Looking back at an earlier view, and forth again, gives what was given before."""
    views: list[View] = []
    run_session("masking(window=2, schedule=every-turn)", steps(8), watch=lambda session: views.append(_view(session)))
    renderer = make_renderer(dialect)
    first = [renderer.render_messages(view) for view in views]
    assert [renderer.render_messages(view) for view in reversed(views)] == first[::-1]


def _view(session: Log) -> View:
    assert session.newest_call is not None
    return session.newest_call.view


@every_dialect
def test_a_call_without_a_result_gets_one_that_says_so(dialect: str) -> None:
    """No provider takes a call that is left open in a history, and the text does not pretend to be a result."""
    two = (Action(id="a", name="bash"), Action(id="b", name="bash"))
    open_turn = msgspec.structs.replace(turn(1, (two[0], result("done", id="a"))), actions=two)
    shown = str(render_run(dialect, open_turn))
    assert shown.count(NO_RESULT_TEXT) == 1
    assert "done" in shown


@every_dialect
def test_an_open_call_can_be_left_as_it_came(dialect: str) -> None:
    """A client's own unfinished request is the client's: nothing is made up for it."""
    open_turn = msgspec.structs.replace(turn(1), actions=(Action(id="a", name="bash"),))
    messages = make_renderer(dialect, no_result_text="").render_messages(_view(run_session("raw", [open_turn])))
    assert "tool_result" not in str(messages)
    assert "'role': 'tool'" not in str(messages)
    assert "function_call_output" not in str(messages)
    assert "functionResponse" not in str(messages)


def ids(messages: list[dict[str, Any]]) -> list[str]:
    """Ids of calls, in order, in any dialect."""
    found = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    found += [item["call_id"] for item in messages if item.get("type") == "function_call"]
    blocks = [block for message in messages if isinstance(message.get("content"), list) for block in message["content"]]
    found += [block["id"] for block in blocks if block.get("type") == "tool_use"]
    parts = [part for message in messages for part in message.get("parts", ())]
    return found + [part["functionCall"]["id"] for part in parts if "functionCall" in part]


@every_dialect
def test_recorded_ids_are_kept_and_bad_ones_replaced_on_both_sides(dialect: str) -> None:
    """An id that was there before, or is empty, gives way to one made from the call's place."""
    turns = [
        msgspec.structs.replace(turn(index, (Action(id=id, name="bash"), result(f"seen {index}", id=id))))
        for index, id in enumerate(("toolu_1", "toolu_1", "", "toolu_9"), start=1)
    ]
    assert ids(render_run(dialect, *turns)) == ["toolu_1", "toolu_1_2_1", "call_3_1", "toolu_9"]


def test_letters_that_anthropic_forbids_are_replaced_there_alone() -> None:
    """`fc|1.x` is a fine id at OpenAI; two ids that become one are told apart."""
    pairs = [(Action(id=id, name="bash"), result("seen", id=id)) for id in ("fc|1.x", "fc:1.x")]
    assert ids(render_run("openai", turn(1, *pairs))) == ["fc|1.x", "fc:1.x"]
    assert ids(render_run("anthropic", turn(1, *pairs))) == ["fc_1_x", "fc_1_x_1_2"]


@every_dialect
def test_two_calls_under_one_id_keep_their_own_results(dialect: str) -> None:
    """Results without ids answer the calls in order."""
    pairs = [(Action(id="", name=name), result(f"of {name}", name, id="")) for name in ("one", "two")]
    shown = str(render_run(dialect, turn(1, *pairs)))
    first = shown.index("call_1_1", shown.index("call_1_2"))
    assert first < shown.index("of one") < shown.index("call_1_2", first)


@every_dialect
def test_words_of_the_same_turn_stand_behind_its_results(dialect: str) -> None:
    """Between a call and its result there may be nothing."""
    pair = (Action(id="a", name="bash"), result("the result"))
    seen = msgspec.structs.replace(turn(1, pair, said=[user("and another thing")]), observations=(_REMARK, pair[1]))
    shown = str(render_run(dialect, seen))
    assert shown.index("the result") < shown.index("seen beside") < shown.index("another thing")


@every_dialect
def test_an_action_inside_the_text_is_not_said_twice(dialect: str) -> None:
    """In a text protocol the call stands in the assistant's words and its observation is the user's."""
    act = Action(id="", name="bash", arguments="ls -la", implicit=True)
    seen = Observation(action_id="", tool="bash", content=make_content("total 0"), role="user")
    messages = render_run(
        dialect, msgspec.structs.replace(turn(1, text="I run ls -la"), actions=(act,), observations=(seen,))
    )
    assert ids(messages) == []
    assert str(messages).count("ls -la") == 1
    assert messages[-1]["role"] == "user"


def test_images_are_read_from_every_dialect() -> None:
    """One picture, five ways of recording it."""
    url = "data:image/png;base64,AAAA"
    recorded = (
        Opaque("image_url", 1, {"type": "image_url", "image_url": {"url": url}}),
        Opaque("input_image", 1, {"type": "input_image", "image_url": url}),
        Opaque("image", 1, {"source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}),
        Opaque("image", 1, {"type": "image", "data": "AAAA", "mimeType": "image/png"}),
    )
    assert {find_image(part) for part in recorded} == {Image(media="image/png", data="AAAA")}
    linked = Opaque("image", 1, {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}})
    assert find_image(linked) == Image(url="https://x.test/a.png")
    assert find_image(Opaque("image", 1, {"source": {"type": "file", "file_id": "f"}})) is None
    assert find_image(Opaque("file", 1, {"data": "AAAA", "mimeType": "application/pdf"})) is None


def test_what_has_no_place_is_put_in_words() -> None:
    """Bytes become a note, readable data its JSON, sealed reasoning nothing."""
    assert "image" in describe_part(Opaque("image", 1, {"data": "AAAA"}))
    assert "AAAA" not in describe_part(Opaque("image", 1, {"data": "AAAA"}))
    assert describe_part(Opaque("unknown", 1, {"query": "a", "result": "b"})) == '{"query": "a", "result": "b"}'
    assert describe_part(Opaque("reasoning", 1, {"encrypted_content": "xyz"})) == ""


@every_dialect
def test_an_unrecorded_head_and_tools_are_no_messages(dialect: str) -> None:
    """They are counted, but belong to the request, or cannot be shown."""
    start = msgspec.structs.replace(
        head(), tools=({"name": "bash", "input_schema": {"type": "object"}},), hidden_tokens=900
    )
    messages = render_run(dialect, start=start)
    assert "input_schema" not in str(messages)
    assert sum(message["role"] == "user" for message in messages) == 1


@every_dialect
def test_a_summary_stands_behind_the_task_in_the_users_role(dialect: str) -> None:
    """The block is sent word for word; the covered turns are not sent."""
    spec = "summarization(every=3, tail=1, summary_max_tokens=50, schedule=every-turn)"
    session = run_session(spec, steps(6), summarizer=write_brief_summary)
    assert session.state.summary is not None
    messages = check_messages(dialect, make_renderer(dialect), _view(session))
    text = session.state.summary.block
    place = next(place for place, message in enumerate(messages) if text in _texts(message))
    assert messages[place]["role"] == "user"
    assert "value_1_0" not in str(messages)


def _texts(message: dict[str, Any]) -> list[str]:
    said = message.get("parts", message.get("content", ""))
    return [said] if isinstance(said, str) else [block.get("text", "") for block in said]
