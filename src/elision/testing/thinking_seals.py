"""Thinking that is bound to the prompt before it, as recent Anthropic models check it.

A signature seals the thinking and the prompt before it. If something earlier in the prompt is edited, the signature no
longer fits: the request is refused, or the block dropped if the request asks for that. Words of the error and of the
response: Anthropic's pages on preserved thinking, November 2026.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from elision.providers.shared.json_reading import Json, mapping_in
from elision.testing.billing_simulator import hash_prefixes
from elision.testing.parsed_request import PromptBlock

#: A new key would make a retry's answer another one; nothing secret is kept with it.
_KEY = b"elision lab playback"


def seal_thinking(thinking: str, prefix: Sequence[PromptBlock]) -> str:
    """Return the signature of `thinking` after the prompt `prefix`. Earlier thinking is not sealed."""
    before = hash_prefixes("", [block for block in prefix if not block.signature])
    return _compute_seal(thinking, before[-1].key if before else b"")


def _compute_seal(thinking: str, before: bytes) -> str:
    digest = hashlib.blake2b(before, key=_KEY, digest_size=24)
    digest.update(thinking.encode("utf-8", "surrogatepass"))
    return base64.b64encode(digest.digest()).decode()


def find_unfit(blocks: Sequence[PromptBlock]) -> list[str]:
    """Return the places of the thinking blocks whose signature does not fit the prompt before them."""
    prefixes = iter(hash_prefixes("", [block for block in blocks if not block.signature]))
    unfit = []
    before = b""
    for block in blocks:
        if not block.signature:
            before = next(prefixes).key
        elif _compute_seal(block.thinking, before) != block.signature:
            unfit.append(block.place)
    return unfit


def asks_to_drop(body: Json) -> bool:
    """Return whether a request asks to drop blocks that do not fit, instead of being refused."""
    binding = mapping_in(mapping_in(body.get("thinking")).get("block_binding"))
    return binding.get("prefix_mismatch_behavior") == "drop_block"


def describe_refusal(place: str) -> str:
    """Return the provider's error about a block that does not fit."""
    return (
        f"{place}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the "
        'block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". Content before this block '
        "differs from when it was created."
    )


def describe_drop(place: str) -> dict[str, Any]:
    """Return the entry of `input_transformations` for a dropped block."""
    return {"type": "thinking_dropped", "path": place, "reason": "prefix_binding_mismatch"}
