"""The block that stands for covered turns: which words of the user stay after it, and which of them are constraints."""

from __future__ import annotations

import time

import pytest

from elision.trajectory.summary_block import (
    FRAME_TOKENS,
    LONGEST_CONSTRAINT,
    Constraint,
    choose_current_constraints,
    choose_kept_interjections,
    find_constraints,
    format_summary_block,
    list_missing_constraints,
    quote_older_words,
    quote_user_words,
)
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Message, Turn, make_content

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


def choose(*texts: str) -> list[str]:
    constraints = [Constraint(turn, text) for turn, text in enumerate(texts, start=1)]
    return [constraint.text for constraint in choose_current_constraints(constraints)]


@pytest.mark.parametrize(
    "text",
    [
        "Never push to the remote.",
        "You must not touch src/generated.",
        "Please don’t rewrite the changelog.",
        "do not delete files without asking",
        "Only use Python 3.11.",
        "Always answer in metric units.",
        "From now on, report all times in Pacific time.",
        "HARD CONSTRAINT: Report all times in Zone/Kabcde timezone.",
        "**Rule:** escalate what could harm a third party.",
        "I don't want you to change the tests.",
        "Die Tests dürfen nie geändert werden.",
        "Ne modifiez jamais ce fichier.",
        "No cambies nunca la API.",
        "不要修改测试。",
    ],
)
def test_a_sentence_that_binds_is_a_constraint(text: str) -> None:
    """By its words, in several languages, or by its label; it is found word for word."""
    assert find_constraints(f"Hello. \n- {text}") == [text]


@pytest.mark.parametrize(
    "mark",
    [
        *("must", "mustn't", "must not", "never", "do not", "don't", "don’t", "always", "only", "shall not", "may not"),
        *(
            "not allowed",
            "forbidden",
            "prohibited",
            "required to",
            "under no circumstances",
            "from now on",
            "no longer",
        ),
        *("niemals", "nie", "immer", "nur", "muss", "müssen", "darf", "dürfen", "verboten", "ab sofort", "jamais"),
        *("toujours", "uniquement", "seulement", "ne le modifie pas", "doit", "doivent", "interdit", "désormais"),
        *(
            "nunca",
            "siempre",
            "solo",
            "sólo",
            "solamente",
            "debe",
            "debes",
            "deben",
            "prohibido",
            "必须",
            "不要",
            "绝不",
        ),
        *(
            "禁止",
            "只能",
            "只允许",
            "必ず",
            "絶対",
            "だけ",
            "しないで",
            "rules:",
            "constraint:",
            "requirement:",
            "limit:",
        ),
        *("restriction:", "policy:", "policies:", "important:"),
    ],
)
def test_each_sentence_that_is_one_has_a_hint(mark: str) -> None:
    """Whatever its case, and however far its words are apart: a text without a hint is not looked through."""
    for text in (f"{mark} touch it", f"{mark.upper()} touch it", f"{mark.replace(' ', '   ')} touch it"):
        assert find_constraints(text) == [" ".join(text.split())]


@pytest.mark.parametrize(
    "text",
    [
        "The tests fail on Windows.",
        "Why does it always fail?",
        "I don't know where the file is.",
        "There must be a way to do it.",
        "He must have deleted it.",
        "```\nnever = True  # must not be changed\n```",
        "The onlyfile.txt and mustard.py are there.",
        "",
    ],
)
def test_a_statement_is_no_constraint(text: str) -> None:
    """Questions, guesses, code and parts of words bind nobody."""
    assert find_constraints(text) == []


def test_a_constraint_brings_the_sentence_that_it_is_about() -> None:
    """Without the first sentence, the second says nothing."""
    text = "The budget cap is $500. Never exceed it. Always ask first. The sky is blue."
    assert find_constraints(text) == ["The budget cap is $500. Never exceed it. Always ask first."]


def test_a_labelled_line_stays_whole() -> None:
    """What follows on the line of a label belongs to the constraint."""
    line = "HARD CONSTRAINT: Python 3.11. No external network calls."
    assert find_constraints(f"Some words.\n* {line}\nOther words.") == [line]


def test_a_long_constraint_keeps_its_beginning_and_its_end() -> None:
    """A pasted paragraph without a full stop does not fill the block."""
    (constraint,) = find_constraints("You must read this: " + "word " * 500 + "to the end")
    assert len(constraint) <= LONGEST_CONSTRAINT
    assert constraint.startswith("You must read this")
    assert constraint.endswith("to the end")


def test_only_a_set_value_replaces_a_constraint() -> None:
    """A newer cap replaces the older one; constraints that differ in anything else stay side by side."""
    assert choose("The cap must be $400.", "Never edit line 40.", "The cap must be $700.", "Never edit line 41.") == [
        "Never edit line 40.",
        "The cap must be $700.",
        "Never edit line 41.",
    ]
    assert choose("Always stay below 5 retries.", "Always stay below 10 retries.") == ["Always stay below 10 retries."]
    assert len(choose("The project cap is $4 only.", "The travel cap is $4 only.")) == 2
    assert len(choose("Never call 1001.", "Never call 1002.")) == 2
    assert len(choose("The host must be 10.0.0.1x.", "The host must be 10.0.0.2y.")) == 2


def test_a_repeated_rule_counts_once() -> None:
    """Letter case, white space and a full stop make no other constraint."""
    assert choose("Never push.", "never  push") == ["never  push"]


def test_a_constraint_that_is_shown_is_not_missing() -> None:
    """A summary may keep a constraint word for word; a paraphrase is not the constraint."""
    constraints = [Constraint(1, "Never push to main."), Constraint(2, "Don’t touch the tests.")]
    shown = "USER_CONTEXT: never push\n to main, and so on; do not touch tests"
    assert list_missing_constraints(constraints, shown) == constraints[1:]


def test_a_large_text_is_searched_in_linear_time() -> None:
    """A pasted log of one line, or of many marks, is no denial of service."""
    started = time.process_time()
    for text in ("never " * 100_000, "a " * 200_000, "rule " * 100_000, "must\n" * 100_000, "```" * 100_000):
        find_constraints(text)
    assert time.process_time() - started < 2
