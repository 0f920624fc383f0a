"""OpenAI from 5.6 on: breakpoints keep what a rewrite leaves, and the bill is the provider's."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from elision import Advanced
from elision.lab.run_as_recorded import sizer
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.outgoing_request import FIELD
from elision.manager.session_history import load_session_log
from elision.stores.memory import MemoryStore
from elision.strategies.guards import Guards
from elision.strategies.schedules import FixedSchedule
from elision.strategies.strategy import Masking, Strategy
from elision.testing.billing_simulator import BillingSimulator, hash_prefixes
from elision.testing.parsed_request import split_into_blocks
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Bill
from elision.trajectory.tokens import make_counter
from elision.trajectory.usage import Usage
from tests.manager.agents import Message, make_history
from tests.providers.render_checks import check_openai, check_responses

MODEL = "gpt-5.6-sol"
#: The turns that stay reach back farther than a request looks.
STRATEGY = Masking(window=30, gist=0, fold=False, schedule=FixedSchedule(mask_calls=frozenset({41, 51, 61})))
CHECKS = {"openai": check_openai, "openai-responses": check_responses}


class Counter:
    """o200k, which counts each text once."""

    def __init__(self) -> None:
        self.count = cache(make_counter("o200k").count)


def run_agent(
    shape: Any, strategy: str | Strategy = STRATEGY, **options: Any
) -> tuple[list[list[Message]], list[Usage], Bill]:
    """What 70 calls send, what a provider bills for them, and what the session counts."""
    given: dict[str, Any] = {"model": MODEL, "dialect": shape, "recall": "never"}
    store = MemoryStore()
    context = ContextManager(strategy, store=store, session="s", **(gather_options(given | options)))
    provider, prices, counter = BillingSimulator(), find_prices(MODEL), Counter()
    sent, usages = [], []
    for steps in range(70):
        view = context.prepare(make_history(shape, steps, words="Mend the parser. " * 400))
        sent.append(list(view.messages))
        body = {"input" if shape == "openai-responses" else "messages": sent[-1]}
        blocks = [*split_into_blocks(shape, body, counter)]  # type: ignore[arg-type]
        usages.append(provider.bill_request(hash_prefixes("", blocks), prices, float(steps)))
    context.settle()
    account = load_session_log(store, store.info("s"), sizer(shape, "o200k"), Guards()).build_report()
    return sent, usages, sum((each.bills.ours for each in account.calls), Bill())


@pytest.mark.parametrize("shape", ["openai", "openai-responses"])
def test_what_a_rewrite_leaves_is_read(shape: str) -> None:
    """Without breakpoints each rewrite more than 20 messages back writes everything again; with them only its own."""
    sent, usages, _ = run_agent(shape)
    plain, unmarked, _ = run_agent(shape, cache_control="client")
    assert FIELD not in json.dumps(plain)
    rewrites = [at for at in range(1, 70) if sent[at][: len(sent[at - 1])] != sent[at - 1] and FIELD in str(sent[at])]
    assert rewrites
    for messages in sent:
        CHECKS[shape](messages)
    lost = [at for at in range(1, 70) if unmarked[at].cache_read == 0]
    assert len(lost) > 2
    assert all(usage.cache_read > 0 for usage in usages[1:])
    assert sum(usages[at].cache_read for at in lost) > 1_024 * len(lost)


@pytest.mark.parametrize("shape", ["openai", "openai-responses"])
@pytest.mark.parametrize("who", ["auto", "client"])
def test_our_bill_is_the_provider_s(shape: str, who: str) -> None:
    """What Elision counts as read is what a simulated provider reports, whoever sets the breakpoints."""
    _, usages, counted = run_agent(shape, cache_control=who)
    assert counted.cache_read == pytest.approx(sum(usage.cache_read for usage in usages), rel=0.01)
    assert counted.cache_write == pytest.approx(sum(usage.cache_write for usage in usages), rel=0.01)


def test_nothing_is_marked_before_something_is_hidden() -> None:
    """Requests are the client's own until then: what they append to is found without a breakpoint."""
    sent, _, _ = run_agent("openai")
    for steps, messages in enumerate(sent):
        hidden = "hidden" in json.dumps(messages)
        assert (FIELD in json.dumps(messages)) is hidden
        assert hidden or messages == make_history("openai", steps, words="Mend the parser. " * 400)


def test_at_most_three_breakpoints() -> None:
    """The fourth that a request writes is the provider's own, at the newest message."""
    sent, _, _ = run_agent("openai", "hybrid(window=5, summarize_at=20, tail=10, schedule=every-turn)")
    assert max(json.dumps(messages).count(FIELD) for messages in sent) in (2, 3)
    assert all(FIELD not in json.dumps(messages[-1]) for messages in sent)


@pytest.mark.parametrize("model", ["gpt-5.5", "claude-opus-5-5", "gemini-3-pro-preview", "deepseek-chat"])
def test_other_models_get_none(model: str) -> None:
    """Only OpenAI's models from 5.6 on know the field."""
    sent, _, _ = run_agent("openai", model=model)
    assert FIELD not in json.dumps(sent)


def test_a_client_that_chooses_keeps_its_choice() -> None:
    """Where the client sets breakpoints itself, none of ours are added, which could take the place of its own."""
    context = ContextManager(
        STRATEGY, store=MemoryStore(), model=MODEL, advanced=Advanced(dialect="openai"), recall="never"
    )
    for steps in range(60):
        messages = make_history("openai", steps)
        messages[0] = {"role": "user", "content": [{"type": "text", "text": "Go.", FIELD: {"mode": "explicit"}}]}
        view = context.prepare(messages)
        assert json.dumps(view.messages).count(FIELD) == 1
