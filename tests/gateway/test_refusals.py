"""Refusals of a provider: the parts that need no gateway around them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from elision.gateway.reply_writer import _read_at_most


class Pieces:
    """An answer that comes in small pieces. asked: how often one of them was asked for its length."""

    def __init__(self, count: int) -> None:
        self.count, self.given, self.asked = count, 0, 0

    async def iter_chunks(self) -> AsyncIterator[bytes]:
        whole = self

        class Piece(bytes):
            def __len__(self) -> int:
                whole.asked += 1
                return super().__len__()

        for _ in range(self.count):
            self.given += 1
            yield Piece(b"x" * 24)


async def test_an_error_is_read_in_work_that_grows_with_its_bytes() -> None:
    """A piece is looked at when it comes, and not again with each that comes behind it."""
    pieces = Pieces(2_000)
    assert await _read_at_most(pieces, 1_000_000) == b"x" * 48_000  # type: ignore[arg-type]
    assert pieces.asked <= 2 * pieces.count


async def test_an_error_without_end_is_read_up_to_the_limit() -> None:
    """And no further than the piece that goes beyond it."""
    pieces = Pieces(10_000)
    assert len(await _read_at_most(pieces, 2_400)) == 2_424  # type: ignore[arg-type]
    assert pieces.given == 101
