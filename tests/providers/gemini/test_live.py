"""Gemini's contents, live: what a session of Google's own objects is sent as."""

from __future__ import annotations

from typing import Any

import pytest
from google.genai import types

from elision import ContextManager
from elision.errors import DialectError
from elision.providers.gemini.parse import LiveGemini
from elision.testing.request_rules import list_new_violations
from tests.providers.render_checks import check_contents

LIVE = LiveGemini()
LONG = "\n".join(f"line {number} of a long output" for number in range(300))
SPEC = "masking(window=2, schedule=every-turn)"
Json = dict[str, Any]


def make_call(index: int) -> Json:
    call = {"functionCall": {"name": "bash", "args": {"cmd": f"make {index}"}}, "thoughtSignature": "YWJj"}
    return {"role": "model", "parts": [call]}


def make_answer(index: int, **fields: Any) -> Json:
    response = {"output": f"{LONG} {index}"}
    return {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": response, **fields}}]}


def make_contents(turns: int) -> list[Json]:
    contents: list[Json] = [{"role": "user", "parts": [{"text": "Fix it."}]}]
    for index in range(turns):
        contents += [make_call(index), make_answer(index)]
    return contents


@pytest.mark.parametrize("as_objects", [False, True], ids=["JSON", "objects of google-genai"])
def test_old_responses_are_masked_in_their_own_shape(as_objects: bool) -> None:
    """Calls and signatures stay, a response keeps its fields, and the types and rules hold."""
    contents = make_contents(6)
    given: list[Any] = [types.Content.model_validate(each) for each in contents] if as_objects else contents
    with ContextManager(strategy=SPEC, store="memory:", model="gemini-3-pro-preview", recall="caller") as context:
        for end in range(1, len(given) + 1, 2):
            view = context.prepare(given[:end], system="You fix bugs.")
    sent = [types.Content.model_validate(each) for each in view.messages]
    assert [each.role for each in sent] == [each["role"] for each in contents]
    said = [part.function_response for each in sent for part in each.parts or () if part.function_response]
    outputs = [each.response["output"] for each in said if each.response]
    assert [output.startswith("[t") for output in outputs] == [True] * 4 + [False] * 2
    assert {each.name for each in said} == {"bash"}
    assert all(part.thought_signature == b"abc" for each in sent for part in each.parts or () if part.function_call)
    plain = [each.model_dump(mode="json", exclude_none=True, by_alias=True) for each in sent]
    check_contents(plain)
    model = {"model": "gemini-3-pro-preview"}
    assert list_new_violations("gemini", {"contents": contents, **model}, {"contents": plain, **model}) == []


def test_parallel_responses_are_pieces_of_their_own() -> None:
    """Results are told apart by id, or by the order of calls of one function; other parts are the user's words."""
    answer = make_answer(1)
    answer["parts"] += [*make_answer(2)["parts"], {"text": "Thanks."}]
    pieces = LIVE.split_message(answer, 4)
    assert [(piece.kind, piece.location.blocks) for piece in pieces] == [
        ("result", (0,)),
        ("result", (1,)),
        ("user", (2,)),
    ]


def test_a_hidden_response_keeps_what_it_is_told_by() -> None:
    """Id, name, scheduling; its text replaces the field that held all, and media go."""
    answer = {"id": "c1", "name": "f", "response": {"result": "x"}, "scheduling": "SILENT", "parts": [{"text": "y"}]}
    assert LIVE.replace_result({"functionResponse": answer}, "[gone]") == {
        "functionResponse": {"id": "c1", "name": "f", "response": {"result": "[gone]"}, "scheduling": "SILENT"}
    }
    assert LIVE.replace_result({"function_response": {"name": "f", "response": {"a": 1, "b": 2}}}, "[gone]") == {
        "function_response": {"name": "f", "response": {"output": "[gone]"}}
    }
    assert LIVE.replace_result({"text": "observed"}, "[gone]") == {"text": "[gone]"}


def test_a_summary_is_a_content_of_the_user() -> None:
    """And turns that it covers are gone, calls with their responses."""
    contents = make_contents(12)
    spec = "summarization(every=6, tail=3, schedule=every-turn)"
    with ContextManager(strategy=spec, store="memory:", model="gemini-2.5-pro", summarizer="digest") as context:
        for end in range(1, len(contents) + 1, 2):
            view = context.prepare(contents[:end])
    check_contents(view.messages)
    assert list_new_violations("gemini", {"contents": contents}, {"contents": view.messages}) == []
    assert len(view.messages) < len(contents)
    assert any("COMPLETED" in str(part.get("text")) for each in view.messages for part in each["parts"])


def test_recall_tools_are_function_declarations() -> None:
    """As the API defines functions, by a JSON schema."""
    with ContextManager(strategy=SPEC, store="memory:", model="gemini-2.5-pro") as context:
        context.prepare(make_contents(1))
        (definition, *_) = context.tool_definitions()
    tool = types.Tool.model_validate(definition)
    assert tool.function_declarations is not None
    assert tool.function_declarations[0].name == "elision_recall"


def test_usage_of_a_response_is_recorded() -> None:
    """Of the object of Google's package."""
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=900, cached_content_token_count=500, candidates_token_count=10
    )
    with ContextManager(strategy=SPEC, store="memory:", model="gemini-2.5-pro") as context:
        context.prepare(make_contents(2))
        context.record(types.GenerateContentResponse(usage_metadata=usage))
        billed = context.prepare(make_contents(3)).diagnostics.costs.billed
    assert billed is not None
    # USD at Gemini 2.5 Pro's prices: 400 new tokens, 500 read from the cache, 10 of the answer.
    assert billed == pytest.approx((400 * 1.25 + 500 * 0.125 + 10 * 10) / 1e6)


def test_parts_of_another_package_are_refused() -> None:
    """Those of the AI SDK look alike; each has a type."""
    with ContextManager(store="memory:") as context, pytest.raises(DialectError, match="AI SDK"):
        context.prepare([{"role": "user", "parts": [{"type": "text", "text": "Hi."}]}])
