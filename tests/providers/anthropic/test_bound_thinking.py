"""Ways to edit a history whose thinking is bound to what precedes it, against a check like the provider's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from elision.errors import SpecError
from elision.providers.anthropic.bound_thinking import (
    AUTO_POLICY,
    DROP_BETA,
    THINKING_POLICIES,
    add_beta,
    ask_to_drop_thinking,
    choose_thinking_policy,
    find_editable_from,
    find_newest_thinking,
    has_bound_thinking,
)
from elision.providers.shared.capabilities import TABLE, UNKNOWN, find_capabilities
from elision.trajectory.turn import Opaque
from tests.properties.builders import step

SEALED = Opaque("thinking", 9, {"type": "thinking", "thinking": "", "signature": "c2Vh"})


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "option", "chosen"),
    [
        ("claude-opus-4-8", AUTO_POLICY, "ignore"),
        ("claude-opus-4-8", "native", "ignore"),
        ("gpt-5.6", "drop_block", "ignore"),
        ("claude-opus-5-5", AUTO_POLICY, "native"),
        ("claude-opus-5-5", "defer", "defer"),
        ("claude-opus-5-5", "drop_block", "drop_block"),
        ("claude-opus-5-5", "ignore", "ignore"),
        ("claude-fable-7", AUTO_POLICY, "defer"),
        ("claude-fable-7", "native", "defer"),
        ("claude-fable-7", "drop_block", "defer"),
        ("my-model", AUTO_POLICY, "defer"),
    ],
)
def test_the_way_is_the_tables_unless_the_user_says_otherwise(model: str, option: str, chosen: str) -> None:
    """What a model cannot do falls back to what it can; what is not bound needs no way."""
    assert choose_thinking_policy(find_capabilities(model), option) == chosen


def test_thoughts_are_never_given_away_unasked() -> None:
    """No row of the table leads to `drop_block` by itself."""
    assert {choose_thinking_policy(row) for row in (*TABLE, UNKNOWN)} == {"ignore", "native", "defer"}


def test_an_unknown_way_lists_those_that_exist() -> None:
    """A typing error is mended at sight."""
    with pytest.raises(SpecError, match="drop_block"):
        choose_thinking_policy(UNKNOWN, "drop")


# -- defer ------------------------------------------------------------------------------------------------------------


def test_turns_that_think() -> None:
    """Sealed blocks, redacted ones, and text of which the signature is kept apart; other opaque parts do not."""
    redacted = Opaque("redacted_thinking", 9, {"type": "redacted_thinking", "data": "c2Vh"})
    assert has_bound_thinking(replace(step(1), content=(SEALED,)))
    assert has_bound_thinking(replace(step(1), content=(redacted,)))
    assert has_bound_thinking(replace(step(1), reasoning="Hm."))
    assert not has_bound_thinking(replace(step(1), reasoning="", content=(Opaque("image", 9),)))


def test_results_of_the_turn_that_thinks_may_change_those_before_it_may_not() -> None:
    """A turn's results stand behind its own thinking."""
    turns = [replace(step(index), reasoning="Hm." if index == 3 else "", content=()) for index in range(1, 6)]
    assert (find_newest_thinking(turns), find_editable_from(turns)) == (3, 3)
    assert (find_newest_thinking([]), find_editable_from([])) == (0, 1)


