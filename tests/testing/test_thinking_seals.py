"""Thinking that is bound to what stood in front of it."""

from __future__ import annotations

import json
from typing import Any

from elision.testing.builders import step, trajectory
from elision.testing.recorded_provider import RecordedProvider, Terms
from elision.trajectory.turn import Turn

THINKS: dict[str, Any] = {"type": "adaptive"}


def thoughtful(index: int) -> Turn:
    plain = step(index)
    return Turn(
        index=index,
        reasoning=f"Thought {index}.",
        actions=plain.actions,
        observations=plain.observations,
    )


class Talk:
    """A client of a provider whose thinking is bound."""

    def __init__(self) -> None:
        self.provider = RecordedProvider([trajectory(*map(thoughtful, range(1, 5)))], Terms(bound_thinking=True))
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "Mend the parser."}]

    def ask(self, **more: Any) -> tuple[int, Any]:
        body = {"model": "m", "max_tokens": 2_000, "thinking": THINKS, "messages": self.messages, **more}
        received, answer = self.provider.answer_request("anthropic", {}, json.dumps(body).encode())
        return received.status, answer.body

    def go_on(self) -> None:
        status, body = self.ask()
        assert status == 200, body
        result = {"type": "tool_result", "tool_use_id": body["content"][-1]["id"], "content": f"r{len(self.messages)}"}
        self.messages += [{"role": "assistant", "content": body["content"]}, {"role": "user", "content": [result]}]


def started() -> Talk:
    talk = Talk()
    for _ in range(3):
        talk.go_on()
    return talk


def test_an_untouched_history_is_taken() -> None:
    """Appending, moving cache markers and leaving thinking out, all of it or at an end, keep what is left valid."""
    talk = started()
    assert talk.ask()[0] == 200
    talk.messages[2]["content"][0]["cache_control"] = {"type": "ephemeral"}
    assert talk.ask()[0] == 200
    del talk.messages[1]["content"][0]
    assert talk.ask()[0] == 200


def test_a_masked_result_breaks_all_later_thinking() -> None:
    """The first block that no longer fits is named, in the provider's words; earlier ones stay valid."""
    talk = started()
    talk.messages[4]["content"][0]["content"] = "[masked]"
    status, body = talk.ask()
    assert status == 400
    assert body["error"]["message"].startswith("messages.5.content.0: Invalid `signature` in `thinking` block.")
    assert len(talk.provider.requests[-1].problems) == 1


def test_blocks_that_do_not_fit_are_dropped_on_request() -> None:
    """With `drop_block` the request is answered, the blocks are listed, and they are not billed."""
    talk = started()
    whole = talk.provider.requests[-1].usage
    talk.messages[2]["content"][0]["content"] = talk.messages[2]["content"][0]["content"].upper()
    status, body = talk.ask(thinking={**THINKS, "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
    assert status == 200
    assert [each["path"] for each in body["input_transformations"]] == ["messages.3.content.0", "messages.5.content.0"]
    assert whole is not None


def test_a_forged_signature_is_refused() -> None:
    """Thinking that the provider did not write does not pass as its own."""
    talk = started()
    talk.messages[1]["content"][0]["thinking"] = "Something else."
    assert talk.ask()[0] == 400
