"""The state: a fold over events that costs what is new."""

from __future__ import annotations

import pytest

from elision.trajectory.events import Event, HeadSet, PassDecided, RequestSent, TurnAdded, TurnAmended
from elision.trajectory.plan import Edit, FoldedRun, Summary
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Action, Head, Message, Observation, Turn, make_content


def turn(index: int, results: int = 1, said: str = "") -> Turn:
    actions = tuple(Action(id=f"c{number}", name="bash") for number in range(results))
    seen = tuple(Observation(action_id=a.id, tool="bash", content=make_content(f"out {index} " * 20)) for a in actions)
    messages = (Message(role="user", content=make_content(said)),) if said else ()
    return Turn(index=index, actions=actions, observations=seen, interjections=messages)


def called(call: int) -> RequestSent:
    return RequestSent(call=call, at=None, model="", tokens=0)


def state(*events: Event, turns: int = 0) -> State:
    """A state with a head of two messages, `turns` turns, and a call made."""
    head = Head(
        messages=(Message(role="system", content=make_content("s")), Message(role="user", content=make_content("t")))
    )
    opening: list[Event] = [HeadSet(head), *(TurnAdded(turn(index)) for index in range(1, turns + 1))]
    return State(Sizer(make_counter())).fold_events([*opening, *([called(turns + 1)] if turns else []), *events])


def shape(of: State) -> list[str]:
    letters = {"head": "H", "assistant": "a", "observation": "o", "placeholder": "p", "clipped": "c", "folded": "f"}
    return [letters.get(segment.kind, segment.kind) for segment in of.track.segments]


def summary(covers: int, *, kept: tuple[int, ...] = ()) -> Summary:
    return Summary(covers=covers, text="s", block="block", interjections=kept)


def test_a_mask_replaces_content_only() -> None:
    """A placeholder stands exactly where its observation stood."""
    masked = state(PassDecided(4, "x", edits=(Edit((2, 1), "mask", "gone"),)), turns=3)
    assert "".join(shape(masked)) == "HHaoapao"
    assert masked.find_segment((2, 1)).text == "gone"
    assert masked.track.tokens < masked.raw_track.tokens
    assert masked.hidden == {(2, 1): "gone"}


def test_a_summary_stands_behind_the_head() -> None:
    """Covered turns give way to the block and the words that stay; the rest is as it was, masks included."""
    before = state(turns=4)
    before.fold_event(PassDecided(5, "x", edits=(Edit((1, 1), "mask", "one"), Edit((3, 1), "mask", "three"))))
    before.fold_event(PassDecided(5, "x", summary=summary(2)))
    assert shape(before) == ["H", "H", "summary", "a", "p", "a", "o"]
    assert before.covered_turns == 2
    assert before.hidden == {(3, 1): "three"}
    assert (1, 1) not in before.observation_places


def test_a_new_summary_replaces_the_old_one() -> None:
    """Summaries never pile up."""
    twice = state(PassDecided(5, "x", summary=summary(1)), PassDecided(5, "x", summary=summary(3)), turns=4)
    assert shape(twice) == ["H", "H", "summary", "a", "o"]


def test_kept_words_follow_the_block_in_order() -> None:
    """Interjections of covered turns stand behind the block, oldest first."""
    talking = State(Sizer(make_counter())).fold_events(
        [HeadSet(Head()), *(TurnAdded(turn(index, said=f"say {index}")) for index in (1, 2, 3))]
    )
    talking.fold_event(PassDecided(4, "x", summary=summary(2, kept=(1, 2))))
    kinds = [(segment.kind, segment.turn) for segment in talking.track.segments]
    assert kinds[:4] == [("summary", 0), ("interjection", 1), ("interjection", 2), ("assistant", 3)]


def test_everything_covered() -> None:
    """A summary of all turns leaves head and block; the next turn stands behind them."""
    covered = state(PassDecided(3, "x", summary=summary(2)), TurnAdded(turn(3)), turns=2)
    assert shape(covered) == ["H", "H", "summary", "a", "o"]
    assert covered.turn_places[3] == 3


def test_a_rewrite_of_what_was_sent_begins_an_epoch() -> None:
    """Masking a sent observation rewrites; masking one that was never sent does not."""
    assert state(PassDecided(3, "x", edits=(Edit((2, 1), "mask", "p"),)), turns=2).epoch == 2
    unsent = state(turns=2).fold_event(TurnAdded(turn(3)))
    assert unsent.fold_event(PassDecided(4, "x", edits=(Edit((3, 1), "mask", "p"),))).epoch == 1
    assert state(PassDecided(3, "nothing"), turns=2).epoch == 1


def test_one_pass_is_one_epoch() -> None:
    """Edits between two calls begin one epoch, however many events they came in."""
    one = state(
        PassDecided(3, "x", edits=(Edit((2, 1), "mask", "p"),)),
        PassDecided(3, "x", edits=(Edit((1, 1), "mask", "p"),)),
        turns=2,
    )
    assert one.epoch == 2
    one.fold_event(called(3)).fold_event(PassDecided(3, "x", summary=summary(1)))
    assert one.epoch == 3


def test_a_clip_may_be_masked_later() -> None:
    """A clipped result is cut, not settled: its placeholder takes its place in time."""
    clipped = state(PassDecided(3, "x", edits=(Edit((2, 1), "clip", "head ... tail"),)), turns=2)
    assert "".join(shape(clipped)) == "HHaoac"
    clipped.fold_event(PassDecided(4, "y", edits=(Edit((2, 1), "mask", "p"),)))
    assert "".join(shape(clipped)) == "HHaoap"


