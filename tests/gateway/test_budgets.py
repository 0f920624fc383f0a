"""What a session and a key may spend: headers and refusals over the socket, and whose bill a call is on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from elision.errors import StoreError
from elision.gateway.budgets import FULL_LOOK_SECONDS, LOOK_SECONDS, OVERLAP_SECONDS, Budgets, SessionSpend
from elision.manager.context_options import Options
from elision.providers.provider import Api
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession, SessionInfo
from elision.trajectory.events import Event, HeadSet, RequestSent, UsageReported
from elision.trajectory.turn import Head
from elision.trajectory.usage import Usage
from tests.gateway.conversation_bytes import (
    HIDING_STEPS,
    MODELS,
    make_body,
    make_history,
    render_frames,
    render_whole,
)
from tests.gateway.gateway_trial import EVENTS_HEADER, open_trial, refuse_edited, render_sound
from tests.gateway.loopback_gateway import HttpResponse, RunningGateway, make_settings
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    answer_always,
    render_response,
)

MODEL = MODELS["anthropic"]
#: Of one answer of `conversation_bytes` (1,000 tokens in, 20 out), at claude-sonnet-4-5's list prices.
ANSWER_USD = (1_000 * 3 + 20 * 15) / 1e6


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


async def send(
    gateway: RunningGateway, api: Api, raw: bytes, *fields: str, key: str = "k1", path: str = ""
) -> HttpResponse:
    named = f"x-api-key: {key}" if api == "anthropic" else f"authorization: Bearer {key}"
    return await gateway.ask(raw, named, *fields, api=api, path=path)


async def ask(gateway: RunningGateway, api: Api, steps: int, key: str = "k1", **fields: Any) -> HttpResponse:
    return await send(gateway, api, make_body(api, steps, **fields), key=key)


# -- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "limits"),
    [
        ("openai", {"gateway_session_max_turns": 2, "gateway_at_limit": "refuse"}),
        # A user who sets a limit means it.
        ("openai-responses", {"max_turns": 2}),
        ("anthropic", {"strategy": "code", "max_turns": 2}),
    ],
)
async def test_a_session_at_its_turns_is_refused(api: Api, limits: dict[str, Any]) -> None:
    """Beyond `max_turns` nothing is sent unless told otherwise, and clients are told in their own shape not to try
    again."""
    async with open_trial(**limits) as (gateway, upstream, _):
        for steps in range(2):
            got = await ask(gateway, api, steps)
            assert (got.status, "x-elision-stop" in got.headers) == (200, False)
        for _ in range(2):
            got = await ask(gateway, api, 2)
            assert (got.status, got.headers["x-should-retry"]) == (429, "false")
            assert got.json()["error"]["type"] == "rate_limit_error"
            assert "session_max_turns: this session has made 2 of 2 turns" in got.json()["error"]["message"]
        # Another task is another session.
        assert (await ask(gateway, api, 0, task="Write the docs.")).status == 200
        assert len(upstream.requests) == 3


async def test_a_session_at_its_turns_is_hinted() -> None:
    """With `hint` the answer comes with a header that names the limit, and the very bytes went out."""
    limits = {"gateway_session_max_turns": 1, "gateway_at_limit": "hint"}
    async with open_trial(**limits) as (gateway, upstream, _):
        assert "x-elision-stop" not in (await ask(gateway, "openai", 0)).headers
        got = await ask(gateway, "openai", 1)
        assert got.status == 200
        assert got.headers["x-elision-stop"] == "session_max_turns: this session has made 1 of 1 turns"
        assert upstream.requests[-1].body == make_body("openai", 1)


async def test_a_session_at_its_cost() -> None:
    """What the provider said of the newest answer counts for the next request."""
    limits = {"gateway_session_max_cost_usd": 1.5 * ANSWER_USD, "gateway_at_limit": "refuse"}
    async with open_trial(**limits) as (gateway, *_):
        assert [(await ask(gateway, "anthropic", steps)).status for steps in range(3)] == [200, 200, 429]
        said = (await ask(gateway, "anthropic", 2)).json()["error"]["message"]
        assert f"this session has spent ${2 * ANSWER_USD:.4f} of ${1.5 * ANSWER_USD:.4f}" in said


async def test_a_session_at_its_limit_elsewhere(tmp_path: Path) -> None:
    """A limit that was reached through another gateway, or before a restart, holds from the first request on."""
    given = {"store": f"sqlite:///{tmp_path}/s.db", "gateway_session_max_turns": 4, "gateway_at_limit": "refuse"}
    async with open_trial(**given) as (one, *_), open_trial(**given) as (two, *_):
        assert (await ask(one, "openai", 0)).status == 200
        # All that the first knows is its first call.
        assert [(await ask(two, "openai", steps)).status for steps in (1, 2, 3, 4)] == [200, 200, 200, 429]
        assert (await ask(one, "openai", 4)).status == 429
    async with open_trial(**given) as (again, *_):
        assert (await ask(again, "openai", 4)).status == 429
        assert (await ask(again, "openai", 3)).status == 200


async def test_what_was_refused_is_kept() -> None:
    """Turns of a request that is refused are in the store, and no call that was never made."""
    limits = {"gateway_session_max_turns": 1, "gateway_at_limit": "refuse"}
    async with open_trial(**limits) as (gateway, *_):
        await ask(gateway, "openai", 0)
        for _ in range(3):
            assert (await ask(gateway, "openai", 1)).status == 429
        await gateway.wait_until_stored()
        store = gateway.worker.store
        (info,) = store.sessions()
        assert info.turns == 1
        assert sum(isinstance(event, RequestSent) for event in store.events(info.key)) == 1


async def test_a_session_that_changes_its_model() -> None:
    """It is billed at the prices of each call's model, not at those of the one that it began with."""
    # One answer of gpt-5.2 is 0.00203 USD, one of gpt-5-nano 0.00006.
    async with open_trial(gateway_session_max_cost_usd=0.004, gateway_at_limit="refuse") as (gateway, *_):
        statuses = []
        for step, model in enumerate(["gpt-5-nano", "gpt-5.2", "gpt-5.2", "gpt-5.2"]):
            raw = json.dumps({"model": model, "messages": make_history("openai", step)}).encode()
            statuses.append((await send(gateway, "openai", raw)).status)
        assert statuses == [200, 200, 200, 429]


