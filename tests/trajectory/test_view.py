"""Views: segments, tokens, and what two of them share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.trajectory.view import Segment, Track, View


def track(*sizes: int) -> Track:
    made = Track()
    for size in sizes:
        made.append(Segment(kind="assistant", tokens=size))
    return made


def view(of: Track, length: int | None = None) -> View:
    return View(call=1, epoch=1, track=of, length=len(of.segments) if length is None else length)


def test_an_older_view_does_not_grow() -> None:
    """Appending to a track leaves the views taken before as they were."""
    growing = track(3, 4)
    before = view(growing)
    growing.append(Segment(kind="assistant", tokens=5))
    assert (before.tokens, len(before.segments), view(growing).tokens) == (7, 2, 12)


def test_common_of_one_track() -> None:
    """Of one track the shorter view is the common part."""
    growing = track(1, 2, 3)
    assert view(growing).count_common(view(growing, 2)) == view(growing, 2).count_common(view(growing)) == 2
    assert view(growing).count_common(None) == 0


def test_common_ends_at_the_first_rewritten_segment() -> None:
    """Tracks share segments up to the fork, and nothing behind it, even where it is equal."""
    old = track(1, 2, 3, 4)
    new = old.fork(1)
    new.append(Segment(kind="placeholder", tokens=1))
    for segment in old.segments[2:]:
        new.append(segment)
    assert view(new).count_common(view(old)) == view(old).count_common(view(new)) == 1
    assert (view(new).tokens, view(old).tokens) == (9, 10)


def test_an_empty_view() -> None:
    """Before the head there is nothing."""
    assert (view(Track()).tokens, view(Track()).segments, view(Track()).count_common(view(Track()))) == (0, [], 0)


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 500))
def test_place_of(sizes: list[int], tokens: int) -> None:
    """As many whole segments as fit, and not one more."""
    whole = view(track(*sizes))
    place = whole.find_place(tokens)
    assert sum(sizes[:place]) <= tokens
    assert place == len(sizes) or sum(sizes[: place + 1]) > tokens
