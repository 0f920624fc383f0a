"""What users complain about in context managers (shared/field.md, the list of 25), each held against the library door.

`test_table.py` maps every complaint and every published defect to its test, those in other places of the tests too.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from elision.errors import BudgetError, SettingError, SummaryError
from elision.manager import ContextManager, ContextView
from elision.stores.memory import MemoryStore
from elision.stores.store_urls import open_existing
from elision.strategies.selectors import Rule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.summarizers.factory import make_summarizer
from elision.summarizers.summary_checks import SummaryResult
from elision.testing.recorded_provider import Terms
from elision.trajectory.events import SummaryFailed
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.trajectory import Trajectory
from tests import flat_options
from tests.field.played import Played, cost, play, recorded
from tests.manager.agents import LONG, SHAPES, Message, make_anthropic_step, make_history, make_openai_step
from tests.summarizers.scripted_server import reply_chat, reply_error, serve_script

EAGER = "masking(window=2, schedule=every-turn, fold=false)"
FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=200, schedule=every-turn, fold=false)"
PRICES = find_prices("claude-haiku-4-5")
NAMES = {"text": "openai"}


def manager(strategy: str | Strategy = EAGER, **options: Any) -> ContextManager:
    given = {"store": "memory:", "session": "s", "cache_control": "client", "recall": "caller", **options}
    return flat_options.open_context(strategy, **given)


def walk(context: ContextManager, steps: int, shape: str = "openai", first: int = 0) -> list[ContextView]:
    return [context.prepare(make_history(shape, step)) for step in range(first, steps + 1)]


def short(request: SummaryRequest) -> str:
    names = ", ".join(f"f{turn.index}.py" for turn in request.turns)
    return f"{names} were read; line 117: value 114309."


# -- 1 ... 4 ----------------------------------------------------------------------------------------------------------


def test_1_the_bill_does_not_go_up() -> None:
    """Pruning broke the prompt cache and the bill went up: by the provider's own usage ours is at most 1.10 x raw."""
    run = recorded(60)
    raw, eager, aware = (
        play(run, spec)
        for spec in ("raw", "masking(window=5, schedule=every-turn, fold=false)", "masking(window=5, fold=false)")
    )
    everything = raw.billed(PRICES)
    assert eager.billed(PRICES) > 1.1 * everything
    assert aware.billed(PRICES) < everything
    assert aware.views[-1].diagnostics.savings.masked > 5


def thoughtful(run: Trajectory) -> Trajectory:
    turns = tuple(msgspec.structs.replace(turn, reasoning=f"What to do at step {turn.index}?") for turn in run.turns)
    return replace(run, turns=turns)


@pytest.mark.parametrize("way", ["native", "defer", "drop_block"])
def test_2_signed_thinking_stays_valid(way: str) -> None:
    """Edited history made signed thinking invalid: with a provider that checks every signature no request is refused.

    `ignore`, which edits as if nothing were bound, is refused there: the check is a real one.
    """
    thinks = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
    terms = Terms(bound_thinking=True, clock=lambda: 0.0)
    options: dict[str, Any] = {"terms": terms, "thinks": thinks, "model": "claude-opus-5-5"}
    run = thoughtful(recorded(16))
    played = play(run, EAGER, thinking=way, **options)
    assert len(played.views) == 16
    with pytest.raises(AssertionError, match="Invalid `signature`"):
        play(run, EAGER, thinking="ignore", **options)