async def test_a_session_whose_usage_is_reported_once() -> None:
    """Calls without usage count as their prompts, though one of them was reported; as reported they never count."""
    reported: list[bytes] = []

    def answer(asked: ReceivedRequest) -> bytes:
        if not reported:
            reported.append(asked.body)
            return render_sound(asked)
        silent = [frame for frame in render_frames("openai") if b'"prompt_tokens"' not in frame]
        return render_response(b"".join(silent), "200 OK", EVENTS_HEADER)

    limits = {"gateway_session_max_cost_usd": 0.005, "gateway_at_limit": "refuse", "strategy": "masking"}
    async with open_trial(answer_always(answer), **limits) as (gateway, *_):
        # The first is 0.00203 USD; each one behind it is some 2,000 tokens longer, at 1.75 USD a million.
        got = [await ask(gateway, "openai", steps, lines=300) for steps in range(8)]
        assert 1 < [each.status for each in got].index(429) < 7
        (alone,) = gateway.worker.gateway.sessions
        assert alone.newest_diagnostics is not None
        assert alone.newest_diagnostics.costs.billed == pytest.approx((1_000 * 1.75 + 20 * 14) / 1e6)


# -- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shadow", [False, True])
async def test_a_key_at_its_limit(shadow: bool) -> None:
    """All sessions of a key are on its bill, those of shadow mode too, and another key is free."""
    limits = {"gateway_key_max_turns": 2, "gateway_at_limit": "refuse", "gateway_shadow": shadow}
    async with open_trial(**limits) as (gateway, *_):
        got = [(await ask(gateway, "openai", 0, task=task)).status for task in ("One.", "Two.", "Three.")]
        assert got == [200, 200, 429]
        assert (await ask(gateway, "openai", 0, key="k2")).status == 200


