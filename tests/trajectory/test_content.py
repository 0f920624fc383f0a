"""Content: text, and parts that are kept but never read."""

from __future__ import annotations

import pytest

from elision.trajectory.turn import Opaque, Text, join_text, make_content


def test_empty_text_is_no_part() -> None:
    """Nothing said is no content at all."""
    assert make_content("") == ()
    assert join_text(()) == ""


def test_white_space_is_content() -> None:
    """Only empty text is nothing: a newline was said."""
    assert make_content("\n") == (Text("\n"),)


def test_text_of_leaves_opaque_parts_out() -> None:
    """Text parts are joined by a newline; an image between them says nothing."""
    assert join_text((Text("a"), Opaque("image", tokens=9, data={"url": "x"}), Text("b"))) == "a\nb"


def test_opaque_parts_hash_whatever_they_hold() -> None:
    """Recorded data need not be hashable, and still tells parts apart."""
    one, other = Opaque("image", data={"a": [1]}), Opaque("image", data={"a": [2]})
    assert hash(one) == hash(other)
    assert one != other


def test_opaque_data_is_not_shown() -> None:
    """What an unknown part holds stays out of logs."""
    assert "secret" not in repr(Opaque("image", data={"key": "secret"}))


def test_parts_are_frozen() -> None:
    """A recorded part cannot be changed."""
    with pytest.raises(AttributeError):
        Text("a").text = "b"  # type: ignore[misc]