def _sent(thinking: list[bool], masked: set[int], seals: dict[int, str]) -> list[dict[str, Any]]:
    """Messages of turns 1 ..., results of `masked` turns replaced, thinking under the seals that it got."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for turn, thought in enumerate(thinking, start=1):
        seal = [{"type": "thinking", "thinking": "", "signature": seals[turn]}] if thought else []
        use = {"type": "tool_use", "id": f"t{turn}", "name": "ls", "input": {}}
        content = "[hidden]" if turn in masked else f"result {turn}"
        messages.append({"role": "assistant", "content": [*seal, use]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{turn}", "content": content}]}
        )
    return messages


def _seal(messages: list[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()


def _unbound(messages: list[dict[str, Any]]) -> Iterator[int]:
    """Places of messages whose thinking was sealed behind something else."""
    for place, message in enumerate(messages):
        blocks = message["content"] if message["role"] == "assistant" else []
        for block in blocks:
            if block["type"] == "thinking" and block["signature"] != _seal(messages[:place]):
                yield place


@given(thinking=some.lists(some.booleans(), min_size=1, max_size=12), asked=some.data())
def test_deferred_edits_never_make_thinking_invalid(thinking: list[bool], asked: some.DataObject) -> None:
    """A session that hides at every call only from `find_editable_from` on is never refused, whenever it thinks."""
    masked: set[int] = set()
    seals: dict[int, str] = {}
    for now in range(len(thinking)):
        turns = [
            replace(step(index + 1), reasoning="Hm." if thinking[index] else "", content=()) for index in range(now)
        ]
        wanted = asked.draw(some.lists(some.integers(1, max(now, 1)), max_size=4))
        masked |= {turn for turn in wanted if find_editable_from(turns) <= turn <= now}
        messages = _sent(thinking[:now], masked, seals)
        assert list(_unbound(messages)) == []
        seals[now + 1] = _seal(messages)


def test_an_edit_that_was_not_deferred_is_refused() -> None:
    """The check of the property test finds what it is there to find."""
    seals: dict[int, str] = {}
    for now in range(3):
        seals[now + 1] = _seal(_sent([True] * now, set(), seals))
    assert list(_unbound(_sent([True] * 3, set(), seals))) == []
    assert list(_unbound(_sent([True] * 3, {1}, seals))) == [3, 5]


# -- drop_block -------------------------------------------------------------------------------------------------------


def test_asking_for_invalid_thinking_to_be_dropped() -> None:
    """The client's own settings stay; the request itself is not changed."""
    body = {"model": "claude-opus-5-5", "thinking": {"type": "adaptive", "display": "summarized"}, "messages": []}
    asked = ask_to_drop_thinking(body, find_capabilities("claude-opus-5-5"))
    assert asked is not None
    binding = {"prefix_mismatch_behavior": "drop_block"}
    assert asked["thinking"] == {"type": "adaptive", "display": "summarized", "block_binding": binding}
    assert "block_binding" not in body["thinking"]
    assert ask_to_drop_thinking(asked, find_capabilities("claude-opus-5-5")) == asked


def test_a_request_that_leaves_thinking_to_the_model_says_what_the_model_does() -> None:
    """The field stands inside `thinking`; where thinking is off, or the model knows no such field, nothing is asked."""
    binding = {"prefix_mismatch_behavior": "drop_block"}
    assert ask_to_drop_thinking({}, find_capabilities("claude-fable-5-2")) == {
        "thinking": {"type": "adaptive", "block_binding": binding}
    }
    assert ask_to_drop_thinking({"thinking": {"type": "disabled"}}, find_capabilities("claude-haiku-5-5")) is None
    assert ask_to_drop_thinking({"thinking": {"type": "adaptive"}}, find_capabilities("claude-opus-4-8")) is None


def test_the_types_take_what_is_asked() -> None:
    """As the provider's own package states the field."""
    beta = pytest.importorskip("anthropic.types.beta")
    pydantic = pytest.importorskip("pydantic")
    asked = ask_to_drop_thinking({}, find_capabilities("claude-fable-5-2"))
    assert asked is not None
    pydantic.TypeAdapter(beta.BetaThinkingConfigParam).validate_python(asked["thinking"], strict=True)


@pytest.mark.parametrize(
    ("header", "after"),
    [
        ("", DROP_BETA),
        ("a-2025-01-01", f"a-2025-01-01,{DROP_BETA}"),
        (f" a , {DROP_BETA} ", f"a,{DROP_BETA}"),
    ],
)
def test_a_beta_is_asked_for_once(header: str, after: str) -> None:
    """What the client asks for stays in front."""
    assert add_beta(header, DROP_BETA) == after


def test_the_ways_are_explained() -> None:
    """The module says of each way what it costs."""
    from elision.providers.anthropic import bound_thinking

    assert all(f"- `{each}`:" in (bound_thinking.__doc__ or "") for each in THINKING_POLICIES)
