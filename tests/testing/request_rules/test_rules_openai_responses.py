"""What OpenAI's Responses API rejects: one broken request for each rule, and what looks broken and is not."""

from __future__ import annotations

from typing import Any

from elision.testing.request_rules import list_violations

ASKED = {"role": "user", "content": "List."}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]}
SEARCH = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}}
FOUND = {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": []}
TOOL = {"type": "function", "name": "ls", "parameters": {}}


def call(call_id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "ls", "arguments": "{}", **fields}


def output(id: str = "a", kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": id, "output": "a.py"}


def thought(id: str = "rs_1") -> dict[str, Any]:
    return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": "c2Vh"}


BOTH = (output("a"), output("b"))


def search(
    *, call_id: str | None, execution: str = "server", ids: tuple[str, str] | None = None
) -> list[dict[str, Any]]:
    """A search for tools and what it found, as the service put them out."""
    shared = {"call_id": call_id, "execution": execution, "status": "completed"}
    asked = {"type": "tool_search_call", "arguments": {"queries": ["rate"]}, **shared}
    found = {"type": "tool_search_output", "tools": [TOOL], **shared}
    return [asked, found] if ids is None else [{**asked, "id": ids[0]}, {**found, "id": ids[1]}]


def request(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "gpt-5.6", "input": list(items), **fields}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "there-is-input": (request(), "input"),
    "calls-are-answered": (request(ASKED, call(), ASKED), "input.1"),
    "outputs-stand-behind-their-call": (request(ASKED, output()), "input.1"),
    "call-ids-are-unique": (request(ASKED, call(), output(), call(), output()), "input.3.call_id"),
    "item-ids-are-unique": (request(ASKED, thought(), call("a"), thought(), call("b"), *BOTH), "input.3.id"),
    "item-ids-have-their-prefix": (request(ASKED, call(id="item_1"), output()), "input.1.id"),
    "reasoning-leads-to-something": (request(ASKED, thought(), ASKED), "input.1"),
    "files-are-no-recordings": (
        request({"role": "user", "content": [{"type": "input_file", "file_data": "data:audio/mpeg;base64,SUQz"}]}),
        "input.0.content.0.file_data",
    ),
    "tools-are-named-once": (request(ASKED, tools=[TOOL, TOOL]), "tools"),
}


SOUND = {
    "a text": {"model": "gpt-5", "input": "List."},
    "searches that the provider runs": request(ASKED, SEARCH, SEARCH, FOUND, FOUND, SAID),
    "a word between call and output": request(ASKED, call(), ASKED, output()),
    "parallel calls": request(ASKED, thought(), call("a"), call("b"), output("b"), output("a")),
    "reasoning twice": request(ASKED, thought("rs_1"), thought("rs_2"), call(), output()),
    "an earlier response": request(output(), previous_response_id="resp_1"),
    "a reference": request({"type": "item_reference", "id": "fc_1"}, output()),
    "nothing but an earlier response": request(previous_response_id="resp_1"),
    "a hosted call": request(ASKED, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, SAID),
    "a search of tools that the service ran": request(ASKED, *search(call_id=None), SAID),
    "the same, with ids of items": request(ASKED, *search(call_id=None, ids=("tsc_1", "tso_1")), SAID),
    "a search of tools that the client ran": request(ASKED, *search(call_id="a", execution="client"), SAID),
    "a search of tools answered as a function": request(ASKED, search(call_id="a", execution="client")[0], output()),
    "reasoning and words under their ids": request(ASKED, thought(), {**SAID, "id": "msg_1"}, ASKED),
    "reasoning and words without ids": request(ASKED, {**thought(), "id": None}, SAID, ASKED),
    "reasoning that the service does not store": request(ASKED, thought(), SAID, ASKED, store=False),
    "a document": request(
        {"role": "user", "content": [{"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0="}]}
    ),
    "a shell that the service runs": request(ASKED, {"type": "shell_call", "call_id": "s", "action": {}}, SAID),
}


def test_reasoning_is_stored_with_the_words_behind_it() -> None:
    """Under an id the service knows the message that followed, and takes no other in its place."""
    (found,) = list_violations("openai-responses", request(ASKED, thought(), SAID, ASKED))
    assert (found.rule, found.place, found.subject) == ("reasoning-leads-to-something", "input.1", "rs_1")


def test_an_output_answers_a_call() -> None:
    """A custom tool's call is not answered by a function's output; a second output answers nothing."""
    custom = {"type": "custom_tool_call", "call_id": "a", "name": "ls", "input": "x"}
    rules = [each.rule for each in list_violations("openai-responses", request(ASKED, custom, output()))]
    assert rules == ["calls-are-answered"]
    rules = [each.rule for each in list_violations("openai-responses", request(ASKED, call(), output(), output()))]
    assert rules == ["outputs-stand-behind-their-call"]
