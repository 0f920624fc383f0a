"""Which items the log knows, and from whom."""

from __future__ import annotations

from elision.strategies.gist import KnownIdentifiers
from tests.properties.builders import call, head, result, turn, user


def test_who_wrote_what() -> None:
    """Head, agent and user write; observations are only seen, however often."""
    lexicon = KnownIdentifiers()
    lexicon.add_head(head("Mend parse_args in src/cli.py"))
    pair = (call(command="grep handle_one"), result("found handle_two handle_two"))
    lexicon.add_turn(turn(1, pair, text="I look at value_3", said=[user("rather mend_this")]))
    lexicon.add_turn(turn(2, (call(command="ls"), result("handle_two"))))
    assert {"parse_args", "src/cli.py", "handle_one", "value_3", "mend_this"} <= set(lexicon.written_by_agent)
    assert "handle_two" not in lexicon.written_by_agent
    assert lexicon.seen_counts["handle_two"] == 2
    assert lexicon.seen_counts["handle_one"] == 0


def test_words_that_are_taken_back_are_not_known() -> None:
    """What only the user's old words said is forgotten; what others wrote as well stays."""
    known = KnownIdentifiers()
    known.add_turn(turn(1, text="I look at value_3", said=[user("rather mend_this and value_3 in tools.py")]))
    known.add_head(head("Mend tools.py"))
    known.replace_newest_words(turn(1, said=[user("no, mend_that")]))
    assert {"value_3", "tools.py", "mend_that"} <= known.written_by_agent
    assert "mend_this" not in known.written_by_agent
    known.add_turn(turn(2, text="done"))
    known.replace_newest_words(turn(2))
    assert "mend_that" in known.written_by_agent
