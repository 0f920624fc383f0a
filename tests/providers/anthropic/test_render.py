"""Views as Anthropic messages."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from elision.engine import decide, make_plain_terms, run_pass
from elision.providers.anthropic.messages import AnthropicRenderer
from elision.providers.shared.base_renderer import CONTINUE_TEXT, OPENING_TEXT
from elision.trajectory.turn import Action, Content, Head, Message, Opaque, Text, Turn, make_content
from elision.trajectory.view import View
from tests.properties.builders import begin_session, result, run_session, step, steps, turn, user, write_brief_summary
from tests.providers.render_checks import check_anthropic, render_run

CALL = Action(id="toolu_1", name="bash", arguments='{"command": "ls"}')
MARK = {"type": "ephemeral"}


def last_view(*turns: Turn, start: Head | None = None, spec: str = "raw") -> View:
    newest = run_session(spec, turns, start=start).newest_call
    assert newest is not None
    return newest.view


sent = partial(render_run, "anthropic")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_a_whole_conversation() -> None:
    """The system prompt apart; results first in the user's next message, what the user said behind them."""
    view = last_view(turn(1, (CALL, result("a.py", id="toolu_1")), text="I look.", said=[user("Thanks.")]))
    renderer = AnthropicRenderer()
    assert renderer.render_system(view) == [text("You are an agent.")]
    assert renderer.render_unmarked(view) == [
        {"role": "user", "content": [text("Mend the parser.")]},
        {
            "role": "assistant",
            "content": [
                text("I look."),
                {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}, text("Thanks.")],
        },
    ]


def test_parallel_results_share_one_message() -> None:
    """All calls of a turn are answered in the one message behind it."""
    pairs = [(replace(CALL, id=id), result(f"of {id}", id=id)) for id in ("a", "b", "c")]
    assert [block["content"] for block in sent(turn(1, *pairs))[2]["content"]] == ["of a", "of b", "of c"]


def test_a_conversation_begins_with_the_user() -> None:
    """An agent that speaks first is given something to answer, at the first call too."""
    silent = Head(messages=(Message(role="system", content=make_content("Greet.")),))
    assert sent(start=silent) == [{"role": "user", "content": [text(OPENING_TEXT)]}]
    messages = sent(turn(1, text="Hello!", said=[user("Hi.")]), start=silent)
    assert [message["content"][0]["text"] for message in messages] == [OPENING_TEXT, "Hello!", "Hi."]


def test_two_assistant_messages_never_meet_and_none_ends_a_request() -> None:
    """The last would be taken for the beginning of the answer; its filler stays where it was at the next call."""
    first, second = sent(turn(1, text="One.")), sent(turn(1, text="One."), turn(2, text="Two."))
    assert first[-1] == {"role": "user", "content": [text(CONTINUE_TEXT)]}
    assert second[: len(first)] == first


def test_a_turn_that_says_nothing_is_not_sent() -> None:
    """An empty message is rejected; the user's messages around it become one."""
    messages = sent(turn(1, said=[user("still there?")]))
    assert messages == [{"role": "user", "content": [text("Mend the parser."), text("still there?")]}]


@pytest.mark.parametrize("blank", ["", " ", "\n\n\t"])
def test_text_without_a_letter_is_not_sent(blank: str) -> None:
    """Blank text blocks are rejected; a result may be empty, and is there all the same."""
    part: Content = (Text(blank),)
    shown = sent(replace(turn(1, (CALL, result(part, id="toolu_1"))), content=part))
    assert [block["type"] for block in shown[1]["content"]] == ["tool_use"]
    assert shown[2]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1"}]


@pytest.mark.parametrize("arguments", ["[1]", "null", '"ls"', "ls -la", '{"a": NaN}', "[" * 3_000])
def test_arguments_that_are_no_object_are_wrapped(arguments: str) -> None:
    """`input` must be an object, whatever the model wrote."""
    shown = sent(turn(1, (replace(CALL, arguments=arguments), result("?", id="toolu_1"))))
    assert shown[1]["content"][0]["input"] == {"arguments": arguments}


def test_no_arguments_are_an_empty_object() -> None:
    """Some servers carry none as an empty text."""
    shown = sent(turn(1, (replace(CALL, arguments=""), result("?", id="toolu_1"))))
    assert shown[1]["content"][0]["input"] == {}


def test_only_a_result_that_says_something_in_text_alone_is_marked_an_error() -> None:
    """An error with an image in it, or without content, is rejected."""
    picture = Opaque("image", 9, {"type": "image", "data": "AAAA", "mimeType": "image/png"})
    for parts, marked in ((make_content("boom"), True), ((), False), ((Text("boom"), picture), False)):
        shown = sent(turn(1, (CALL, result(parts, id="toolu_1", error=True))))
        assert ("is_error" in shown[2]["content"][0]) is marked