async def test_a_key_at_its_limit_elsewhere(tmp_path: Path) -> None:
    """What a key spent through another gateway, or before a restart, is on its bill."""
    given = {
        "store": f"sqlite:///{tmp_path}/s.db",
        "gateway_key_max_cost_usd": 1.5 * ANSWER_USD,
        "gateway_at_limit": "refuse",
    }
    async with open_trial(**given) as (one, *_):
        assert [(await ask(one, "anthropic", steps)).status for steps in (0, 1)] == [200, 200]
    async with open_trial(**given) as (two, *_):
        # What will be in no log is stopped, too.
        for got in (await ask(two, "anthropic", 0, task="Another."), await send(two, *PASSED["unreadable"])):
            assert (got.status, got.json()["error"]["type"]) == (429, "rate_limit_error")
            assert f"this key has spent ${2 * ANSWER_USD:.4f}" in got.json()["error"]["message"]


# -- what is passed on as it came --------------------------------------------------------------------------------------


def stateful(api: Api) -> bytes:
    return json.dumps({"model": MODELS[api], "previous_response_id": "resp_1", "input": "Go on."}).encode()


def choices(api: Api) -> bytes:
    return json.dumps({"model": MODELS[api], "n": 2, "messages": make_history(api, 0)}).encode()


#: Requests that nothing is decided on, by why.
PASSED: dict[str, tuple[Api, bytes]] = {
    "stateful": ("openai-responses", stateful("openai-responses")),
    "choices": ("openai", choices("openai")),
    "unreadable": ("anthropic", b'{"messages": ['),
    "large": ("anthropic", make_body("anthropic", 0, task="Mend it. " * 20_000)),
}
#: Of what is read of a request, so that "large" is not.
READ: dict[str, Any] = {"gateway_max_read_bytes": 65_536}


@pytest.mark.parametrize("why", PASSED)
async def test_what_passes_is_refused_at_a_keys_limit(why: str) -> None:
    """It counts towards its key's turns, and at the limit nothing of it is sent; switched off it is free."""
    api, raw = PASSED[why]
    limits = {"gateway_key_max_turns": 2, "gateway_at_limit": "refuse"}
    async with open_trial(**limits, **READ) as (gateway, *_):
        for _ in range(3):
            assert (await send(gateway, api, raw, "x-elision: off")).status == 200
        assert [(await send(gateway, api, raw)).status for _ in range(2)] == [200, 200]
        got = await send(gateway, api, raw)
        assert (got.status, got.headers["x-should-retry"], got.headers["x-elision-error"]) == (
            429,
            "false",
            "limit",
        )
        assert got.json()["error"]["type"] == "rate_limit_error"
        assert "key_max_turns: this key has made 2 of 2 turns" in got.json()["error"]["message"]
        # What is decided on is on the same bill.
        assert (await ask(gateway, "openai", 0)).status == (429 if api != "anthropic" else 200)
        assert (await send(gateway, api, raw, "x-elision: off")).status == 200


@pytest.mark.parametrize("why", PASSED)
async def test_what_passes_is_hinted_at_a_keys_limit(why: str) -> None:
    """It passes as it came, and its answer names the limit."""
    api, raw = PASSED[why]
    async with open_trial(gateway_key_max_turns=1, gateway_at_limit="hint", **READ) as (gateway, upstream, _):
        assert "x-elision-stop" not in (await send(gateway, api, raw)).headers
        got = await send(gateway, api, raw)
        assert (got.status, got.body) == (200, render_whole(api))
        assert got.headers["x-elision-stop"] == "key_max_turns: this key has made 1 of 1 turns"
        assert upstream.requests[-1].body == raw
        assert "x-elision-stop" not in (await send(gateway, api, raw, "x-elision: off")).headers


