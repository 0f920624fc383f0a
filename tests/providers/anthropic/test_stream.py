"""What only Anthropic's answers have: kinds of blocks and deltas, usage that is told again."""

from __future__ import annotations

import json

from elision.gateway.recall_rounds import ResponseMerger
from tests.gateway.test_recall_rounds import relayed
from tests.providers.streaming.provider_responses import (
    Json,
    ProviderResponse,
    ResponsePart,
    parse_as_client,
    render_events,
    render_stream,
)

RECALL = ResponsePart(kind="recall", id="r", text="t3.1")
PLAIN = ProviderResponse(number=1, parts=(ResponsePart(kind="text", id="m", text="It is in parser.py."),))
CITED = {"type": "char_location", "cited_text": "x", "document_index": 0}


def spoken(*blocks: tuple[Json, list[Json]], number: int = 0, usage: Json | None = None) -> bytes:
    """A stream of these blocks, each as it starts and with its deltas; it ends with a recall."""
    told = render_events("anthropic", ProviderResponse(number=number, parts=(RECALL,)))
    start, call, ending = told[0], told[1:-2], told[-2:]
    inner: list[Json] = []
    for index, (begun, deltas) in enumerate(blocks):
        inner.append({"type": "content_block_start", "index": index, "content_block": begun})
        inner += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        inner.append({"type": "content_block_stop", "index": index})
    moved = [{**each, "index": len(blocks)} if "index" in each else each for each in call]
    if usage is not None:
        ending[0] = {**ending[0], "usage": usage}
    return render_stream("anthropic", [start, *inner, *moved, *ending])


def test_every_kind_of_block_goes_back_as_it_was_said() -> None:
    """Sealed thinking, citations, a provider's own tools, compaction, and what nobody knows yet."""
    blocks: list[tuple[Json, list[Json]]] = [
        ({"type": "thinking", "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": "so "},
            {"type": "thinking_delta", "thinking": "it is"},
            {"type": "signature_delta", "signature": "c2ln"},
        ]),
        ({"type": "redacted_thinking", "data": "b64"}, []),
        ({"type": "text", "text": ""}, [
            {"type": "text_delta", "text": "As "},
            {"type": "citations_delta", "citation": CITED},
            {"type": "text_delta", "text": "said"},
        ]),
        ({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}, [
            {"type": "input_json_delta", "partial_json": '{"q": '},
            {"type": "input_json_delta", "partial_json": '"x", "a": 1e3}'},
        ]),
        ({"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "e"}]}, []),
        ({"type": "compaction", "content": None}, [
            {"type": "compaction_delta", "content": "all of it", "encrypted_content": "seal"},
        ]),
        ({"type": "dream", "shape": "round"}, [
            {"type": "dream_delta", "vision": "a "},
            {"type": "dream_delta", "vision": "fox", "depth": 2},
        ]),
    ]  # fmt: skip
    _, outcome = relayed(ResponseMerger("anthropic", stream=True), spoken(*blocks))
    (said,) = outcome.messages
    assert said["content"][:-1] == [
        {"type": "thinking", "thinking": "so it is", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b64"},
        {"type": "text", "text": "As said", "citations": [CITED]},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x", "a": 1e3}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "e"}]},
        {"type": "compaction", "content": "all of it", "encrypted_content": "seal"},
        {"type": "dream", "shape": "round", "vision": "a fox"},
    ]
    assert list(said["content"][3]["input"]) == ["q", "a"]
    assert said["content"][-1]["name"] == "elision_recall"
    assert not outcome.has_client_calls


def test_texts_without_a_letter_are_not_sent_back() -> None:
    """Claude says one between thinking and call now and then; no request with it would be taken."""
    blank: tuple[Json, list[Json]] = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "\n\n"}])
    relay = ResponseMerger("anthropic", stream=True)
    sent, outcome = relayed(relay, spoken(blank))
    assert b"\\n\\n" in sent
    assert [each["type"] for each in outcome.messages[0]["content"]] == ["tool_use"]


def test_usage_is_summed_in_the_last_message_delta() -> None:
    """Counts of all rounds, nested ones and those that nobody knows; iterations stand one behind the other."""
    once: Json = {
        "output_tokens": 5,
        "input_tokens": None,
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
        "output_tokens_details": {"thinking_tokens": 3},
        "iterations": [{"type": "message", "input_tokens": 1, "output_tokens": 5}],
        "moon_tokens": 2,
    }
    relay = ResponseMerger("anthropic", stream=True)
    sent = relayed(relay, spoken(usage=once))[0]
    sent += relayed(relay, spoken(number=1, usage=once))[0]
    sent += relayed(relay, render_stream("anthropic", render_events("anthropic", PLAIN)))[0]
    total = next(each for each in _events(sent) if each["type"] == "message_delta")["usage"]
    assert total["output_tokens"] == 5 + 5 + PLAIN.counts[1]
    assert total["input_tokens"] == 3 * 100
    assert total["server_tool_use"] == {"web_search_requests": 2, "web_fetch_requests": 0}
    assert total["output_tokens_details"] == {"thinking_tokens": 6}
    assert len(total["iterations"]) == 2
    assert total["moon_tokens"] == 4
    assert total["cache_creation"] == {"ephemeral_5m_input_tokens": 3 * 7}
    assert "service_tier" not in total
    got = parse_as_client("anthropic", sent, streamed=True)
    assert got["usage"]["server_tool_use"]["web_search_requests"] == 2
    assert got["usage"]["input_tokens"] == 300
    assert got["usage"]["service_tier"] == "standard"


def test_blocks_behind_a_recall_are_said_too() -> None:
    """What the model says behind the call, in the same answer, is shown when the answer is complete."""
    text = ResponsePart(kind="text", id="t", text="Meanwhile:")
    relay = ResponseMerger("anthropic", stream=True)
    sent, _ = relayed(
        relay, render_stream("anthropic", render_events("anthropic", ProviderResponse(number=0, parts=(RECALL, text))))
    )
    sent += relayed(relay, render_stream("anthropic", render_events("anthropic", PLAIN)))[0]
    texts = [each["text"] for each in parse_as_client("anthropic", sent, streamed=True)["content"]]
    assert texts == ["Meanwhile:", "It is in parser.py."]


def test_events_that_nobody_knows_pass() -> None:
    """With or without an index; one that is about the recall does not."""
    told = render_events("anthropic", ProviderResponse(number=0, parts=(RECALL,)))
    unknown = [{"type": "weather", "sky": 1}, {"type": "block_weather", "index": 0, "sky": 2}]
    sent, _ = relayed(
        ResponseMerger("anthropic", stream=True), render_stream("anthropic", [*told[:-2], *unknown, *told[-2:]])
    )
    assert [each for each in _events(sent) if "sky" in each] == [unknown[0]]


def _events(sent: bytes) -> list[Json]:
    return [json.loads(line[6:]) for line in sent.splitlines() if line.startswith(b"data: ")]
