"""Views as Gemini's contents."""

from __future__ import annotations

from functools import partial
from typing import Any

from elision.providers.gemini.messages import UNSIGNED, GeminiRenderer
from elision.providers.shared.base_renderer import CONTINUE_TEXT, OPENING_TEXT
from elision.trajectory.turn import Action, Head, Message, Opaque, make_content
from tests.properties.builders import result, run_session, turn, user
from tests.providers.render_checks import render_run

CALL = Action(id="call_1", name="bash", arguments='{"command": "ls"}')


sent = partial(render_run, "gemini")


def call(id: str = "call_1") -> dict[str, Any]:
    return {"functionCall": {"id": id, "name": "bash", "args": {"command": "ls"}}}


def answer(text: str, id: str = "call_1", field: str = "output") -> dict[str, Any]:
    return {"functionResponse": {"id": id, "name": "bash", "response": {field: text}}}


def test_a_whole_conversation() -> None:
    """The system prompt apart, responses of one message together, the user's words behind them."""
    start = Head(messages=(Message(role="system", content=make_content("Be brief.")), user("Look.")))
    pairs = (
        (CALL, result("a.py", id="call_1")),
        (Action(id="b", name="bash", arguments=CALL.arguments), result("b", id="b")),
    )
    contents = sent(turn(1, *pairs, text="I look.", said=[user("Thanks.")]), start=start)
    assert contents == [
        {"role": "user", "parts": [{"text": "Look."}]},
        {"role": "model", "parts": [{"text": "I look."}, {**call(), "thoughtSignature": UNSIGNED}, call("b")]},
        {"role": "user", "parts": [answer("a.py"), answer("b", "b")]},
        {"role": "user", "parts": [{"text": "Thanks."}]},
    ]


def test_the_user_speaks_first_and_between_two_messages() -> None:
    """A function is called only when the model was spoken to."""
    contents = sent(turn(1, text="Hello."), turn(2, (CALL, result("x", id="call_1"))), start=Head())
    said = [part.get("text") for each in contents for part in each["parts"]]
    assert said[:3] == [OPENING_TEXT, "Hello.", CONTINUE_TEXT]


def test_an_image_has_its_bytes() -> None:
    """In the user's words; a response describes it."""
    image = Opaque("image", 10, {"source": {"type": "base64", "media_type": "image/png", "data": "AA=="}})
    start = Head(messages=(Message(role="user", content=(image,)),))
    contents = sent(turn(1, (CALL, result("x", id="call_1"))), start=start)
    assert contents[0] == {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]}


def test_system_prompt() -> None:
    """As parts of the instruction, in order."""
    start = Head(messages=(Message(role="system", content=make_content("Be brief.")), user("Look.")))
    newest = run_session("raw", [turn(1, (CALL, result("x", id="call_1")))], start=start).newest_call
    assert newest is not None
    assert GeminiRenderer().render_system(newest.view) == [{"text": "Be brief."}]