@pytest.mark.parametrize("strategy", ["masking(window=3, gist=0, fold=false)", FOLDING])
def test_2_a_budget_leaves_signed_thinking_valid(strategy: str) -> None:
    """Over its budget a view is made smaller only where no thinking is bound, and the diagnostics say it is not met."""
    thinks = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
    terms = Terms(bound_thinking=True, clock=lambda: 0.0)
    options: dict[str, Any] = {"terms": terms, "thinks": thinks, "model": "claude-opus-5-5", "thinking": "defer"}
    limits: dict[str, Any] = {"token_budget": 6_000, "reserved_for_response": 100}
    run = thoughtful(recorded(16))
    played = play(run, strategy, over_budget="send", **limits, **options)
    assert len(played.views) == 16
    assert [fault.kind for fault in played.views[-1].diagnostics.faults] == ["budget"]
    with pytest.raises(BudgetError, match="set thinking to native or drop_block"):
        play(run, strategy, **limits, **options)


@pytest.mark.parametrize("api", ["openai", "openai-responses", "anthropic"])
def test_3_pairs_stay_together(api: Any) -> None:
    """Orphaned calls and results killed sessions for good: each request passes a provider that refuses them."""
    played = play(recorded(24), "hybrid(window=2, summarize_at=6, tail=2, schedule=every-turn, fold=false)", api)
    assert played.views[-1].diagnostics.summaries


def test_4_goals_rules_and_constraints_stay() -> None:
    """Goals, rules and constraints got lost: system prompt, task, later wishes and pins stand word for word at the end.

    In the newest view of a long run with many summaries, and so do the wishes from turns that summaries cover.
    """
    wishes = {5: "Keep API v2 working.", 17: "Never touch vendor/.", 33: "Use tabs."}
    system = {"role": "system", "content": "You never delete files."}
    messages: list[Message] = [system, *make_history("openai", 0, "Mend the parser. Do not use eval.")]
    context = manager(FOLDING, pin=lambda message: "PINNED" in str(message.get("content")))
    for step in range(1, 61):
        messages += make_openai_step(step, "PINNED the licence" if step == 9 else LONG)
        messages += [{"role": "user", "content": wishes[step]}] if step in wishes else []
        view = context.prepare(messages)
    assert view.diagnostics.summaries > 5
    assert view.messages[:2] == messages[:2]
    said = [message["content"] for message in view.messages if message["role"] == "user"]
    assert [each for each in said if each in wishes.values()] == list(wishes.values())
    assert "PINNED the licence" in json.dumps(view.messages)


# -- 5 ... 9 ----------------------------------------------------------------------------------------------------------


def test_5_no_pass_shrinks_nothing() -> None:
    """Compaction loops and passes that shrink nothing: each that acts frees tokens, and most calls under a tight
    budget do not act."""
    context = manager("masking(window=4, fold=false, budget=budget(tokens=6_000, max_context_pct=1.0, reserved=0))")
    told = [view.diagnostics for view in walk(context, 60)]
    acted = [each for each in told if each.acted]
    assert acted
    assert all(each.before > each.after for each in acted)
    assert all(each.after <= 6_000 for each in told)
    assert len(acted) < len(told) / 2
    assert all(each.reason for each in told)


def test_6_the_compaction_call_is_not_retried_unchanged() -> None:
    """The compaction call itself overflowed, was retried unchanged and billed: the second is cut to what the error
    names, and what both used is in the costs."""
    good = "f1.py, f2.py, f3.py and f4.py were read; line 117: value 114309 in each. Nothing was changed yet."
    refused = reply_error(400, "prompt is too long: 9000 tokens > 5000 maximum")
    with serve_script(*[refused, reply_chat(good)] * 6) as server:
        context = manager(FOLDING, summarizer=make_summarizer("openai:small", base_url=server.url))
        views = walk(context, 9)
        sizes = [len(json.dumps(body)) for body in server.bodies]
    assert len(sizes) >= 2
    assert sizes[1] < 0.7 * sizes[0]
    assert views[-1].diagnostics.summaries >= 1
    assert views[-1].diagnostics.costs.summarizer > 0