async def test_what_asks_no_model_is_free() -> None:
    """Counting tokens, and paths that are not known here, are neither counted nor stopped."""
    limits = {"gateway_key_max_turns": 1, "gateway_at_limit": "refuse"}
    async with open_trial(**limits) as (gateway, *_):
        for path in ("/v1/messages/count_tokens", "/v1/messages/batches"):
            got = [(await send(gateway, "anthropic", make_body("anthropic", 0), path=path)).status for _ in range(2)]
            assert got == [200, 200]
        assert [(await ask(gateway, "anthropic", steps)).status for steps in range(2)] == [200, 429]


@pytest.mark.parametrize("whose", ["session", "key"])
@pytest.mark.parametrize("at_limit", ["hint", "refuse"])
async def test_a_session_that_is_left_alone_has_its_limits(whose: str, at_limit: str) -> None:
    """What passes because the provider refused what was made of it is asked for both limits as well."""

    # One request is refused and taken as it came, one passes behind it.
    most = HIDING_STEPS + 2
    limits = {f"gateway_{whose}_max_turns": most, "gateway_at_limit": at_limit}
    async with open_trial(answer_always(refuse_edited), **limits) as (gateway, *_):
        got = [await ask(gateway, "openai", steps) for steps in range(most)]
        assert {each.status for each in got} == {200}
        assert not any("x-elision-stop" in each.headers for each in got)
        (alone,) = gateway.worker.gateway.sessions
        assert alone.requests_to_bypass
        for _ in range(2):
            last = await ask(gateway, "openai", most)
            told = last.headers["x-elision-stop"] if at_limit == "hint" else last.json()["error"]["message"]
            assert last.status == (200 if at_limit == "hint" else 429)
            assert f"{whose}_max_turns: this {whose} has made" in told
        assert not alone.is_busy


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def budgets(store: Any, clock: Clock, **limits: Any) -> Budgets:
    return Budgets(make_settings(**limits), store, clock=clock)


async def test_the_store_is_read_now_and_then() -> None:
    """What came behind the last look counts from the next one on; what was let through here counts at once."""
    store, clock = MemoryStore(), Clock()
    found = budgets(store, clock, gateway_key_max_turns=4, gateway_at_limit="hint")
    assert await found.check_key("k1") == ""
    store.create(NewSession(key="s", family="k1/one", at=1.0))
    store.append("s", log(2), after=0, at=2.0)
    assert await found.check_key("k1") == ""
    clock.now = LOOK_SECONDS
    # What was let through so far is in the store, or never will be.
    assert [bool(await found.check_key("k1")) for _ in range(3)] == [False, False, True]
    assert await found.check_key("k10") == ""


async def test_a_look_asks_for_what_is_new_of_one_key() -> None:
    """Sessions of others, and those of its own that did not change, are no work; now and then all of its own are."""
    asked: list[tuple[str, float | None]] = []

    class Watched(MemoryStore):
        def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
            asked.append((family_prefix, changed_since))
            return super().sessions(family_prefix=family_prefix, changed_since=changed_since)

    async def look(found: Budgets, clock: Clock, seconds: float) -> list[tuple[str, float | None]]:
        asked.clear()
        clock.now += seconds
        await found.check_key("k1")
        return list(asked)

    store, clock = Watched(), Clock()
    found = budgets(store, clock, gateway_key_max_turns=9)
    whole = [("k1", None), ("shadow/k1", None)]
    assert await look(found, clock, 0.0) == whole
    store.create(NewSession(key="s", family="shadow/k1/one", at=1_000.0))
    store.create(NewSession(key="t", family="k2", at=9_000.0))
    assert await look(found, clock, LOOK_SECONDS) == whole
    since = 1_000.0 - OVERLAP_SECONDS
    assert await look(found, clock, LOOK_SECONDS) == [("k1", since), ("shadow/k1", since)]
    assert await look(found, clock, LOOK_SECONDS / 2) == []
    assert await look(found, clock, FULL_LOOK_SECONDS) == whole


