"""The scripted agent: what it decides is a function of the prompt that it is sent."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest

from elision.agent.model import Json, ModelAnswer, Prompt
from elision.testing.loop.scripted_agent import SUMMARY_LABEL, PromptPiece, ScriptedAgent
from elision.testing.loop.task_plan import Knobs
from elision.testing.loop.worlds.logs_world import LogsSkill
from elision.testing.loop.worlds.policy_world import PolicySkill

TASK = (
    "Follow the chain of 2 steps through the logs. The first file is node-005.log. "
    "At the end submit a report, written as LABEL=VALUE; LABEL=VALUE, of: svc-005a (in node-005.log)."
)
LOG = (
    "12:01:07 WARN svc-005a lease holder=ab12cd ttl=4\n"
    "12:59:59 NOTICE step 1: need svc-005a (in node-005.log); next node-009.log\n"
)
PLACEHOLDER = "[t1.1 bash: logs/node-005.log -> 2 lines; 40 tokens hidden | aa00bb]"
RECALL: Json = {"type": "function", "function": {"name": "elision_recall", "description": "", "parameters": {}}}


def make_agent(**knobs: Any) -> ScriptedAgent:
    return ScriptedAgent(LogsSkill(), 1, Knobs(**{"careless": 0, "rot": 0, "notes": 0, **knobs}))


def make_prompt(*pairs: tuple[str, str], tools: Sequence[Json] = ()) -> Prompt:
    """A prompt with commands and what they returned."""
    messages: list[Json] = [{"role": "system", "content": "s"}, {"role": "user", "content": TASK}]
    for number, (command, result) in enumerate(pairs):
        function = {"name": "bash", "arguments": json.dumps({"command": command})}
        calls = [{"id": f"c{number}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": "I look.", "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return Prompt(messages=messages, tools=tools)


def first_call(answer: ModelAnswer) -> tuple[str, dict[str, Any]]:
    return answer.calls[0].name, json.loads(answer.calls[0].arguments)


READ = ("cat logs/node-005.log", LOG)
DONE = ("bash record.sh 1 svc-005a=ab12cd", "step 1 accepted\n")


def test_it_goes_from_step_to_step() -> None:
    """It opens the first step, hands in what it has read, and opens the next one that the prompt names."""
    agent = make_agent()
    assert first_call(agent.answer(make_prompt())) == ("bash", {"command": "cat logs/node-005.log"})
    handed_in = ("bash", {"command": "bash record.sh 1 svc-005a=ab12cd"})
    assert first_call(agent.answer(make_prompt(READ))) == handed_in
    assert first_call(agent.answer(make_prompt(READ, DONE))) == ("bash", {"command": "cat logs/node-009.log"})


def test_its_answer_depends_on_the_prompt_alone() -> None:
    """Whatever it was asked before, the same prompt gets the same words and calls."""
    fresh, used = make_agent(), make_agent()
    used.answer(make_prompt(READ, DONE))
    used.answer(make_prompt())
    answers = [agent.answer(copy.deepcopy(make_prompt(READ))) for agent in (fresh, used)]
    assert answers[0].text == answers[1].text
    assert first_call(answers[0]) == first_call(answers[1])


def test_a_hidden_fact_is_recalled_read_again_or_guessed() -> None:
    """It recalls where it has the tools, or reads again; a careless agent takes what a placeholder shows."""
    hidden = (READ[0], PLACEHOLDER)
    # What it needs is still shown, in a later result.
    shown = ("grep need logs/*", "step 1: need svc-005a (in node-005.log); next node-009.log")
    recalled = first_call(make_agent().answer(make_prompt(hidden, shown, tools=[RECALL])))
    assert recalled == ("elision_recall", {"handle": "t1.1", "pattern": r"svc\-005a"})
    for agent, tools in ((make_agent(), []), (make_agent(recalls=False), [RECALL])):
        name, arguments = first_call(agent.answer(make_prompt(hidden, shown, tools=tools)))
        assert name == "bash"
        assert "logs/node-005.log" in arguments["command"]
    guess = first_call(make_agent(careless=1).answer(make_prompt(hidden, shown, tools=[RECALL])))
    assert guess == ("bash", {"command": "bash record.sh 1 svc-005a=aa00bb"})


def test_a_rejected_value_is_not_used_again() -> None:
    """After a rejection the agent looks for another value, and does not repeat its own."""
    wrong = ("bash record.sh 1 svc-005a=aa00bb", "step 1 rejected: svc-005a is not right\n")
    hidden = (READ[0], PLACEHOLDER)
    shown = ("grep need logs/*", "step 1: need svc-005a (in node-005.log); next node-009.log")
    answer = make_agent(careless=1).answer(make_prompt(hidden, shown, wrong))
    assert "node-005.log" in first_call(answer)[1]["command"]


@pytest.mark.parametrize(
    "told",
    [
        ("elision_recall", {"handle": "t1.1"}, '{"account": "acct-001", "balance-001": 900}'),
        ("settle", {"case": 1, "values": {"balance-001": "900"}}, '{"result": "step 1 accepted, 1 left"}'),
        (SUMMARY_LABEL, {}, '- [9] settle(case=1, values={"balance-001": "900"}) -> result step 1 accepted'),
    ],
    ids=["recalled", "written", "summarized"],
)
def test_what_changes_is_read_where_it_is_present(told: tuple[str, Json, str]) -> None:
    """A balance that is recalled, that it wrote or that a summary quotes may be out of date; a newer result is not."""
    task = (
        "Settle 2 cases. At the end submit a report, written as LABEL=VALUE; LABEL=VALUE, of: fee-01a (in section 1)."
    )
    need = ("next_case", {}, '{"case": "step 2: need balance-001 (in acct-001)"}')
    settled = (
        "settle",
        {"case": 1, "values": {}},
        '{"result": "step 1 accepted", "account": "balance-001 is now 850"}',
    )
    agent = ScriptedAgent(PolicySkill(), 1, Knobs(careless=0, rot=0, notes=0, looks_again=0))

    def decide(*steps: tuple[str, Json, str]) -> tuple[str, Json]:
        pieces = [PromptPiece(kind="user", text=task)]
        for number, (name, arguments, text) in enumerate(steps):
            if name == SUMMARY_LABEL:
                pieces.append(PromptPiece(kind="user", text=f"{name} 1-9 of this conversation]\n{text}"))
                continue
            call = f"c{number}"
            asked = json.dumps(arguments)
            pieces.append(PromptPiece(kind="call", text=asked, name=name, arguments=arguments, call=call))
            pieces.append(PromptPiece(kind="result", text=text, call=call))
        return agent.decide(pieces, frozenset())[1][0]

    assert decide(told, settled, need) == ("settle", {"case": 2, "values": {"balance-001": "850"}})
    assert decide(settled, told, need) == ("settle", {"case": 2, "values": {"balance-001": "850"}})
    assert decide(told, ("settle", {}, "step 1 accepted"), need) == ("get_account", {"account": "acct-001"})


def test_notes_are_read_again() -> None:
    """What it wrote down stays visible when the result is hidden."""
    noted = make_agent(notes=1).answer(make_prompt(READ)).text
    assert "svc-005a is `ab12cd`." in noted
    prompt = make_prompt((READ[0], PLACEHOLDER))
    messages = [*prompt.messages, {"role": "user", "content": f"step 1: need svc-005a (in node-005.log)\n{noted}"}]
    answer = make_agent().answer(Prompt(messages=messages))
    assert first_call(answer) == ("bash", {"command": "bash record.sh 1 svc-005a=ab12cd"})


def test_a_step_that_is_cut_short_is_no_step() -> None:
    """An excerpt that ends within the list of what is needed is not taken for all of it."""
    excerpt = ("x", "t1.1 bash: step 1: need svc-005a (in node-005.log), svc-004b (in node…")
    assert first_call(make_agent().answer(make_prompt(excerpt)))[1] == {"command": "cat logs/node-005.log"}


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_messages_in_both_shapes(shape: Any) -> None:
    """The message that goes back has the calls as the provider of that shape wants them."""
    agent = ScriptedAgent(LogsSkill(), 1, Knobs(), shape)
    message = agent.answer(make_prompt()).message
    if shape == "openai":
        assert message["tool_calls"][0]["function"]["name"] == "bash"
    else:
        assert message["content"][1]["input"] == {"command": "cat logs/node-005.log"}


def test_after_a_rejection_it_looks_closely() -> None:
    """Where a fact was confused with its neighbour and rejected, the next look finds the right one."""
    log = LOG.replace("\n12:59", "\n12:02:07 WARN svc-005b lease holder=99ff99 ttl=4\n12:59", 1)
    prompt = [("cat logs/node-005.log", log), ("cat other", "filler " * 60_000)]
    for seed in range(40):
        agent = ScriptedAgent(LogsSkill(), seed, Knobs(careless=0, rot=1, notes=0))
        confused = first_call(agent.answer(make_prompt(*prompt)))
        if confused[1]["command"] == "bash record.sh 1 svc-005a=99ff99":
            break
    rejected = (confused[1]["command"], "step 1 rejected: svc-005a is not right\n")
    answer = agent.answer(make_prompt(*prompt, rejected))
    assert first_call(answer)[1]["command"] == "bash record.sh 1 svc-005a=ab12cd"
