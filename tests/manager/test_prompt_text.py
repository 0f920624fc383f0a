"""A context as one text: what the published managers hand to an agent that sends a single prompt string."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.errors import DialectError
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.outgoing_request import OutgoingRequest
from elision.stores.memory import MemoryStore
from elision.trajectory.plan import SummaryRequest
from tests.manager.agents import LONG, SHAPES, make_anthropic_step, make_history, make_openai_step, make_task
from tests.published_managers import (
    HybridContextManager,
    LLMSummarizationContextManager,
    ObservationMaskingContextManager,
)

SYSTEM = "You are careful."
TASK = "Find the slow module."
#: The published placeholders.
OMITTED = "[Observation omitted for brevity]"
SHORT_OMITTED = "[Observation omitted]"
#: A summary that says little of turns without facts.
SUMMARY = "The first modules were read, and none of them is slow."


def make_observation(number: int) -> str:
    return "\n".join(f"words of part {number}, line {line}" for line in range(8))


def begin(strategy: str, **options: Any) -> ContextManager:
    context = ContextManager(
        strategy,
        store="memory:",
        prices="uncached",
        summarizer=write_summary,
        recall="never",
        **gather_options(options),
    )
    context.turns.begin(TASK, system=SYSTEM)
    return context


def write_summary(request: SummaryRequest) -> str:
    return SUMMARY


def count_from_one(text: str, turns: int) -> str:
    """Return a published text whose turns are counted from 0 with turns counted from 1."""
    for number in range(turns, -1, -1):
        text = text.replace(f"\nTurn {number}:\n", f"\nTurn {number + 1}:\n")
    return text


# -- the published formats --------------------------------------------------------------------------------------------


def test_masking_has_the_published_text_byte_for_byte() -> None:
    """Every context of a run of 30 turns.

    The published manager masks if `len(trajectory) - turn > m`, which leaves m + 1 visible. Its formula, i < t - M with
    t = len(trajectory) + 1, leaves M: that is what `window` says here.
    """
    theirs = ObservationMaskingContextManager(window_size_m=10)
    ours = begin(f"masking(window=11, placeholder='{OMITTED}', gist=0, schedule=every-turn)")
    for number in range(1, 31):
        assert ours.turns.view().text() == theirs.get_masked_context(SYSTEM, TASK)
        turn = (f"thought {number}", f"look at part {number}", make_observation(number))
        ours.turns.add(*turn)
        theirs.add_turn(*turn)
    assert theirs.get_masked_context(SYSTEM, TASK).count(OMITTED) == 19
    assert ours.turns.view().text().count(OMITTED) == 19


def test_the_published_savings_are_counted_and_not_assumed() -> None:
    """`estimate_token_savings` assumes 5 tokens a placeholder and equal turns; both agree within a tenth on such."""
    theirs = ObservationMaskingContextManager(window_size_m=10)
    ours = begin(f"masking(window=10, placeholder='{OMITTED}', gist=0, schedule=every-turn)")
    for number in range(1, 31):
        turn = (f"thought {number}", "look", make_observation(number))
        ours.turns.add(*turn)
        theirs.add_turn(*turn)
    published = theirs.estimate_token_savings()
    savings = ours.turns.view().diagnostics.savings
    assert (savings.masked, savings.visible) == (published["masked_turns"], published["visible_turns"]) == (20, 10)
    assert savings.reduction_pct == pytest.approx(published["reduction_percent"], rel=0.1)


def test_hybrid_has_the_published_text_until_the_published_one_loses_turns() -> None:
    """Masking up to turn 42, and the first summary at turn 43, byte for byte; there turns are counted from 0.

    From the next turn on the published manager shows the newest 10 turns behind a summary through turn 33: turn 34 is
    in neither. Here it is shown.
    """
    theirs = HybridContextManager(lambda turns: SUMMARY)
    ours = begin(
        f"hybrid(window=10, summarize_at=43, tail=10, placeholder='{SHORT_OMITTED}', gist=0, schedule=every-turn)"
    )
    for number in range(1, 45):
        turn = (f"thought {number}", f"look at part {number}", make_observation(number))
        ours.turns.add(*turn)
        theirs.add_turn(*turn)
        published = count_from_one(theirs.get_context(SYSTEM, TASK), number)
        text = ours.turns.view().text()
        if number < 44:
            assert text == published
    assert f"[Summary through turn 33:\n{SUMMARY}\n]" in text
    assert "\nTurn 34:\n" in text
    assert "\nTurn 34:\n" not in published
    assert ours.session.report().phase == theirs.phase == "summarizing"


def test_summarization_has_the_published_text_but_for_its_heading() -> None:
    """`Summary of turns 21:` there says the newest covered turn; one heading serves both strategies here."""
    theirs = LLMSummarizationContextManager(lambda turns: SUMMARY)
    ours = begin("summarization(every=21, tail=10, schedule=every-turn)")
    for number in range(1, 32):
        theirs.maybe_summarize()
        if number == 1 or number > 11:
            # Before there is a summary the published manager shows the newest 10 turns only.
            assert ("\nTurn 1:\n" in ours.turns.view().text()) == (number > 11)
        turn = (f"thought {number}", f"look at part {number}", make_observation(number))
        ours.turns.add(*turn)
        theirs.add_turn(*turn)
    theirs.maybe_summarize()
    published = count_from_one(theirs.get_context(SYSTEM, TASK), 31)
    assert ours.turns.view().text() == published.replace("[Summary of turns 21:", "[Summary through turn 21:")


def test_the_published_usage_example() -> None:
    """Context, model, environment, add_turn, and at the end what it saved."""
    manager = begin(f"masking(window=10, placeholder='{OMITTED}', gist=0, schedule=every-turn)")
    prompts = []
    for turn in range(1, 26):
        context = manager.turns.view().text()
        prompts.append(context)
        reasoning, action = f"thought {turn}", f"look at part {turn}"
        observation = make_observation(turn)
        manager.turns.add(reasoning, action, observation)
    savings = manager.session.report().savings
    assert savings.tokens > 0
    assert len(prompts[-1]) < len(manager.turns.view().text()) + len(make_observation(1))
    assert manager.session.report().to_dict()["phases"] == {"raw": 11, "masking": 14, "summarizing": 0}


# -- what else a turn may hold ----------------------------------------------------------------------------------------


def test_a_turn_with_several_calls() -> None:
    """Each call has its lines, with its result; a call without a result has none."""
    context = begin("masking")
    calls = [{"name": "bash", "arguments": {"command": "ls"}}, "look", {"name": "read", "arguments": {"path": "a.py"}}]
    context.turns.add("Where is it?", calls, ["a.py", "nothing"], text="I look around.")
    assert context.turns.view().text() == (
        "You are careful.\nFind the slow module.\n\n"
        "Turn 1:\n"
        "Reasoning: Where is it?\nI look around.\n"
        'Action: bash {"command": "ls"}\n'
        "Observation: a.py\n"
        "Action: look\n"
        "Observation: nothing\n"
        'Action: read {"path": "a.py"}\n'
    )


def test_a_session_without_turns_is_its_prompt() -> None:
    with ContextManager(store="memory:") as context:
        assert context.turns.view().text() == ""
        context.turns.begin(TASK)
        assert context.turns.view().text() == TASK


def test_text_that_looks_like_a_field_stays_text() -> None:
    """Braces and percent signs of an observation are nobody's format."""
    context = begin("masking")
    context.turns.add("{turn} %s", "echo '{0}'", "{observation} %(x)s \x00")
    assert (
        context.turns.view()
        .text()
        .endswith("Turn 1:\nReasoning: {turn} %s\nAction: echo '{0}'\nObservation: {observation} %(x)s \x00\n")
    )


