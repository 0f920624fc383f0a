"""What a message says has a digest."""

from __future__ import annotations

import hashlib

import pytest

from elision.gateway.json_bytes import encode_json
from elision.providers.live.client_messages import parse_message
from elision.providers.provider_table import PROVIDERS
from elision.trajectory.foreign_text import PIECE


@pytest.mark.parametrize("text", ["word", "é中😀", "a" * (3 * PIECE), "é中😀" * PIECE])
def test_the_digest_is_that_of_all_words_with_their_lengths(text: str) -> None:
    """However the text is cut into pieces: sessions that are stored are found again by it."""
    message = {"role": "user", "content": text}
    parsed, _ = parse_message(PROVIDERS["openai"].live, message, 0, encode_json(message))
    words = [b"user", text.encode()]
    said = b"".join(len(word).to_bytes(8, "little") + word for word in words)
    assert parsed.digest == hashlib.blake2b(said, digest_size=16).digest()