def test_7_what_is_hidden_is_named_so_that_it_need_not_be_read_again() -> None:
    """Agents read again what was hidden: a placeholder tells call, outcome, size and handle, and the handle answers."""
    context = manager()
    view = walk(context, 6)[-1]
    text = view.messages[2]["content"]
    assert re.fullmatch(r"\[t1\.1 bash: .*f1\.py.* -> .*; \d+ tokens hidden.*\]", text)
    answer = context.handle_tool_call("elision_recall", {"handle": "t1.1", "lines": "2-2"})
    assert answer == "2: line 0: value 0"


def test_8_savings_are_those_of_the_bill() -> None:
    """Nobody believed savings from own counters: what is told as billed is the provider's usage at its prices, and what
    recalls and summaries cost is debited."""
    run = recorded(40)
    played, raw = play(run, "hybrid(window=5, summarize_at=15, tail=5, fold=false)"), play(run, "raw")
    told = played.views[-1].diagnostics.costs
    assert told.billed == pytest.approx(sum_but_last(played), rel=1e-6)
    assert told.ours == pytest.approx(told.billed + told.summarizer, rel=0.15)
    # Both plays have breakpoints of ours; what a client without them would have paid beyond that is told apart.
    assert told.raw - told.caching == pytest.approx(sum_but_last(raw), rel=0.15)
    assert told.hiding == pytest.approx(sum_but_last(raw) - told.billed - told.summarizer, abs=0.15 * told.billed)


def sum_but_last(played: Played) -> float:
    """USD as billed when the last pass was made: its own answer had not come yet."""
    return sum(cost(usage, PRICES) for usage in played.usage[:-1])


@pytest.mark.parametrize("strategy", [EAGER, FOLDING])
@pytest.mark.parametrize("shape", SHAPES)
def test_9_nothing_is_removed_in_silence(shape: str, strategy: str) -> None:
    """Silent removal: whatever differs from the client's messages was told to the callback, with handle and sizes."""
    told: list[Any] = []
    context = manager(strategy, on_event=told.append, dialect=NAMES.get(shape, shape))
    view = walk(context, 14, shape)[-1]
    given = {json.dumps(message) for message in make_history(shape, 14)}
    new = [text for message in view.messages if json.dumps(message) not in given for text in strings(message)]
    texts = [hidden.text for each in told for hidden in each.masked]
    blocks = [each.summarized for each in told if each.summarized]
    for text in new:
        assert text in texts or (blocks and "not a message from the user" in text) or text in json.dumps([*given])
    assert all(hidden.tokens > hidden.left > 0 and hidden.handle for each in told for hidden in each.masked)
    assert len(told) == 15


