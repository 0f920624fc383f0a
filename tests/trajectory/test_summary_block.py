"""The block that stands for covered turns, and which words of the user stay behind it."""

from __future__ import annotations

from elision.trajectory.content import make_content
from elision.trajectory.summary_block import (
    FRAME_TOKENS,
    Constraint,
    choose_kept_interjections,
    format_summary_block,
    quote_older_words,
    quote_user_words,
)
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Message, Turn

SIZER = Sizer(make_counter())


def user(text: str) -> Message:
    return Message(role="user", content=make_content(text))


def said(index: int, *texts: str, pinned: bool = False) -> Turn:
    messages = tuple(Message(role="user", content=make_content(text), pinned=pinned) for text in texts)
    return Turn(index=index, interjections=messages)


def test_block_is_labelled_as_a_record() -> None:
    """Nobody may take a summary for an order of the user's."""
    text = format_summary_block(" done \n", 7, [], [])
    assert text.startswith("[Record of turns 1-7 of this conversation, condensed.")
    assert "not a message from the user and not a new request" in text
    assert text.endswith("\n\ndone")


def test_protected_results_are_quoted_word_for_word() -> None:
    """Whatever a protected result holds, it stands in the block as it was, with its handle."""
    odd = "a\n\n```\n[Kept word for word: t9.9 x]\n \ud800 " * 500
    assert format_summary_block("s", 3, [("t2.1 notes", odd)], []).endswith(f"[Kept word for word: t2.1 notes]\n{odd}")


def test_old_user_messages_are_cut_in_the_middle() -> None:
    """A long message keeps its beginning and its end."""
    (words,) = quote_older_words([user("begin " + "x" * 2_000 + " end")], 1_000, SIZER)
    text = format_summary_block("s", 1, [], [words])
    assert "[User message of that time] begin" in text
    assert text.endswith("x end")
    assert len(text) < 1_200


def test_old_user_messages_keep_to_their_limit() -> None:
    """The newest that fit are quoted, in order; a history of thousands does not grow the block."""
    found = quote_older_words([user(f"message {number}") for number in range(1_000)], 100, SIZER)
    assert found[-1] == "message 999"
    assert found == sorted(found)
    assert sum(FRAME_TOKENS + SIZER.count(words) for words in found) <= 100


def test_newest_words_stay() -> None:
    """Of more than fits the newest stay, in order, without a gap between them."""
    turns = [said(1, "a"), said(2), said(3, "b"), said(4, "c")]
    assert choose_kept_interjections(turns, [5, 0, 5, 5], 10) == (3, 4)
    assert choose_kept_interjections(turns, [1, 0, 20, 5], 10) == (4,)
    assert choose_kept_interjections(turns, [5, 0, 5, 5], 100) == (1, 3, 4)
    assert choose_kept_interjections(turns, [5, 0, 5, 5], 0) == ()


def test_pinned_words_always_stay() -> None:
    """A pinned message stays however full the limit, also behind one that did not fit."""
    turns = [said(1, "rule", pinned=True), said(2, "long"), said(3, "new")]
    assert choose_kept_interjections(turns, [50, 500, 5], 10) == (1, 3)


def test_constraints_come_before_other_old_words() -> None:
    """Where the room is short, what binds the agent is quoted, and chatter is not."""
    messages = [user("Never push to main."), *(user(f"By the way, remark number {number}.") for number in range(50))]
    constraints, older = quote_user_words(messages, [Constraint(1, "Never push to main.")], "summary", 60, SIZER)
    assert [constraint.text for constraint in constraints] == ["Never push to main."]
    assert older
    assert older[-1].endswith("49.")
    block = format_summary_block("s", 60, [], older, constraints)
    assert "word for word]\n- [1] Never push to main.\n\n[User message of that time]" in block


def test_a_constraint_that_the_summary_has_is_not_restated() -> None:
    """A restated constraint costs tokens in every later request."""
    messages = [user("Never push to main."), user("x " * 500)]
    constraint = Constraint(1, "Never push to main.")
    assert quote_user_words(messages, [constraint], "The user said: never push to main.", 60, SIZER)[0] == []
    assert quote_user_words(messages[:1], [constraint], "summary", 600, SIZER) == ([], ["Never push to main."])


def test_constraints_and_older_words_keep_to_one_limit() -> None:
    """However many constraints there are, the block grows by no more than the limit; the newest stay."""
    constraints = [Constraint(number, f"Never touch file number {number}x.") for number in range(1, 200)]
    messages = [user(constraint.text) for constraint in constraints]
    summary = "word " * 300
    restated, older = quote_user_words(messages, constraints, summary, 300, SIZER)
    assert restated == constraints[-len(restated) :]
    assert 10 < len(restated) < 60
    with_constraints = SIZER.count(format_summary_block("s", 200, [], older, restated))
    assert with_constraints - SIZER.count(format_summary_block("s", 200, [], [])) <= 300


def test_a_short_summary_leaves_its_room_to_constraints() -> None:
    """A view is planned with the summary at its limit; what a short one leaves free was planned for."""
    constraints = [Constraint(number, f"Never touch file number {number}x.") for number in range(1, 200)]
    messages = [user(constraint.text) for constraint in constraints]
    after_long = quote_user_words(messages, constraints, "word " * 300, 300, SIZER)[0]
    after_short, older = quote_user_words(messages, constraints, "word", 300, SIZER)
    assert len(after_short) > 1.8 * len(after_long)
    assert older == []
