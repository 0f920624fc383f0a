"""What Anthropic rejects: one broken request for each rule, and what looks broken and is not."""

from __future__ import annotations

from typing import Any

from elision.testing.request_rules import list_violations

MARK = {"cache_control": {"type": "ephemeral"}}
LONG = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
SEALED = {"type": "thinking", "thinking": "Hm.", "signature": "c2Vh"}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def call(id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "ls", "input": {}, **fields}


def result(id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": "a.py", **fields}


def server(id: str = "srvtoolu_1", **fields: Any) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {}, **fields}


def found(id: str = "srvtoolu_1", **fields: Any) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": [], **fields}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def request(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": list(messages), **fields}


ASKED = user(text("List."))
TOOL = {"name": "ls", "input_schema": {"type": "object"}}
#: Rule -> (a request that breaks it and no other, the place).
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "there-are-messages": (request(), "messages"),
    "roles-are-known": (request(ASKED, {"role": "tool", "content": "a.py"}, ASKED), "messages.1.role"),
    "messages-have-content": (request(ASKED, assistant(), ASKED), "messages.1"),
    "texts-are-not-blank": (request(user(text("List."), text(" \n"))), "messages.0.content.1"),
    "the-answer-does-not-begin-with-space-at-its-end": (
        request(ASKED, assistant(text("It is "))),
        "messages.1.content.0",
    ),
    "the-user-ends": (
        request(ASKED, assistant(text("It is")), model="claude-opus-4-6"),
        "messages.1",
    ),
    "calls-are-answered": (request(ASKED, assistant(call()), user(text("Well?"))), "messages.1.content.0"),
    "results-answer-the-last-calls": (
        request(ASKED, assistant(call()), user(result()), assistant(text("So.")), user(result())),
        "messages.4.content.0",
    ),
    "results-stand-first": (request(ASKED, assistant(call()), user(text("Here:"), result())), "messages.2.content.1"),
    "call-ids-are-unique": (
        request(ASKED, assistant(call(), call()), user(result())),
        "messages.1.content.1",
    ),
    "calls-are-well-formed": (
        request(ASKED, assistant(call("a.b")), user(result("a.b"))),
        "messages.1.content.0.tool_use.id",
    ),
    "server-results-stand-behind-their-call": (
        request(ASKED, assistant(found(), text("So."), server()), ASKED),
        "messages.1.content.0",
    ),
    "errors-are-told-in-text": (
        request(ASKED, assistant(call()), user(result(content=[], is_error=True))),
        "messages.2.content.0",
    ),
    "tools-are-named-once": (request(ASKED, tools=[TOOL, TOOL]), "tools"),
    "thinking-is-sealed": (
        request(ASKED, assistant({"type": "thinking", "thinking": "Hm."}, text("So.")), ASKED),
        "messages.1.content.0.thinking.signature",
    ),
    "thinking-is-not-last": (request(ASKED, assistant(text("So."), SEALED), ASKED), "messages.1.content.1"),
    "thinking-goes-before-the-running-calls": (
        request(ASKED, assistant(call()), user(result()), thinking={"type": "enabled", "budget_tokens": 1024}),
        "messages.1.content.0",
    ),
    "there-are-four-breakpoints-at-most": (
        request(user(*(text("x", **MARK) for _ in range(3))), system=[text("s", **MARK)], tools=[{**TOOL, **MARK}]),
        "messages",
    ),
    "longer-lives-come-first": (
        request(user(text("x", **LONG)), tools=[{**TOOL, **MARK}]),
        "messages.0.content.0.cache_control.ttl",
    ),
    "breakpoints-stand-where-they-may": (
        request(ASKED, assistant({**SEALED, **MARK}, text("So.")), ASKED),
        "messages.1.content.0.cache_control",
    ),
}


SOUND = {
    "a string": request({"role": "user", "content": "List."}),
    "the assistant first": request(assistant(text("Hello.")), ASKED),
    "an id used again in another turn": request(
        ASKED, assistant(call()), user(result()), assistant(call()), user(result())
    ),
    "results in two messages": request(ASKED, assistant(call("a"), call("b")), user(result("b")), user(result("a"))),
    "words behind results": request(ASKED, assistant(call()), user(result(), text("Thanks."))),
    "words behind calls": request(ASKED, assistant(call(), text("Wait.")), user(result())),
    "an empty result": request(ASKED, assistant(call()), user({"type": "tool_result", "tool_use_id": "a"})),
    "a system message between": request(ASKED, assistant(call()), {"role": "system", "content": "x"}, user(result())),
    "a prefill": request(ASKED, assistant(text("It is"))),
    "an empty prefill": request(ASKED, assistant()),
    "a compaction first": request(assistant({"type": "compaction", "content": "So far."}), ASKED),
    "adaptive thinking": request(ASKED, assistant(call()), user(result()), thinking={"type": "adaptive"}),
    "four marks and an automatic one on one of them": request(
        user(*(text("x", **MARK) for _ in range(4))), cache_control=MARK["cache_control"]
    ),
    "longer first": request(user(text("x", **MARK)), tools=[{**TOOL, **LONG}]),
    "a server's tool": request(ASKED, assistant(server())),
    "a server's tool and its result": request(ASKED, assistant(server(), found(), text("So.")), ASKED),
    "a server's tool that went on in the next message": request(
        ASKED, assistant(server(), call()), user(result()), assistant(found(), text("So.")), ASKED
    ),
    "an MCP server's tool": request(
        ASKED, assistant(server(type="mcp_tool_use", id="m"), found("m", type="mcp_tool_result")), ASKED
    ),
    "an answer that a server's tool interrupted": request(ASKED, assistant(server(), found()), model="claude-opus-5"),
}


def test_a_servers_call_has_an_id_of_its_kind() -> None:
    """The service made it, and knows its own."""
    (broken,) = list_violations("anthropic", request(ASKED, assistant(server("toolu_1"), text("So.")), ASKED))
    assert (broken.rule, broken.place) == ("calls-are-well-formed", "messages.1.content.0.server_tool_use.id")


def test_automatic_caching_for_an_hour_is_the_last_of_all() -> None:
    """So nothing in front of it may live shorter; where it falls on a marked block it does nothing."""
    short = request(user(text("x", **MARK), text("y")), cache_control=LONG["cache_control"])
    assert [each.rule for each in list_violations("anthropic", short)] == ["longer-lives-come-first"]
    assert list_violations("anthropic", request(user(text("x", **MARK)), cache_control=LONG["cache_control"])) == []


def test_automatic_caching_takes_a_breakpoint() -> None:
    """Four marks and the automatic one behind them are five; a mark inside a result counts as any other."""
    marked = [user(*(text("x", **MARK) for _ in range(4)), text("y"))]
    five = request(*marked, cache_control=MARK["cache_control"])
    assert [each.rule for each in list_violations("anthropic", five)] == ["there-are-four-breakpoints-at-most"]
    inside = user(result(content=[text("x", **MARK)]), *(text("x", **MARK) for _ in range(4)))
    within = request(ASKED, assistant(call()), inside)
    assert [each.rule for each in list_violations("anthropic", within)] == ["there-are-four-breakpoints-at-most"]