def strings(value: Any) -> list[str]:
    """Every text of a message."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in strings(each)]


# -- 10 ... 16 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [EAGER, FOLDING])
@pytest.mark.parametrize("shape", SHAPES)
def test_10_there_is_a_way_back(shape: str, strategy: str) -> None:
    """No way back: every handle that any placeholder ever named gives the very text, summarized since or not."""
    context = manager(strategy, dialect=NAMES.get(shape, shape))
    handles = [hidden.handle for view in walk(context, 16, shape) for hidden in view.diagnostics.masked]
    assert len(handles) >= 10
    for each in handles:
        turn = int(each[1:].partition(".")[0])
        assert context.session.recall(each) == f"{turn}\n{LONG}"


def test_11_placeholders_invent_nothing() -> None:
    """Lossy rewriting of tool output invents facts: each item of a gist stands in the original, and what is not hidden
    is the very object that was given."""
    run = recorded(60)
    played = play(run, "masking(window=3, schedule=every-turn, fold=false)", store=(store := MemoryStore()))
    seen = [hidden for view in played.views for hidden in view.diagnostics.masked]
    assert len(seen) > 20
    for hidden in seen:
        turn, place = map(int, hidden.handle[1:].split("."))
        original = store.turns("s")[turn - 1].observations[place - 1].text
        gist = hidden.text.rstrip("]").partition(" hidden | ")[2]
        assert all(item in original for item in gist.split(" ")), hidden.text


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but I can't help with that.",
        "Error: 529 {'type': 'error', 'error': {'type': 'overloaded_error'}}",
        "<html><body><h1>502 Bad Gateway</h1></body></html>",
        "",
        "ok",
        '{"tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}]}',
        "\ufffd\x00\x01" * 200,
        LONG * 30,
    ],
)
def test_12_a_bad_summary_replaces_nothing(answer: str) -> None:
    """An error text, a refusal or an empty string replaced history: the view stays as it was, and the fault is told."""
    context = manager(FOLDING, summarizer=lambda _: answer)
    views = [context.prepare(telling(steps)) for steps in range(13)]
    assert [view.diagnostics.summaries for view in views] == [0] * 13
    assert [fault.kind for view in views for fault in view.diagnostics.faults].count("summarizer") >= 1
    assert len(views[-1].messages) == len(telling(12))


def telling(steps: int) -> list[Message]:
    """A history in which each result tells of files that no other does."""
    said = [
        make_openai_step(step, "\n".join(f"src/part_{step}/mod_{row}.py: ok" for row in range(60)))
        for step in range(1, steps + 1)
    ]
    return [*make_history("openai", 0), *(message for each in said for message in each)]


def test_13_limits_are_the_model_s_and_settings_count() -> None:
    """Thresholds for the wrong model, ignored settings: the window is the model's own, a setting changes the view, and
    one that is unknown is an error."""
    small, large = (
        manager("masking(window=9, fold=false)", prices=prices)
        for prices in (find_price_set("anthropic"), find_prices("claude-haiku-4-5"))
    )
    assert find_prices("gpt-4").window == 8_192
    tight = manager("masking(window=9, fold=false)", model="gpt-4")
    views = [walk(context, 14)[-1].diagnostics for context in (small, large, tight)]
    assert views[2].after <= 8_192 * 0.85 - 1_000 < views[1].after
    told = ContextManager.from_env({"AGENT_CONTEXT_TOKEN_BUDGET": "5000", "AGENT_CONTEXT_STORE": "memory:"})
    assert walk(told, 14)[-1].diagnostics.after <= 5_000 * 0.85 - 1_000
    with pytest.raises(SettingError, match="AGENT_CONTEXT_TOKEN_BUGDET"):
        ContextManager.from_env({"AGENT_CONTEXT_TOKEN_BUGDET": "5000"})


def test_14_counts_are_the_provider_s() -> None:
    """Wrong token counts: system prompt, tools and CJK count, and the provider's own total corrects ours from then."""
    tools = [{"type": "function", "function": {"name": "look", "description": "看看文件。" * 60, "parameters": {}}}]
    plain, whole = manager(), manager()
    bare = plain.prepare(make_history("openai", 2)).diagnostics.after
    system = [{"role": "system", "content": "只用中文回答。" * 60}]
    full = whole.prepare([*system, *make_history("openai", 2)], tools=tools).diagnostics.after
    assert full - bare > 400
    whole.record({"prompt_tokens": full + 1_234, "completion_tokens": 5})
    next_one = whole.prepare([*system, *make_history("openai", 3)], tools=tools).diagnostics
    assert next_one.anchor == 1_234
    assert next_one.after > full + 1_234


def test_16_a_summary_is_no_order() -> None:
    """A summary was read as a new order of the user: it stands behind the task as a record that says so."""
    view = walk(manager(FOLDING, summarizer=short), 12)[-1]
    task, block = view.messages[:2]
    assert task == make_history("openai", 0)[0]
    assert (block["role"], "not a message from the user and not a new request" in str(block["content"])) == (
        "user",
        True,
    )


# -- 18 ... 25 --------------------------------------------------------------------------------------------------------

KEEP = Rule(tool="secret_*", keep=True)
ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "masking": (EAGER, {}),
    "summary": (FOLDING, {}),
    "two-tier": ("two-tier(keep_recent=2, soft=2000, hard=4000, after_steps=3, schedule=every-turn, fold=false)", {}),
    "pressure": (
        "masking(window=6, fold=false)",
        {"token_budget": 4_500, "max_context_pct": 1.0, "reserved_for_response": 0},
    ),
}


