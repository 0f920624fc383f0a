"""Which sentences of a user are constraints, which of two constraints holds, and which constraints a text lacks."""

from __future__ import annotations

import time

import pytest

from elision.trajectory.summary_block import (
    LONGEST_CONSTRAINT,
    Constraint,
    choose_current_constraints,
    find_constraints,
    list_missing_constraints,
)


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