def test_raw_is_what_came() -> None:
    """The raw view holds every turn whole, whatever was hidden."""
    hidden = state(PassDecided(4, "x", edits=(Edit((1, 1), "mask", "p"),), summary=summary(2)), turns=3)
    assert [segment.kind for segment in hidden.make_raw_view().segments] == [
        "head",
        "head",
        *["assistant", "observation"] * 3,
    ]
    assert hidden.count_raw_tokens_before(1) == hidden.track.count_tokens_before(2)
    assert hidden.count_raw_tokens_before(9) == hidden.raw_track.tokens


def test_turns_come_in_order() -> None:
    """A turn out of place is refused."""
    with pytest.raises(ValueError, match="turn 3 was added where turn 2 belongs"):
        state(turns=1).fold_event(TurnAdded(turn(3)))


def test_the_head_has_its_parts() -> None:
    """Unrecorded part, tools and messages stand in front, in that order, and count."""
    head = Head(messages=(Message(role="user", content=make_content("t")),), tools=({"name": "x"},), hidden_tokens=70)
    begun = State(Sizer(make_counter())).fold_event(HeadSet(head))
    assert [segment.kind for segment in begun.track.segments] == ["hidden", "tools", "head"]
    assert begun.track.count_tokens_before(1) == 70


def test_marks() -> None:
    """Breakpoints stand behind the head, at the frontier, at the last request's end and at this one's; four at most."""
    marked = state(turns=3)
    assert marked.make_view(3).marks == (2, 3, 8)
    marked.fold_event(TurnAdded(turn(4)))
    assert marked.make_view(5).marks == (2, 5, 8, 10)
    # A call that is made again marks what it marked, but for a frontier that moved.
    assert marked.make_view(5).marks == (2, 5, 8, 10)
    assert marked.make_view(1).marks == (2, 8, 10)


def test_work_is_what_is_new() -> None:
    """Adding turns makes no new track; a rewrite shares every segment in front of it."""
    long = state(turns=50)
    track = long.track
    long.fold_event(TurnAdded(turn(51)))
    assert long.track is track
    long.fold_event(PassDecided(52, "x", edits=(Edit((40, 1), "mask", "p"),)))
    shared = sum(ours is theirs for ours, theirs in zip(long.track.segments, track.segments, strict=True))
    assert shared == len(track.segments) - 1


def fold(key: tuple[int, int], source: tuple[int, int], text: str = "as there") -> Edit:
    return Edit(key, "fold", text, (FoldedRun(0, 1, source, 0),))


def test_a_fold_at_birth_rewrites_nothing() -> None:
    """An observation that no request held yet is folded in place; views before it stay whole."""
    going = state(turns=2)
    first = going.make_view()
    before = list(first.segments)
    going.fold_event(TurnAdded(turn(3)))
    going.fold_event(PassDecided(4, "x", edits=(fold((3, 1), (1, 1)),)))
    assert "".join(shape(going)) == "HHaoaoaf"
    assert going.find_segment((3, 1)).text == "as there"
    assert (going.epoch, going.is_edited, going.hidden) == (1, True, {})
    assert going.track is first.track
    assert first.segments == before
    assert going.make_view().count_common(first) == first.length
    assert going.track.tokens == sum(segment.tokens for segment in going.track.segments) < going.raw_track.tokens


def test_folds_are_moved_and_taken_back_with_the_mask_of_their_source() -> None:
    """A later fold of an observation replaces the first, and an unfolded one is whole; the mask is the first change."""
    going = state(turns=4)
    whole = going.find_segment((3, 1)).tokens
    going.fold_event(PassDecided(5, "x", edits=(fold((3, 1), (1, 1)), fold((4, 1), (1, 1)))))
    going.fold_event(called(5))
    view = going.make_view()
    masked = PassDecided(6, "x", (Edit((1, 1), "mask", "gone"), Edit((3, 1), "whole"), fold((4, 1), (3, 1), "moved")))
    going.fold_event(masked)
    assert "".join(shape(going)) == "HHapaoaoaf"
    assert going.find_segment((3, 1)).tokens == whole
    assert going.find_segment((3, 1)).text == ""
    assert {key: edit.text for key, edit in going.edits.items()} == {(1, 1): "gone", (4, 1): "moved"}
    assert going.edit_counts.total() == len(going.edits)
    assert going.make_view().count_common(view) == going.observation_places[1, 1]


def test_what_is_folded_can_be_masked_clipped_or_covered() -> None:
    """Then it is folded no longer."""
    going = state(turns=4)
    going.fold_event(PassDecided(5, "x", edits=tuple(fold((index, 1), (1, 1)) for index in (2, 3, 4))))
    going.fold_event(PassDecided(6, "x", (Edit((3, 1), "mask", "gone"), Edit((4, 1), "clip", "cut")), summary(2)))
    assert shape(going) == ["H", "H", "summary", "a", "p", "a", "c"]
    assert going.folded == {}


def test_an_amended_turn_forgets_its_folds() -> None:
    """Those of the turn that came again; what views rely on is listed."""
    going = state(turns=3)
    going.fold_event(PassDecided(4, "x", edits=(fold((2, 1), (1, 1)), fold((3, 1), (1, 1)))))
    assert going.list_fixed_keys(3) == {(3, 1)}
    going.fold_event(TurnAmended(turn(3, results=2)))
    assert list(going.folded) == [(2, 1)]
    going.fold_event(PassDecided(5, "x", edits=(fold((3, 2), (3, 1)),)))
    assert going.list_fixed_keys(3) == {(3, 1), (3, 2)}
    assert "".join(shape(going)) == "HHaoafaof"
