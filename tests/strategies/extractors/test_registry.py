"""The table of extractors."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from elision.errors import CallbackError
from elision.strategies.extractors import BUILT_IN, Extractors, Outcome
from elision.strategies.extractors.outcome import Extractor
from elision.trajectory.turn import Action, Observation, Opaque, Turn
from tests.strategies.extractors.cases import outcome_of


def _mine(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    return Outcome("mine", text or "said nothing")


def _never(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    return None


def _broken(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    raise LookupError("a user's mistake")


def test_a_users_extractor_stands_in_front() -> None:
    """What a user registers is asked before the built-in extractors."""
    own = BUILT_IN.register(_mine, tools=("deploy_*",))
    assert outcome_of("deploy_app", "{}", "ok", extractors=own).label == "mine"


def test_globs_choose_the_tool_in_any_case() -> None:
    """A registration serves only the tools its globs name, whatever their case."""
    own = BUILT_IN.register(_mine, tools=("Deploy_*",))
    assert outcome_of("DEPLOY_APP", "{}", "ok", extractors=own).label == "mine"
    assert outcome_of("undeploy", "{}", "ok", extractors=own).result == "ok"


def test_the_last_registered_comes_first() -> None:
    """Of two registered extractors the later one is asked first."""
    own = BUILT_IN.register(_broken).register(_mine)
    assert outcome_of("x", "{}", "ok", extractors=own).label == "mine"


def test_none_passes_on() -> None:
    """An extractor that answers None leaves the observation to the next."""
    assert outcome_of("x", "{}", "ok", extractors=BUILT_IN.register(_never)).result == "ok"


def test_registering_changes_nothing_that_exists() -> None:
    """`register` returns a new table and the tables are frozen."""
    before = len(BUILT_IN.registrations)
    BUILT_IN.register(_mine)
    assert len(BUILT_IN.registrations) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        BUILT_IN.registrations = ()  # type: ignore[misc]


def _text(action: Action | None, observation: Observation, text: str) -> Any:
    return "words"


@pytest.mark.parametrize(
    ("extractor", "told"),
    [
        (_broken, "the extractor for 'x*' failed: LookupError: a user's mistake"),
        (_text, "the extractor for 'x*' failed: TypeError: it gave a str; give an Outcome or None"),
    ],
)
def test_one_that_fails_is_reported_and_the_next_is_asked(extractor: Extractor, told: str) -> None:
    """What happened is described all the same, and who registered it learns why not by them."""
    errors: list[CallbackError] = []
    own = replace(BUILT_IN.register(extractor, tools=("x*",)), report=errors.append)
    assert outcome_of("x", "{}", "ok", extractors=own).result == "ok"
    assert [str(error) for error in errors] == [told]


def test_one_that_fails_is_logged_where_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    """It is not swallowed."""
    outcome_of("x", "{}", "logged", extractors=BUILT_IN.register(_broken))
    assert "LookupError: a user's mistake" in caplog.text


def test_an_empty_table_still_answers() -> None:
    """The generic extractor stands behind every table."""
    assert outcome_of("x", "{}", "hello there", extractors=Extractors()) == Outcome("", "hello there")


def test_the_assistants_text_is_handed_on() -> None:
    """An extractor gets what the assistant said in the turn."""
    observation = Observation(action_id="", tool="", content=(), role="user")
    turn = Turn(index=1, observations=(observation,))
    assert BUILT_IN.register(_mine).find_outcome(turn, observation) == Outcome("mine", "said nothing")


def test_an_observation_without_text_names_its_parts() -> None:
    """A result that is only an image says so."""
    call = Action(id="1", name="screenshot")
    observation = Observation(action_id="1", tool="screenshot", content=(Opaque("image"), Opaque("image")))
    outcome = BUILT_IN.find_outcome(Turn(index=1, actions=(call,), observations=(observation,)), observation)
    assert outcome.result == "2 images"
