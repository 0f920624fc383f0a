"""Placeholders and digests of recorded runs claim nothing that the results do not bear out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.claims.checks import CHECKS, list_false_claims
from tests.claims.digests import find_bare_numbers, find_denied_lines, write_last_digest
from tests.claims.hidden_results import EXAMPLES, HiddenResult, list_hidden_results, list_runs
from tests.corpus import CORPUS, list_recordings, needs_corpus
from tests.soak import SOAK
from tests.summarizers.turns import make_turn

#: Recordings in which each kind of false claim was found once.
SAMPLE = (
    "autogen-magentic/ww-hc-15.json.gz",
    "cline/cline-sdk-session.json.gz",
    "mini-swe-agent/msa-deepseek_lite_dev-marshmallow-code__marshmallow-1343.traj.json.gz",
    "openhands-v1-events/0535c419f44a.tar.gz",
)


def list_claims(path: Path) -> list[str]:
    """Return the false claims about the runs of a recording."""
    found = []
    for run in list_runs([path]):
        for hidden in list_hidden_results(run):
            found += [f"{hidden.place}: {name}: {what}" for name, what in list_false_claims(hidden)]
        text, turns = write_last_digest(run)
        found += [*find_denied_lines(text, turns), *find_bare_numbers(text, turns)]
    return found


@pytest.mark.parametrize("path", list_recordings(EXAMPLES), ids=lambda path: path.name)
def test_claims_about_the_examples_are_true(path: Path) -> None:
    """Of the sample runs."""
    assert list_claims(path) == []


@needs_corpus("the claims of placeholders over recorded runs")
@pytest.mark.parametrize("name", SAMPLE)
def test_claims_about_a_recording_are_true(name: str) -> None:
    """Of those recordings that once had false ones."""
    assert list_claims(CORPUS / name) == []


@needs_corpus("the claims of placeholders over every recorded run")
@pytest.mark.skipif(not SOAK, reason="a long trial")
@pytest.mark.parametrize("path", list_recordings(CORPUS), ids=lambda path: path.name)
def test_claims_about_every_recording_are_true(path: Path) -> None:
    """Of all that are shared."""
    assert list_claims(path) == []


def hide(text: str, outcome: str = "exit 0, done", *, call: str = "", items: str = "") -> HiddenResult:
    return HiddenResult(
        place="run turn 1", call=call, text=text, label=call, outcome=outcome, is_lookup=False, gist=items
    )


FALSE = {
    "hides a failure": hide('Traceback (most recent call last):\n  File "x.py"\nTypeError: y', "exit 0, Test 1: Valid"),
    "counts a part as the whole": hide("a\n" * 20, "20 paths", call="find . | head -20"),
    "names another exit code": hide("<returncode>2</returncode>", "exit 0, done"),
    "repeats numbers of a margin": hide("  4711\tdef run():\n  4712\t    pass", items="4711"),
    "repeats a part of a URL": hide("see https://a.org/b", items="https://a.org/b //a.org/b"),
    "shows parts of escapes": hide('"a\\nTestCase"', items="nTestCase"),
    "shows keys of a page's metadata": hide('"og:title": "x"', items="og:title"),
    "names what the result does not have": hide("some text", items="other_name"),
    "puts values together that are apart": hide('[{"id": 4711, "n": 1}, {"id": 1207}]', items="id=1207 n=1"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_finds_its_claim(name: str) -> None:
    """And no other check does."""
    assert [found for found, _ in list_false_claims(FALSE[name])] == [name]


def test_true_claims_are_left_alone() -> None:
    """A failure that is told, a total, and a number that stands elsewhere, too."""
    assert not list(list_false_claims(hide("Traceback (most recent call last):\nTypeError: y", "exit 0, TypeError: y")))
    assert not list(list_false_claims(hide("a\n" * 3, "3 paths", call="find . | head -20")))
    assert not list(list_false_claims(hide("  4711\tx = 4711", items="4711")))
    order = '{"id": "#W1", "items": [{"id": 4711, "name": "Desk Lamp"}, {"id": 1207}]}'
    assert not list(list_false_claims(hide(order, items='id=#W1; id=4711 name="Desk Lamp"; id=1207')))
    assert list(list_false_claims(hide(order, items='id=1207 name="Desk Lamp"')))
    mixed = '{"id": "#W1", "items": [{"name": "Boots"}, 4711]}'
    assert not list(list_false_claims(hide(mixed, items="id=#W1 items=4711; name=Boots")))
    assert list(list_false_claims(hide(mixed, items="items=4711 name=Boots")))


def test_claims_of_a_digest_are_found() -> None:
    """A line that the next sentence denies, and a number under no key of its own."""
    turns = [
        make_turn(1, command="x", result='{"price": 1207}'),
        make_turn(2, "It didn't work.", command="y", result=""),
    ]
    digest = "Digest\nCOMPLETED:\n- [1] `x` -> ok\nFACTS:\n- price: 1207\n- bash: 1207"
    assert list(find_denied_lines(digest, turns)) == ["[1] `x` -> ok"]
    assert list(find_bare_numbers(digest, turns)) == ["bash: 1207"]