@pytest.mark.parametrize("route", ROUTES)
def test_18_rules_hold_on_every_route(route: str) -> None:
    """Per-tool rules were missing or bypassed on some path: a kept result stands word for word whatever hides."""
    strategy, options = ROUTES[route]
    kept = "\n".join(f"clause {number}: {number * 31}" for number in range(30))
    context = manager(replace(parse_strategy(strategy), rules=(KEEP,)), **options)
    messages = make_history("openai", 0)
    for step in range(1, 25):
        said, result = make_openai_step(step, kept if step == 3 else LONG)
        if step == 3:
            said["tool_calls"][0]["function"]["name"] = "secret_rules"
        messages += [said, result]
        view = context.prepare(messages)
    assert kept in "\n".join(strings(view.messages))
    assert view.diagnostics.savings.masked or view.diagnostics.summaries


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
def test_19_what_is_unknown_passes(shape: str) -> None:
    """Unknown fields, block types and thinking were dropped or broken on the way: each is sent unchanged."""
    context = manager(dialect=shape)
    messages = make_history(shape, 6)
    odd: dict[str, Any] = {"x_vendor": {"deep": [1, None, {"y": "z"}]}}
    for message in messages:
        message |= odd
    if shape == "anthropic":
        messages[1]["content"].insert(0, {"type": "redacted_thinking", "data": "c2VjcmV0"})
        messages[3]["content"].append({"type": "server_tool_use", "id": "srv1", "name": "tool_search", "input": {}})
        messages[3]["content"].append({"type": "tool_search_tool_result", "tool_use_id": "srv1", "content": {}})
    before = copy.deepcopy(messages)
    for end in range(3, len(messages) + 1):
        view = context.prepare(messages[:end])
    assert view.diagnostics.savings.masked == 4
    assert messages == before
    assert all(message["x_vendor"] == odd["x_vendor"] for message in view.messages)
    said = [message for message in messages if message.get("role") == "assistant"]
    assert [message for message in view.messages if message.get("role") == "assistant"] == said


def test_22_what_repeats_is_stored_once(tmp_path: Any) -> None:
    """Stores grew without bound: a history that is sent again, forked and restarted adds next to nothing."""
    url = f"sqlite:///{tmp_path}/a.db"

    def size() -> tuple[int, int]:
        store = open_existing(url)
        found = store.footprint()
        store.close()
        return found.stored_bytes, found.texts

    with ContextManager(EAGER, store=url, session="s") as context:
        walk(context, 30)
    before, texts = size()
    raw = len(json.dumps(make_history("openai", 30)))
    assert before < raw
    for _ in range(5):
        with ContextManager(EAGER, store=url, session="s") as context:
            walk(context, 30, first=30)
    again, same = size()
    assert (again - before < raw / 10, same) == (True, texts)
    with ContextManager(EAGER, store=url, session="s") as context:
        walk(context, 30, first=28)
    forked, same = size()
    assert (forked - again < raw / 3, same) == (True, texts)


def test_23_images_count_and_are_kept() -> None:
    """Images were flat, or their base64 counted as text: one counts like an image, is hidden with its result, and is
    told in the placeholder."""
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 9_000}
    context = manager()
    messages = make_history("anthropic", 0)
    for step in range(1, 6):
        said, result = make_anthropic_step(step)
        if step == 1:
            text = {"type": "text", "text": result["content"][0]["content"]}
            result["content"][0]["content"] = [text, {"type": "image", "source": picture}]
        messages += [said, result]
        view = context.prepare(messages)
        if step == 1:
            with_image = view.diagnostics.after
    plain = manager().prepare(make_history("anthropic", 1)).diagnostics.after
    assert 80 <= with_image - plain <= 5_000
    assert "iVBORw0KGgo" not in json.dumps(view.messages)
    assert re.search(r"\d+ tokens \+ 1 image \(about [\d,]+ tokens\) hidden", json.dumps(view.messages))