# -- every dialect ----------------------------------------------------------------------------------------------------

HYBRID = "hybrid(window=2, fold=false, summarize_at=5, tail=2, summary_max_tokens=120, schedule=every-turn)"


@pytest.mark.parametrize("shape", SHAPES)
def test_every_dialect_has_the_text(shape: str) -> None:
    """Task, summary, placeholders and the newest turns are in it, and whatever is hidden is not."""
    with ContextManager(HYBRID, store="memory:", model="claude-sonnet-4-5") as context:
        for number in range(10):
            view = context.prepare(make_history(shape, number))
    text = view.text()
    shown = [f"\nTurn {number}:\n" in text for number in range(1, 10)]
    covered = shown.index(True)
    assert shown == [number >= covered for number in range(9)]
    assert text.startswith(f"Mend the parser.\n\n[Summary through turn {covered}:\n")
    # The newest two results stand in full.
    assert text.count(LONG) == 2
    assert text.count("tokens hidden]") == 9 - covered - 2
    assert [f"Observation: {number}\n{LONG}" in text for number in (8, 9)] == [True, True]
    if shape != "text":
        assert 'Action: bash {"command": "cat f9.py"}\nObservation: 9\n' in text
    else:
        # The action is in what was said.
        assert "Reasoning: I look.\n```bash\ncat f9.py\n```\nObservation: 9\n" in text


