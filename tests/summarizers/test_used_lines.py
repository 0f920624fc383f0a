"""Lines that the agent used and that a summary lacks: which ones, from where, and how much of them."""

from __future__ import annotations

from elision.strategies.first_uses import FirstUses
from elision.summarizers.used_lines import LINE_WIDTH, quote_used_lines
from elision.trajectory.plan import Summary
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Turn
from tests.properties.builders import call, head, result, turn


def quote(*turns: Turn, covers: int, requested_at: int, text: str = "", limit: int = 400) -> list[tuple[str, str]]:
    """The quotes for a draft with `text` that covers turns 1 ... `covers`."""
    state = State(Sizer(make_counter()))
    uses = FirstUses(50)
    uses.add_head(head())
    for each in turns:
        state.turns.append(each)
        uses.add_turn(each)
    return quote_used_lines(
        state, uses, Summary(covers=covers, text=text, block=text, requested_at=requested_at), limit
    )


def show(index: int, text: str, said: str = "") -> Turn:
    return turn(index, (call("cat"), result(text)), text=said)


def test_the_newest_result_that_has_the_item_is_quoted() -> None:
    """A file that was read twice is quoted as it was last."""
    found = quote(
        show(1, "old: max_depth = 3\nother"),
        show(2, "new: max_depth = 9\nother"),
        show(3, "nothing"),
        show(4, "nothing", said="I set max_depth."),
        covers=2,
        requested_at=4,
    )
    assert found == [("t2.1 bash, used since", "new: max_depth = 9")]


def test_a_line_serves_all_its_items() -> None:
    """Two items of one line are one quote."""
    found = quote(
        show(1, "from lib_core import run_all\nx"), show(2, "", said="run_all of lib_core"), covers=1, requested_at=2
    )
    assert found == [("t1.1 bash, used since", "from lib_core import run_all")]


def test_what_a_later_result_showed_first_needs_no_quote() -> None:
    """The agent took it from there, and there it still is; where the result came after the use, it did not."""
    shows_before = [show(1, "max_depth = 3"), show(2, "max_depth"), show(3, "", said="max_depth")]
    assert quote(*shows_before, covers=1, requested_at=3) == []
    shows_after = [show(1, "max_depth = 3"), show(2, "x"), show(3, "max_depth", said="max_depth")]
    assert len(quote(*shows_after, covers=1, requested_at=3)) == 1


def test_what_was_used_before_the_request_needs_no_quote() -> None:
    """The writer saw that use."""
    turns = [show(1, "max_depth = 3"), show(2, "x", said="max_depth"), show(3, "x", said="go")]
    assert quote(*turns, covers=1, requested_at=3) == []


def test_a_number_in_the_margin_is_no_source() -> None:
    """Line 617 of a listing says where something stood."""
    turns = [show(1, "617  def run():\n618  at 617 it ends"), show(2, "", said="see 617")]
    assert quote(*turns, covers=1, requested_at=2) == [("t1.1 bash, used since", "618 at 617 it ends")]


def test_a_long_line_is_cut_around_the_item() -> None:
    """A minified file has one line."""
    turns = [show(1, "something " * 900 + "max_depth=3 " + "otherwise " * 900), show(2, "", said="max_depth")]
    ((_, line),) = quote(*turns, covers=1, requested_at=2)
    assert "max_depth=3" in line
    assert line.startswith("…")
    assert line.endswith("…")
    assert len(line) <= LINE_WIDTH + 2


def test_the_quotes_keep_to_their_share() -> None:
    """A quarter of the summary's limit, however much was used."""
    names = [f"name_{number}_x" for number in range(200)]
    turns = [show(1, "\n".join(f"{name} = {name}y" for name in names)), show(2, "", said=" ".join(names))]
    ((_, lines),) = quote(*turns, covers=1, requested_at=2, limit=400)
    assert 2 < len(lines.splitlines()) < 20
    assert make_counter().count(lines) <= 100
