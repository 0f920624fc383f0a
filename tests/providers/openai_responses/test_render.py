"""Views as OpenAI Responses items."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from elision.trajectory.turn import Action, Head, Message, Opaque, Text, make_content
from tests.properties.builders import result, turn, user
from tests.providers.render_checks import render_run

CALL = Action(id="call_1", name="bash", arguments='{"command": "ls"}')
SEALED = Opaque(
    "reasoning", 9, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vh", "status": None}
)
SENT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vh"}


sent = partial(render_run, "openai-responses")


def call(id: str = "call_1", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "bash", "arguments": CALL.arguments, **fields}


def output(said: Any, id: str = "call_1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": said}


def test_a_whole_conversation() -> None:
    """Every message, call and output an item of its own."""
    start = Head(messages=(Message(role="developer", content=make_content("Be brief.")), user("Look.")))
    items = sent(turn(1, (CALL, result("a.py", id="call_1")), text="I look.", said=[user("Thanks.")]), start=start)
    assert items == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look."},
        call(),
        output("a.py"),
        {"role": "user", "content": "Thanks."},
    ]


def test_parallel_calls_stand_together_in_front_of_their_outputs() -> None:
    """In the order in which they were made and answered."""
    pairs = [(replace(CALL, id=id), result(f"of {id}", id=id)) for id in ("a", "b")]
    assert sent(turn(1, *pairs))[-4:] == [call("a"), call("b"), output("of a", "a"), output("of b", "b")]


def test_sealed_reasoning_stands_in_front_of_what_it_led_to() -> None:
    """As recorded but for nulls; words in a row are one message."""
    said = (SEALED, Text("I look."), Text("Now."))
    assert sent(replace(turn(1, (CALL, result("x", id="call_1"))), content=said))[2:4] == [
        SENT,
        {"role": "assistant", "content": "I look.\nNow."},
    ]


@pytest.mark.parametrize("missing", ["id", "encrypted_content", "summary"])
def test_reasoning_that_cannot_be_sent_is_left_out(missing: str) -> None:
    """What leads to nothing is rejected, what is not sealed as well; clear reasoning is never sent."""
    data = {name: value for name, value in (SEALED.data or {}).items() if name != missing}
    broken = replace(turn(1, text="Hello."), content=(Opaque("reasoning", 9, data), Text("Hello.")), reasoning="Hm.")
    assert sent(broken)[-1:] == [{"role": "assistant", "content": "Hello."}]
    assert all(item.get("type") != "reasoning" for item in sent(broken))
    assert sent(replace(turn(1), content=(SEALED,))) == sent()


def test_images_are_sent_to_the_model_in_results_too() -> None:
    """Whichever dialect they were recorded in; a result of one text is a text."""
    data = "data:image/png;base64,AAAA"
    recorded = {
        "type": "input_image",
        "detail": "high",
        "image_url": data,
        "prompt_cache_breakpoint": {"mode": "explicit"},
    }
    parts = (
        Text("Here:"),
        Opaque("image", 9, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}),
        Opaque("input_image", 9, recorded),
    )
    assert sent(turn(1, (CALL, result(parts, id="call_1"))))[-1] == output(
        [
            {"type": "input_text", "text": "Here:"},
            {"type": "input_image", "detail": "auto", "image_url": data},
            {"type": "input_image", "detail": "high", "image_url": data},
        ]
    )


def test_a_hosted_tool_stands_where_it_stood() -> None:
    """An item that the service answered itself goes back whole; one without its fields is told in words."""
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    said = (Text("I search."), Opaque("web_search_call", 9, search), Text("Found."))
    assert sent(replace(turn(1), content=said))[-3:] == [
        {"role": "assistant", "content": "I search."},
        search,
        {"role": "assistant", "content": "Found."},
    ]
    (told,) = sent(replace(turn(1), content=(Opaque("web_search_call", 9, {"type": "web_search_call"}),)))[2:]
    assert told == {"role": "assistant", "content": '{"type": "web_search_call"}'}


def test_a_tools_name_has_no_letters_that_are_forbidden() -> None:
    """Ids may have any, and arguments are a text like any other."""
    odd = Action(id="a.b", name="fs.read", arguments="ls -la")
    assert sent(turn(1, (odd, result("x", "fs.read", id="a.b"))))[-2:] == [
        call("a.b", name="fs_read", arguments="ls -la"),
        output("x", "a.b"),
    ]
