"""Views as OpenAI chat messages."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from elision.providers.openai_chat.messages import OpenAIChatRenderer
from elision.trajectory.turn import Action, Head, Message, Opaque, Text, make_content
from tests.properties.builders import head, result, turn, user
from tests.providers.render_checks import render_run

PNG = "data:image/png;base64,AAAA"
CALL = Action(id="call_1", name="bash", arguments='{"command": "ls"}')


sent = partial(render_run, "openai")


def test_a_whole_conversation() -> None:
    """System, task, a call with its result and what the user said then, in the provider's own words."""
    start = Head(messages=(Message(role="developer", content=make_content("Be brief.")), user("Look.")))
    messages = sent(turn(1, (CALL, result("a.py", id="call_1")), text="I look.", said=[user("Thanks.")]), start=start)
    assert messages == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
        {"role": "user", "content": "Thanks."},
    ]


def test_content_is_null_only_beside_calls() -> None:
    """A turn without words has null content if it calls, and an empty text if it does not."""
    assert sent(turn(1, (CALL, result("", id="call_1"))))[2]["content"] is None
    assert sent(turn(1))[2] == {"role": "assistant", "content": ""}


def test_an_empty_result_is_sent_as_an_empty_text() -> None:
    """A result may be empty, but must be there."""
    assert sent(turn(1, (CALL, result((), id="call_1"))))[3] == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "",
    }


def test_reasoning_goes_back_under_its_own_name_or_not_at_all() -> None:
    """It is counted, so it is sent; never inside the content. A server that refuses the field need not get it."""
    thought = replace(turn(1, text="Done."), reasoning="Hm.")
    assert sent(thought)[2] == {"role": "assistant", "content": "Done.", "reasoning_content": "Hm."}
    assert sent(thought, renderer=OpenAIChatRenderer(sends_reasoning=False))[2] == {
        "role": "assistant",
        "content": "Done.",
    }
    assert "reasoning_content" not in sent(turn(1, text="Done."))[2]


def test_arguments_stay_the_text_they_were() -> None:
    """Spaces, order and broken JSON are the model's own."""
    broken = replace(CALL, arguments='{"command":  ')
    assert (
        sent(turn(1, (broken, result("?", id="call_1"))))[2]["tool_calls"][0]["function"]["arguments"]
        == '{"command":  '
    )


def test_images_of_users_are_sent_in_this_dialect() -> None:
    """Its own as recorded, with its options; Anthropic's and pi's in its words."""
    own = {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}
    parts = (
        Text("See:"),
        Opaque("image_url", 1, own),
        Opaque("image", 1, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}),
        Opaque("image", 1, {"type": "image", "data": "AAAA", "mimeType": "image/png"}),
    )
    shown = sent(start=Head(messages=(Message(role="user", content=parts),)))[0]["content"]
    converted = {"type": "image_url", "image_url": {"url": PNG}}
    assert shown == [{"type": "text", "text": "See:"}, own, converted, converted]


def test_images_of_results_become_a_note() -> None:
    """A `tool` message holds nothing but text."""
    picture = Opaque("image", 1_200, {"type": "image", "data": "AAAA", "mimeType": "image/png"})
    shown = sent(turn(1, (CALL, result((Text("a screen"), picture), id="call_1"))))[3]["content"]
    assert [part["type"] for part in shown] == ["text", "text"]
    assert "image" in shown[1]["text"]
    assert "AAAA" not in str(shown)


def test_sealed_reasoning_of_another_provider_is_left_out() -> None:
    """Nobody here could read it."""
    sealed = Opaque("redacted_thinking", 50, {"type": "redacted_thinking", "data": "secret"})
    shown = sent(replace(turn(1), content=(sealed, Text("Done."))), start=head())
    assert shown[2] == {"role": "assistant", "content": "Done."}