def test_24_the_summarizer_s_own_cost_is_debited() -> None:
    """The summarizer's own cost was left out: each dollar of it is in the costs, and off the savings."""

    def write(request: SummaryRequest) -> SummaryResult:
        return SummaryResult(text=short(request), input=5_000, output=100, usd=0.25)

    dear, free = manager(FOLDING, summarizer=write), manager(FOLDING, summarizer=short)
    one, other = walk(dear, 14)[-1].diagnostics, walk(free, 14)[-1].diagnostics
    assert one.summaries == other.summaries > 0
    assert one.costs.summarizer == pytest.approx(0.25 * one.summaries)
    spent = one.costs.summarizer - other.costs.summarizer
    assert other.costs.saved - one.costs.saved == pytest.approx(spent)


@pytest.mark.parametrize("shape", SHAPES)
def test_25_off_is_off(shape: str) -> None:
    """No off switch that was really off: `raw` hands on the very objects, adds nothing, and asks no model."""

    def never(request: SummaryRequest) -> str:
        raise AssertionError("asked")

    context = manager("raw", summarizer=never, dialect=NAMES.get(shape, shape), cache_control="client")
    for step in range(20):
        messages = make_history(shape, step)
        view = context.prepare(messages)
        assert all(one is other for one, other in zip(view.messages, messages, strict=True))
        assert (view.extra, view.betas, view.diagnostics.acted) == ({}, (), False)


# -- published systems, at the door -----------------------------------------------------------------------------------


def test_inspect_a_run_does_not_die_of_its_compaction() -> None:
    """Inspect AI gives up after three tries and the run dies: here the model-free digest steps in, and the run goes on.

    Only a budget that nothing fits is an error, with its numbers, and the session lives on behind it.
    """

    def refuse(request: SummaryRequest) -> str:
        raise SummaryError("overloaded", cause="server")

    limits = {"token_budget": 5_000, "max_context_pct": 1.0, "reserved_for_response": 0}
    context = manager(FOLDING, summarizer=refuse, store=(store := MemoryStore()), **limits)
    views = walk(context, 60)
    assert max(view.diagnostics.after for view in views) <= 5_000
    assert sum(isinstance(event, SummaryFailed) for event in store.events("s")) >= 2
    with pytest.raises(BudgetError) as caught:
        context.prepare([{"role": "system", "content": "word " * 6_000}, *make_history("openai", 60)])
    assert caught.value.needed > caught.value.usable == 5_000
    assert context.prepare(make_history("openai", 61)).diagnostics.after <= 5_000


def test_openhands_an_answer_without_text_forgets_nothing() -> None:
    """OpenHands forgets events and inserts no summary where an answer has no text: here every turn still stands."""
    with serve_script(*[reply_chat(None)] * 9) as server:
        context = manager(FOLDING, summarizer=make_summarizer("openai:small", base_url=server.url))
        view = walk(context, 12)[-1]
    assert server.requests
    assert view.diagnostics.summaries == 0
    assert len(view.messages) == 25


def test_markers_can_be_expanded_after_a_restart(tmp_path: Any) -> None:
    """Gateways kept originals in memory for a while, and markers that nothing expands: ours outlive the process."""
    url = f"sqlite:///{tmp_path}/a.db"
    with manager(store=url) as context:
        text = json.dumps(walk(context, 9)[-1].messages)
    handles = sorted(set(re.findall(r"\[(t\d+\.\d+) bash", text)))
    assert len(handles) == 7
    with manager(store=url) as again:
        assert [again.handle_tool_call("elision_recall", {"handle": each})[-20:] for each in handles] == [
            LONG[-20:]
        ] * 7