async def test_a_store_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the request goes on."""

    class Failing(MemoryStore):
        def sessions(self, **asked: Any) -> list[SessionInfo]:
            raise StoreError("gone")

    found = budgets(Failing(), Clock(), gateway_key_max_cost_usd=0.01)
    assert await found.check_key("k1") == ""
    assert caplog.messages == ["what a key has spent could not be read, nothing is stopped for that: gone"]


# -- one session's bill -----------------------------------------------------------------------------------------------


def log(calls: int, first: int = 1, usage: bool = True) -> list[Event]:
    """So many calls, each of 1,000 tokens more than the one before, a second apart."""
    events: list[Event] = []
    for call in range(first, first + calls):
        events.append(RequestSent(call=call, at=float(call), model=MODEL, tokens=1_000 * call))
        if usage:
            events.append(UsageReported(call=call, usage=Usage(input=1_000, output=20)))
    return events


def info(parent: str = "", begun: float = 0.0) -> SessionInfo:
    relation: Any = "fork" if parent else ""
    return SessionInfo(
        key="s", family="k1", parent=parent, relation=relation, begun=begun, changed=9.0, records=9, turns=0
    )


def account() -> SessionSpend:
    return SessionSpend(Options().find_prices)


def test_a_log_is_read_on() -> None:
    """In parts it comes to the same as in one, however little the first part says."""
    events: list[Event] = [HeadSet(Head()), *log(3)]
    at_once, bit_by_bit = account(), account()
    at_once.add_events(info(), events)
    for event in events:
        bit_by_bit.add_events(info(), [event])
    assert (at_once.calls, at_once.records) == (bit_by_bit.calls, bit_by_bit.records) == (3, 7)
    assert at_once.usd == bit_by_bit.usd == pytest.approx(3 * ANSWER_USD)


def test_models_are_billed_apart() -> None:
    """A session that goes on with another model is billed at that model's prices from there on."""
    changing = account()
    cheap = [replace(event, model="gpt-5-nano") if isinstance(event, RequestSent) else event for event in log(1)]
    changing.add_events(info(), [*cheap, *log(2, first=2)])
    assert changing.usd == pytest.approx((1_000 * 0.05 + 20 * 0.40) / 1e6 + 2 * ANSWER_USD)


def test_a_fork_pays_for_its_own() -> None:
    """Calls that its parent made are on the parent's bill."""
    fork = account()
    fork.add_events(info(parent="p", begun=2.5), [*log(2), *log(1, first=3)])
    assert (fork.calls, fork.usd) == (1, pytest.approx(ANSWER_USD))


def test_usage_that_nobody_reports() -> None:
    """Prompts are counted then: what the call before sent is read from the cache, the rest written."""
    silent = account()
    silent.add_events(info(), log(2, usage=False))
    # claude-sonnet-4-5: 3 USD a million, 3.75 written, 0.30 read.
    assert silent.usd == pytest.approx((1_000 * 3.75 + 1_000 * 0.30 + 1_000 * 3.75) / 1e6)


def test_usage_that_is_reported_now_and_then() -> None:
    """A call without counts as its prompt, though others of its session were reported; told late, as it was told."""
    mixed = account()
    mixed.add_events(info(), [*log(1), *log(1, first=2, usage=False)])
    assert mixed.usd == pytest.approx(ANSWER_USD + (1_000 * 3.75 + 1_000 * 0.30) / 1e6)
    mixed.add_events(info(), [UsageReported(call=2, usage=Usage(input=1_000, output=20))])
    assert mixed.usd == pytest.approx(2 * ANSWER_USD)


def test_prompts_that_ask_for_no_cache() -> None:
    """Where caches want breakpoints, a prompt without any is plain input at every call."""
    silent = account()
    silent.add_events(
        info(), [replace(event, unmarked=True) for event in log(2, usage=False) if isinstance(event, RequestSent)]
    )
    assert silent.usd == pytest.approx((1_000 + 2_000) * 3 / 1e6)
