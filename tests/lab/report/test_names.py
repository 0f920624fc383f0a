"""What strategies and runs are called."""

from __future__ import annotations

from elision.lab.report.figures import (
    LONGEST_RUN,
    LONGEST_STRATEGY,
    find_family,
    find_group,
    is_raw,
    name_runs,
    neutralize_text,
    shorten_strategies,
)
from tests.lab.report.studies import HOSTILE, STRATEGIES, row


def test_short_labels_stay() -> None:
    """A label that is short already is its own name."""
    assert shorten_strategies(STRATEGIES) == {label: label for label in STRATEGIES}


def test_what_the_user_typed_is_the_name() -> None:
    """Strategies of one kind keep the text that was typed, with no numbers."""
    typed = ("hybrid", "openhands", "swe-agent", "masking(budget=20000)", "masking(budget=40000)", "hybrid(window=5)")
    assert shorten_strategies(typed) == {label: label for label in typed}


def test_long_labels_are_told_apart() -> None:
    """A long one is cut in its middle; where that leaves two equal, elsewhere."""
    first = "hybrid(window=10, summarize_at=43, schedule=cache-aware, gist=50)"
    second = "hybrid(window=10, summarize_at=43, schedule=cache-aware, gist=5)"
    third = "hybrid(window=10, tail=4, summarize_at=43, schedule=cache-aware, gist=5)"
    assert shorten_strategies([first]) == {first: "hybrid(window=1…, gist=50)"}
    names = shorten_strategies([first, second, third])
    assert names[first] == "hybrid(window=1…, gist=50)"
    assert names[second] == "hybrid(window=1…e, gist=5)"
    assert names[third] == "hybrid(window=10, tail=4,…"


def test_numbers_come_last() -> None:
    """Only labels that are equal wherever they are cut are numbered."""
    one, other = (f"masking(window=10, budget=1000, {option}=4, schedule=cache-aware, gist=5)" for option in "ab")
    names = shorten_strategies([one, other])
    assert names[one] == "masking(window=…e, gist=5)"
    assert names[other].endswith(" 2")


def test_names_are_unique_and_short() -> None:
    """Whatever the labels are, names are unique and fit into their column."""
    labels = [f"{'x' * 40}{number}" for number in range(30)] + list(HOSTILE)
    names = shorten_strategies(labels)
    assert len(set(names.values())) == len(labels)
    assert max(map(len, names.values())) <= LONGEST_STRATEGY


def test_plain_text_cannot_steer() -> None:
    """Escapes, bells, line separators, bidi marks and lone surrogates are gone; other scripts are not."""
    assert neutralize_text("a\x1b[31m\x07\u202e\u2028\ud800z") == "a·[31m····z"
    assert neutralize_text("長い ünï 🦊") == "長い ünï 🦊"


def test_runs_are_called_by_what_differs() -> None:
    """The folder that all share is left out, and the id is added only where a file holds several runs."""
    rows = [
        row("raw", file="/home/me/runs/a/one.traj", trajectory="x"),
        row("raw", file="/home/me/runs/b/two.json", trajectory="task-1"),
        row("raw", file="/home/me/runs/b/two.json", trajectory="task-2"),
    ]
    assert list(name_runs(rows).values()) == ["a/one.traj", "b/two.json task-1", "b/two.json task-2"]


def test_single_file() -> None:
    """One run alone is called by its file; one without a file by its id."""
    assert list(name_runs([row("raw", file="/home/me/one.traj")]).values()) == ["one.traj"]
    assert list(name_runs([row("raw", file="", trajectory="live")]).values()) == ["live"]


def test_long_names_keep_their_end() -> None:
    """A very long path is cut at its beginning."""
    (name,) = name_runs([row("raw", file=HOSTILE[-1]), row("masking", file=HOSTILE[-1])]).values()
    assert name.endswith("end.jsonl")
    assert len(name) <= LONGEST_RUN


def test_presets_are_of_their_strategys_kind() -> None:
    """`paper-hybrid` is a hybrid at every turn, unless an option says otherwise; `swe-agent-raw` is raw."""
    assert [find_family(label) for label in ("paper-hybrid", "swe-agent-masking(window=5)", "hybrid, every turn")] == [
        "hybrid",
        "masking",
        "hybrid",
    ]
    assert is_raw("swe-agent-raw")
    assert is_raw("raw(schedule=every-turn)")
    assert not is_raw("raw(fold=true)")
    assert find_group("paper-masking") == find_group("swe-agent-hybrid(window=5)") == "as in the papers"
    assert find_group("paper-hybrid(schedule=cache-aware)") == find_group("swe-agent") == "Elision (cache-aware)"
    assert find_family("own(x=1)") == "own"
