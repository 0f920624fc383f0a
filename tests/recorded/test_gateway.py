"""Every recorded exchange through a gateway: the provider gets the client's bytes, the client the provider's.

`python -m tests.recorded` prints the totals.
"""

from __future__ import annotations

import pytest

from elision.gateway.recall_rounds import ResponseMerger
from tests.recorded.cassettes import Exchange, find_cassettes, load_exchanges
from tests.recorded.replay import MODES, Mode, replay_exchanges, split_body


@pytest.fixture(scope="module")
def exchanges() -> tuple[Exchange, ...]:
    """All that are at hand."""
    return load_exchanges(find_cassettes())


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_exchanges_pass_unchanged(exchanges: tuple[Exchange, ...], mode: Mode) -> None:
    """Status, headers and bytes are the recorded ones both ways; where results are hidden, nothing else changes."""
    replayed = replay_exchanges(exchanges, mode)
    found = [(each.exchange.name, difference) for each in replayed for difference in each.differences()]
    assert found == []
    # Something is hidden exactly where that is the mode's purpose.
    assert mode.hides != all(each.is_upstream_equal for each in replayed)


@pytest.mark.parametrize("stored", [True, False])
def test_an_answer_without_recall_is_relayed_unchanged(exchanges: tuple[Exchange, ...], stored: bool) -> None:
    """Where recall is offered an answer is taken apart; one that recalls nothing keeps its very bytes."""
    answers = [each for each in exchanges if each.api and each.status == 200]
    assert [each.name for each in answers if relay_answer(each, stored) != each.response_body] == []


def relay_answer(exchange: Exchange, stored: bool) -> bytes:
    """What a client gets of an answer; b"" if that is not over with it."""
    assert exchange.api is not None
    relay = ResponseMerger(exchange.api, stream=exchange.is_stream, stored=stored)
    relay.begin_round()
    sent = b"".join(map(relay.feed, split_body(exchange.response_body)))
    outcome = relay.end_round()
    return b"" if outcome.is_cut or outcome.recall_calls or not outcome.is_done else sent + outcome.output
