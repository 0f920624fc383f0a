"""The space of a tuning: its points, what the user may change, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.lab.tuning.search_space import SearchSpace, ToolRule, add_rule_sets, parse_space
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Hybrid


def test_every_point_is_a_strategy_that_replay_reads() -> None:
    """The text of each point reads as the same strategy, and none occurs twice."""
    space = add_rule_sets(parse_space(["window=3,10", "gist=0"]), [ToolRule(tool="read[*]", longer=True)])
    strategies = space.list_strategies()
    assert len(strategies) == len(set(strategies))
    assert [parse_strategy(describe_strategy(each)) for each in strategies] == strategies


def test_the_defaults_are_points_of_the_space() -> None:
    """A search can find what is recommended today."""
    strategies = set(SearchSpace().list_strategies())
    assert {parse_strategy(text) for text in ("masking", "hybrid", "summarization")} <= strategies


def test_impossible_points_are_left_out() -> None:
    """No hybrid has a tail or a window as long as `summarize_at`."""
    found = [each for each in SearchSpace().list_strategies() if isinstance(each, Hybrid)]
    assert found
    assert all(max(each.tail, each.window) < each.summarize_at for each in found)


def test_the_user_narrows_the_space() -> None:
    """Options that are not named keep their values."""
    space = parse_space(["family=masking", "window=5,10", "schedule=cache-aware", "gist=50", "rules=none"])
    assert {describe_strategy(each) for each in space.list_strategies()} == {"masking", "masking(window=5)"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("window", ["NAME=VALUE", "summarize_at"]),
        ("windows=3", ["there are", "window"]),
        ("window=", ["gives no value", "window=3,5"]),
        ("window=0", ["'0'", "1 or more"]),
        ("window=ten", ["'ten'", "number"]),
        ("window=²", ["'²'"]),
        ("gist=-1", ["'-1'", "0 or more"]),
        ("gist=20/80", ["'20/80'", "0 or more"]),
        ("family=masks", ["'masks'", "hybrid"]),
        ("rules=all", ["'all'", "none, tools"]),
        ("schedule=daily", ["daily", "cache-aware"]),
        ("schedule=hindsight", ["hindsight", "live"]),
        ("schedule=cache-aware)", ["')'"]),
    ],
)
def test_a_bad_space_names_what_exists(text: str, words: list[str]) -> None:
    """One sentence, with the option and the mend."""
    with pytest.raises(SpecError) as caught:
        parse_space([text])
    for word in words:
        assert word in str(caught.value)


def test_a_space_without_a_possible_point_is_refused() -> None:
    """Each value has a meaning; together they have none."""
    with pytest.raises(SpecError, match="no point is possible"):
        parse_space(["family=hybrid", "summarize_at=5", "tail=10"])


@given(window=st.integers(1, 500), longer=st.booleans())
def test_a_tool_rule_follows_the_window(window: int, longer: bool) -> None:
    """Twice the window or half of it, and never less than a turn."""
    rule = ToolRule(tool="read", longer=longer).make_rule(window)
    assert rule.after is not None
    assert rule.after >= 1
    assert rule.after == (2 * window if longer else max(1, window // 2))


def test_rule_sets_are_few() -> None:
    """None, each tool, all tools together; only what `rules` allows."""
    tools = [ToolRule(tool="read", longer=True), ToolRule(tool="list", longer=False)]
    assert len(add_rule_sets(SearchSpace(), tools).rule_sets) == 4
    assert add_rule_sets(parse_space(["rules=none"]), tools).rule_sets == ((),)
    assert add_rule_sets(parse_space(["rules=tools"]), []).rule_sets == ((),)
