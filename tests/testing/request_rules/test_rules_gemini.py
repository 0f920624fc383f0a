"""What Gemini rejects, and what an edit must not add."""

from __future__ import annotations

from typing import Any

import pytest

from elision.testing.request_rules import list_violations

USER = {"role": "user", "parts": [{"text": "Hi."}]}
CALL = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "YQ=="}]}
ANSWER = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]}
BARE_CALL = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
BOTH = {"role": "user", "parts": [*ANSWER["parts"], *ANSWER["parts"]]}


@pytest.mark.parametrize(
    ("contents", "rule"),
    [
        ([], "there-are-contents"),
        ([{"role": "system", "parts": [{"text": "x"}]}], "roles-are-valid"),
        ([{"role": "user", "parts": []}], "contents-have-parts"),
        ([{"role": "user", "parts": [{}]}], "contents-have-parts"),
        ([CALL, ANSWER], "calls-follow-the-user"),
        ([USER, CALL, USER], "calls-are-answered"),
        ([USER, CALL, BOTH], "responses-follow-their-call"),
        ([USER, ANSWER], "responses-follow-their-call"),
        ([USER, BARE_CALL, ANSWER], "calls-keep-their-signature"),
    ],
)
def test_each_rule(contents: list[Any], rule: str) -> None:
    """A request that breaks it, and nothing else."""
    found = list_violations("gemini", {"model": "gemini-3-pro-preview", "contents": contents})
    assert {each.rule for each in found} == {rule}


def test_sound_requests() -> None:
    """Also of models that sign nothing, of steps before the user's last words, and with calls not yet answered."""
    for model in ("gemini-2.5-pro", "models/gemini-2.5-flash"):
        assert list_violations("gemini", {"model": model, "contents": [USER, BARE_CALL, ANSWER]}) == []
    signed = {"model": "gemini-3.5-pro", "contents": [USER, BARE_CALL, ANSWER, USER, CALL, ANSWER, CALL]}
    assert list_violations("gemini", signed) == []


def test_functions_have_names_of_their_own() -> None:
    """In all lists of functions together."""
    tools = [{"functionDeclarations": [{"name": "f"}]}, {"function_declarations": [{"name": "f"}]}]
    found = list_violations("gemini", {"contents": [USER], "tools": tools})
    assert [each.rule for each in found] == ["functions-are-declared-once"]


@pytest.mark.parametrize("junk", [None, 3, "x", [None], [3, {"parts": 3}], [{"role": 3, "parts": [None, {"a": []}]}]])
def test_junk_raises_nothing(junk: Any) -> None:
    """Whatever a request holds."""
    assert list_violations("gemini", {"contents": junk, "tools": junk, "model": junk})