def test_a_resumed_session_has_the_same_bytes() -> None:
    store = MemoryStore()
    views = []
    for _ in range(2):
        with ContextManager(HYBRID, store=store, session="s") as context:
            views.append(context.prepare(make_history("anthropic", 8), system="Be careful."))
    assert views[0].text() == views[1].text()
    assert views[0].text().startswith("Be careful.\nMend the parser.\n")


def test_a_prompt_is_a_value() -> None:
    """What comes later changes no text that was prepared before."""
    context = begin("masking(window=1, schedule=every-turn)")
    context.turns.add("one", "look", LONG)
    view = context.turns.view()
    before = view.text()
    for number in range(3):
        context.turns.add(str(number), "look", LONG)
        context.turns.view()
    assert view.text() == before


def test_shadow_shows_everything() -> None:
    """Requests are sent unchanged, as text too."""
    with ContextManager(HYBRID, store="memory:", shadow=True) as context:
        for number in range(10):
            view = context.prepare(make_history("openai", number))
    assert view.text().count(LONG) == 9


def test_words_of_the_user_and_pictures() -> None:
    """Messages between the turns are the user's; what is no text is named."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
    history = [*make_task(), *make_anthropic_step(1)]
    history[-1]["content"] += [{"type": "text", "text": "Faster, please."}, picture]
    with ContextManager(store="memory:") as context:
        text = context.prepare(history).text()
    assert text.endswith(f"\nObservation: 1\n{LONG}\n\n\nUser: Faster, please.\n[image that cannot be sent here]\n")


def test_the_beginning_of_an_answer_is_kept() -> None:
    """Trailing messages of the assistant are no turn yet; the model continues them."""
    history = [*make_history("openai", 1), {"role": "assistant", "content": "The slow module is"}]
    with ContextManager(store="memory:") as context:
        text = context.prepare(history).text()
    assert text.endswith("\nTurn 2:\nReasoning: The slow module is\n")


@pytest.mark.parametrize("steps", [make_openai_step, make_anthropic_step])
def test_a_failed_preparation_still_has_its_text(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """I9: the agent gets its prompt, with nothing hidden."""
    history = [*make_task(), *steps(1), *steps(2, LONG[::-1])]
    with ContextManager(store="memory:") as context:
        expected = context.prepare(history).text()
        monkeypatch.setattr(context._opened.preparer, "decide_view", None)
        view = context.prepare(history)
    assert view.diagnostics.faults
    assert view.text() == expected


def test_what_is_no_message_has_no_text() -> None:
    sent = OutgoingRequest(messages=[7], origins=[0], system=None, tools=None)
    view = ContextView(sent, "openai", begin("raw").turns.view().deferred)
    with pytest.raises(DialectError):
        view.text()


def test_the_text_is_not_the_messages() -> None:
    """Both come from one view: asking for one changes nothing in the other."""
    context = begin("masking(window=1, schedule=every-turn)")
    for number in range(4):
        context.turns.add(str(number), "look", LONG)
    view = context.turns.view()
    before = json.dumps(view.messages)
    view.text()
    assert json.dumps(view.messages) == before
