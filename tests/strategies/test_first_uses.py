"""What an agent wrote first, and in which turn."""

from __future__ import annotations

from elision.strategies.first_uses import FirstUses
from tests.properties.builders import call, head, result, turn, user


def list_all(uses: FirstUses, first: int = 1) -> dict[int, set[str]]:
    return {index: set(items) for index, items in uses.list_items(first)}


def test_only_the_first_use_counts() -> None:
    """What the task, the user or the agent wrote before is no news; what a result shows is nobody's word."""
    uses = FirstUses(10)
    uses.add_head(head("Mend parse_args in src/cli.py"))
    uses.add_turn(
        turn(1, (call(command="grep parse_args handle_one"), result("handle_two")), said=[user("see item_9")])
    )
    uses.add_turn(turn(2, text="I saw handle_one, handle_two and item_9 in src/cli.py"))
    assert list_all(uses) == {1: {"handle_one"}, 2: {"handle_two"}}
    assert list_all(uses, 2) == {2: {"handle_two"}}


def test_old_turns_are_forgotten_and_their_words_are_not() -> None:
    """Memory is bounded by the turns that a probation may last."""
    uses = FirstUses(3)
    for index in range(1, 9):
        uses.add_turn(turn(index, text=f"name_{index} and name_1"))
    assert list_all(uses) == {6: {"name_6"}, 7: {"name_7"}, 8: {"name_8"}}