def test_images_keep_their_place() -> None:
    """OpenAI's become blocks, Anthropic's stay as recorded but for a recorded breakpoint; a TIFF cannot be sent."""
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    parts = (
        Opaque("image_url", 9, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
        Text("between"),
        Opaque("image", 9, {**block, "cache_control": MARK}),
        Opaque("image_url", 9, {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}),
        Opaque("image", 9, {"type": "image", "data": "AAAA", "mimeType": "image/tiff"}),
    )
    shown = sent(turn(1, (CALL, result(parts, id="toolu_1"))))[2]["content"][0]["content"]
    assert shown[:3] == [block, text("between"), block]
    assert shown[3] == {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}
    assert shown[4]["type"] == "text"


def test_sealed_thinking_goes_back_as_recorded_and_clear_reasoning_does_not() -> None:
    """A thinking block without its signature is rejected; one that ends a message is as well."""
    sealed = Opaque("thinking", 9, {"type": "thinking", "thinking": "", "signature": "abc"})
    unsigned = Opaque("thinking", 9, {"type": "thinking", "thinking": ""})
    shown = sent(replace(turn(1), content=(sealed, unsigned, Text("Done."), sealed), reasoning="In clear."))
    assert shown[1]["content"] == [sealed.data, text("Done.")]


def test_a_system_message_between_turns_is_the_users_and_says_what_it_is() -> None:
    """Few models take the role there, and it must not be lost."""
    late = Message(role="system", content=make_content("Be brief."))
    shown = sent(turn(1, text="Hello.", said=[late]))
    assert shown[2] == {"role": "user", "content": [text("[System message]"), text("Be brief.")]}


def test_a_tools_name_has_no_letters_that_are_forbidden() -> None:
    """`fs.read` is a name at other providers."""
    shown = sent(turn(1, (replace(CALL, name="fs.read"), result("x", "fs.read", id="toolu_1"))))
    assert shown[1]["content"][0]["name"] == "fs_read"


# -- cache breakpoints ----------------------------------------------------------------------------------------------


def marked(messages: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """(message, block) of each breakpoint."""
    return [
        (place, block)
        for place, message in enumerate(messages)
        for block, each in enumerate(message["content"])
        if "cache_control" in each
    ]


def at(view: View, *marks: int) -> View:
    return View(call=view.call, epoch=view.epoch, track=view.track, length=view.length, marks=marks)


def test_breakpoints_stand_on_the_last_block_in_front_of_each_mark() -> None:
    """Segments: system, task, then per turn an assistant and its result. Nothing else differs from the plain ones."""
    view, renderer = last_view(*steps(3)), AnthropicRenderer()
    messages = renderer.render_messages(at(view, 2, 4, 5, 8))
    assert marked(messages) == [(0, 0), (2, 0), (3, 0), (6, 0)]
    for message in messages:
        for block in message["content"]:
            assert block.pop("cache_control", MARK) == MARK
    assert messages == AnthropicRenderer().render_unmarked(view)


def test_a_mark_between_parallel_results_stands_on_a_block_inside_the_message() -> None:
    """The frontier of masking may run through a turn."""
    pairs = [(replace(CALL, id=id), result(f"of {id}", id=id)) for id in ("a", "b", "c")]
    view = last_view(turn(1, *pairs, said=[user("go on")]))
    assert marked(AnthropicRenderer().render_messages(at(view, 4, 7))) == [(2, 0), (2, 3)]


def test_a_mark_in_front_of_all_messages_stands_on_the_system_prompt() -> None:
    """The head may end with it."""
    silent = Head(messages=(Message(role="system", content=make_content("Greet.")),), hidden_tokens=500)
    view = at(last_view(turn(1, text="Hello.", said=[user("Hi.")]), start=silent), 2, 4)
    assert AnthropicRenderer().render_system(view) == [{**text("Greet."), "cache_control": MARK}]
    assert marked(AnthropicRenderer().render_messages(view)) == [(2, 0)]


def test_reasoning_bears_no_breakpoint() -> None:
    """It is rejected there; the block before it bears the mark, be it in another message."""
    sealed = Opaque("thinking", 9, {"type": "thinking", "thinking": "", "signature": "abc"})
    view = last_view(replace(turn(1, (CALL, result("x", id="toolu_1"))), content=(sealed,)))
    renderer = AnthropicRenderer()
    renderer.render_unmarked(view)
    assert renderer._find_last_block(2, 1) == (0, 0)
    assert marked(renderer.render_messages(at(view, 3))) == [(1, 1)]


def test_there_are_never_more_than_four_breakpoints_and_the_newest_block_has_one() -> None:
    """Through a run with summaries and maskings; what a follower sends is what a fresh renderer sends."""
    session = begin_session("hybrid(window=2, summarize_at=6, tail=3, summary_max_tokens=60, schedule=every-turn)")
    renderer = AnthropicRenderer()
    for index in range(1, 20):
        view = run_pass(decide(session, make_plain_terms()), write_brief_summary)
        messages = renderer.render_messages(view)
        check_anthropic(messages, renderer.render_system(view))
        places = marked(messages)
        assert 1 <= len(places) <= 4
        assert places[-1] == (len(messages) - 1, len(messages[-1]["content"]) - 1)
        assert messages == AnthropicRenderer().render_messages(view)
        session.add_turn(step(index))


def test_messages_that_were_returned_are_not_touched_by_later_marks() -> None:
    """Markers move from call to call, on copies."""
    session, renderer = begin_session("raw"), AnthropicRenderer()
    first = renderer.render_messages(run_pass(decide(session, make_plain_terms()), write_brief_summary))
    before = repr(first)
    session.add_turn(step(1))
    renderer.render_messages(run_pass(decide(session, make_plain_terms()), write_brief_summary))
    assert repr(first) == before
