"""Thinking that is bound to what stood in front of it, as recent Anthropic models check it.

A signature is a seal over the thinking and over the prompt it was thought behind. A prompt in which something earlier
was edited no longer fits it: the request is refused, or the block dropped where the request asks for that. Words of the
error and of the response: Anthropic's pages on preserved thinking, November 2026.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from elision.dialects import Json, mapping_in
from elision.testing.billing_simulator import hash_prefixes
from elision.testing.parsed_request import PromptBlock

#: A new key would make a retry's answer another one; nothing secret is kept with it.
_KEY = b"elision playback"


def seal_thinking(thinking: str, prefix: Sequence[PromptBlock]) -> str:
    """The signature of `thought` behind the prompt `prefix`; earlier thinking is no part of what is sealed."""
    before = hash_prefixes("", [block for block in prefix if not block.signature])
    return _compute_seal(thinking, before[-1].key if before else b"")


def _compute_seal(thinking: str, before: bytes) -> str:
    digest = hashlib.blake2b(before, key=_KEY, digest_size=24)
    digest.update(thinking.encode("utf-8", "surrogatepass"))
    return base64.b64encode(digest.digest()).decode()


def find_unfit(blocks: Sequence[PromptBlock]) -> list[str]:
    """Places of the thinking blocks whose signature does not fit what stands in front of them."""
    keys = [place.key for place in hash_prefixes("", [block for block in blocks if not block.signature])]
    found = []
    seen = 0
    for block in blocks:
        if not block.signature:
            seen += 1
        elif _compute_seal(block.thinking, keys[seen - 1] if seen else b"") != block.signature:
            found.append(block.place)
    return found


def asks_to_drop(body: Json) -> bool:
    """Whether a request asks for blocks that do not fit to be dropped instead of refused."""
    binding = mapping_in(mapping_in(body.get("thinking")).get("block_binding"))
    return binding.get("prefix_mismatch_behavior") == "drop_block"


def describe_refusal(place: str) -> str:
    """What the provider says of a block that does not fit."""
    return (
        f"{place}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the "
        'block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". Content before this block '
        "differs from when it was created."
    )


def describe_drop(place: str) -> dict[str, Any]:
    """The entry of `input_transformations` for a dropped block."""
    return {"type": "thinking_dropped", "path": place, "reason": "prefix_binding_mismatch"}
