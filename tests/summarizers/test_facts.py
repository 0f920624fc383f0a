from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.summarizers.facts import (
    _KEYED,
    Fact,
    collect_facts,
    find_keyed_values,
    parse_facts,
    pick_facts,
    render_facts,
)
from elision.trajectory.items import find_items
from elision.trajectory.tokens import make_counter
from tests.summarizers.turns import make_turn


def test_own_words_are_facts_too() -> None:
    """What the agent wrote goes with its turn, so it is told; the task stays, so it is not."""
    seen = make_turn(1, "I use first_name here.", command="grep second_name", result="first_name third_name task_name")
    told = {fact.text for fact in collect_facts([seen], "about task_name")}
    assert told == {"first_name", "second_name", "third_name"}


def test_own_words_that_need_no_memory_are_no_facts() -> None:
    """A method of the language, a marker, a range of lines."""
    wrote = make_turn(1, 'I call line.strip, write "EOF" and print 880p of src/app.py.')
    assert {fact.text for fact in collect_facts([wrote], "")} == {"src/app.py", "app.py"}


def test_own_words_written_often_and_late_come_first() -> None:
    """Often counts for more than late."""
    turns = [make_turn(1, "once_early often_name"), make_turn(2, "often_name"), make_turn(3, "once_later")]
    assert [fact.text for fact in collect_facts(turns, "")] == ["often_name", "once_later", "once_early"]


def test_a_number_stands_under_its_key() -> None:
    """A value in JSON is told under its key, and the key itself is not told."""
    seen = make_turn(1, tool="get", result='{"price_usd": 1207, "flight_no": "HAT030"}', id=4)
    assert sorted(collect_facts([seen], ""), key=lambda fact: fact.label) == [
        Fact("flight_no", "HAT030"),
        Fact("price_usd", "1207"),
    ]


def test_a_number_without_a_key_is_no_fact() -> None:
    """Nobody can tell what "500" was: a margin, a count, or what the agent wrote itself."""
    margin = "\n".join(f"{number}: words" for number in range(500, 520))
    seen = make_turn(1, "I look at 4711.", command="cat -n x", result=f"{margin}\ntook 1234")
    assert collect_facts([seen], "") == []


def test_a_number_keeps_its_key_from_digest_to_digest() -> None:
    """The key stands before each number that is alone under it, and is read back with it."""
    result = '{"price_usd": 1207, "name": "some_name", "count": 100, "count": 200}'
    seen = make_turn(1, tool="get", result=result, id=4)
    facts = collect_facts([seen], "")
    lines = render_facts(facts)
    assert any("price_usd=1207" in line.split(" ") for line in lines)
    assert "count: 100 200" in lines
    read = [fact for line in lines for fact in parse_facts(line)]
    assert {fact for fact in facts if fact.text.isdigit()} <= set(read)
    again = collect_facts([make_turn(2, command="x", result="other_name")], "", before=read)
    assert {fact for fact in facts if fact.text.isdigit()} <= set(again)


def test_what_is_seen_often_comes_first() -> None:
    """An item of several turns beats one that was seen once."""
    turns = [make_turn(n, command=f"step {n}", result=f"often_seen only_in_{n}") for n in (1, 2, 3)]
    assert collect_facts(turns, "")[0].text == "often_seen"


def test_facts_survive_their_line() -> None:
    """Every fact is found again by the extractor in what is rendered, and by `parse_facts`."""
    chosen = [Fact("a.py", "some_name"), Fact("a.py", "word"), Fact("b.py", "src/x/y.py"), Fact("b.py", "4711")]
    lines = render_facts(chosen)
    assert {fact.text for fact in chosen} <= set(find_items("\n".join(lines)))
    assert sorted((fact for line in lines for fact in parse_facts(line)), key=str) == sorted(chosen, key=str)


def test_what_the_view_shows_is_no_fact() -> None:
    """Items that turns after the covered ones show are not repeated, whether a result or an earlier digest has them."""
    seen = make_turn(1, command="grep x", result="first_name second_name")
    old = [Fact("a.py", "third_name"), Fact("a.py", "fourth_name")]
    shown = frozenset({"first_name", "third_name"})
    assert {fact.text for fact in collect_facts([seen], "", old, shown)} == {"second_name", "fourth_name"}


def test_the_cost_of_facts_is_that_of_their_lines() -> None:
    """Lines of the facts that fit a budget fit it too: a line that does not is left out with all of its facts."""
    count = make_counter("o200k").count
    ranked = [Fact(f"file{number % 3}.py", f"handle_part_{number}") for number in range(60)]
    for budget in range(20, 120, 7):
        lines = render_facts(pick_facts(ranked, budget, count, {}))
        assert sum(count(f"- {line}\n") for line in lines) <= budget
        assert lines


def test_absolute_paths_stay_absolute() -> None:
    """A path that stood with its leading slash is told with it."""
    assert "/opt/tool/run.cfg" in {
        fact.text for fact in collect_facts([make_turn(1, command="locate", result="at /opt/tool/run.cfg")], "")
    }


def test_pick_stays_within_its_budget() -> None:
    """Facts are taken until the tokens are used up, and none is taken that is told already."""
    ranked = [Fact("a", f"name_{number}") for number in range(50)]
    chosen = pick_facts(ranked, 40, lambda text: len(text.split()), {"name_0": None})
    assert 20 < len(chosen) < 40
    assert ranked[0] not in chosen


def test_old_facts_that_the_agent_used_come_first() -> None:
    """Of an earlier digest: they stay, and the others too."""
    old = [Fact("a.py", "open_name"), Fact("a.py", "used_name")]
    assert collect_facts([make_turn(9, "Now used_name it is.")], "", old) == [old[1], old[0]]


_KEY_PIECES = ['"ab":', "ab=", "line ", "123", '"', "\n", " ", "x.", "é", "y" * 31, "9" * 61, '": "abc', "=123", "line"]


@given(st.lists(st.sampled_from(_KEY_PIECES), max_size=12).map("".join))
def test_values_under_keys(text: str) -> None:
    """Looking near the ends of keys alone finds what looking everywhere finds."""
    everywhere = [tuple(filter(None, groups)) for groups in _KEYED.findall(text)]
    assert list(find_keyed_values(text)) == [(value, key) for key, value in everywhere]
