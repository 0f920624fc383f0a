"""Placeholders: one line that tells what happened and how to get it back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.extractors import BUILT_IN, Outcome
from elision.strategies.known_identifiers import KnownIdentifiers
from elision.strategies.placeholder import PUBLISHED_TEXT, Placeholders
from elision.trajectory.content import Content, Opaque, Text
from elision.trajectory.turn import Observation
from tests.properties.builders import call, long_text, result, step, turn


def written(text: str | Content, placeholders: Placeholders | None = None, **options: object) -> str:
    pair = (call(command="make test"), result(text, **options))  # type: ignore[arg-type]
    one = turn(12, pair)
    return (placeholders or Placeholders()).write_placeholder((12, 1), one, pair[1], KnownIdentifiers())


def test_it_tells_what_happened() -> None:
    """Handle, tool, key argument, outcome, size and gist."""
    text = written(long_text(1))
    assert text.startswith("[t12.1 bash: make test -> ")
    assert "hidden" in text
    assert "src/part_1.py" in text
    assert text.endswith("]")


def test_the_published_one() -> None:
    """`gist=0` and a text of one's own is that text, word for word."""
    plain = Placeholders(gist=0, text=PUBLISHED_TEXT)
    assert written(long_text(1), plain) == PUBLISHED_TEXT == "[Observation omitted for brevity]"


def test_a_text_with_a_gist() -> None:
    """A text of one's own may have a gist behind it."""
    assert written("see handle_one", Placeholders(gist=20, text="[gone]")) == "[gone] handle_one"


def test_no_handle_where_nobody_recalls() -> None:
    """Handles are named only where recall is served."""
    assert "t12.1" not in written(long_text(1), Placeholders(handles=False))


def test_opaque_parts_are_counted() -> None:
    """Images and files are named by their kind, at the tokens they are booked at."""
    assert "; 2 tokens + 1 image (about 85 tokens) hidden" in written((Text("a picture"), Opaque("image", tokens=85)))
    assert "; 1 image (about 85 tokens) hidden" in written((Opaque("image", tokens=85),))
    many = (Opaque("image", tokens=85), Opaque("odd\nkind", tokens=5), Opaque("image", tokens=85))
    assert "; 2 image, 1 odd kind (about 175 tokens) hidden" in written(many)


def test_an_unknown_tool() -> None:
    """A result without a tool's name still has a placeholder."""
    unknown = Observation(action_id="", tool="", content=(Text("words"),), role="user")
    assert Placeholders().write_placeholder((1, 1), step(1), unknown, KnownIdentifiers()).startswith("[t1.1 result")


#: Any text, halves of surrogate pairs included.
_ANY = st.characters(exclude_categories=())


@given(st.text(_ANY, max_size=300), st.text(_ANY, max_size=40), st.integers(0, 60))
def test_one_line(text: str, command: str, budget: int) -> None:
    """Whatever an observation or its call holds, its placeholder is one line, and can be encoded."""
    pair = (call(command=command), result(text))
    found = Placeholders(gist=budget).write_placeholder((3, 1), turn(3, pair), pair[1], KnownIdentifiers())
    assert "\n" not in found
    assert "\r" not in found
    assert found.startswith("[t3.1 bash")
    found.encode("utf-8")


def test_half_an_emoji_in_an_odd_place() -> None:
    """Of a tool's name, of an extractor's words, of a text of one's own: it would stand in every later request."""
    odd = Observation(action_id="", tool="look\ud83d", content=(Text("words " * 50),), role="user")
    table = BUILT_IN.register(lambda *_: Outcome(label="cut \ud83d", result="\udcff"))
    for placeholders in (Placeholders(extractors=table), Placeholders(text="gone \ud83d")):
        assert "\ufffd" in placeholders.write_placeholder((1, 1), step(1), odd, KnownIdentifiers()).encode(
            "utf-8"
        ).decode("utf-8")
