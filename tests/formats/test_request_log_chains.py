"""Logs of requests, a line each, that tell one conversation further and further."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from elision.formats.registry import read_runs
from elision.lab.hindsight import find_cheapest_plan
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory


def _chat(steps: int, task: str = "Count.") -> list[dict[str, Any]]:
    """A conversation of `steps` answered calls."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": task}]
    for step in range(1, steps + 1):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "count", "arguments": f'{{"to": {step}}}'}}
        messages.append({"role": "assistant", "content": f"step {step}", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": f"{step} counted"})
    return messages


def _request(steps: int, task: str = "Count.") -> dict[str, Any]:
    """The request after `steps` steps, with the response that it got."""
    answer = _chat(steps + 1, task)[-2]
    usage = {"prompt_tokens": 100 * (steps + 1), "completion_tokens": 5, "total_tokens": 100 * (steps + 1) + 5}
    response = {"object": "chat.completion", "model": "gpt-5", "choices": [{"index": 0, "message": answer}]}
    return {"request": {"messages": _chat(steps, task)}, "response": {**response, "usage": usage}}


def _runs(tmp_path: Path, records: list[dict[str, Any]]) -> list[Trajectory]:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return [found for found in read_runs(path) if isinstance(found, Trajectory)]


def test_requests_of_one_conversation_are_one_run(tmp_path: Path) -> None:
    """Six requests are six calls of one run, each with the usage that its own record stated."""
    (run,) = _runs(tmp_path, [_request(steps) for steps in range(6)])
    assert len(run.turns) == 6
    assert [turn.usage.prompt if turn.usage else None for turn in run.turns] == [100, 200, 300, 400, 500, 600]


def test_one_request_is_one_model_s(tmp_path: Path) -> None:
    """A request with its response states the model once; all its calls are that model's, so a yardstick exists."""
    (run,) = _runs(tmp_path, [_request(5)])
    assert {turn.model for turn in run.turns} == {"gpt-5"}
    assert (
        find_cheapest_plan(run, parse_strategy("masking"), find_price_set("openai"), Sizer(make_counter("o200k")))
        is not None
    )


def test_each_record_keeps_the_model_that_answered(tmp_path: Path) -> None:
    """Where the model changed within a run, each call is of the model that its own record names."""
    records = [_request(steps) for steps in range(4)]
    for record in records[2:]:
        record["response"]["model"] = "gpt-5-mini"
    (run,) = _runs(tmp_path, records)
    assert [turn.model for turn in run.turns] == ["gpt-5", "gpt-5", "gpt-5-mini", "gpt-5-mini"]


def test_interleaved_conversations_are_kept_apart(tmp_path: Path) -> None:
    """Two agents in one log are two runs, whatever the order of their lines."""
    lines = [_request(steps, task) for steps in range(4) for task in ("Count.", "Count sheep.")]
    runs = _runs(tmp_path, lines)
    assert sorted(run.head.messages[-1].text for run in runs) == ["Count sheep.", "Count."]
    assert [len(run.turns) for run in runs] == [4, 4]


def test_a_fork_is_a_run_of_its_own(tmp_path: Path) -> None:
    """What shares a beginning and then differs continues nothing."""
    other = _chat(3)
    other[-1] = {**other[-1], "content": "another result"}
    other.append({"role": "assistant", "content": "done"})
    assert len(_runs(tmp_path, [{"messages": [*_chat(3), _chat(4)[-2]]}, {"messages": other}])) == 2


def test_conversations_that_share_only_the_prompt_stay_apart(tmp_path: Path) -> None:
    """A common system prompt and task make no continuation."""
    records = [{"messages": [*_chat(0), {"role": "assistant", "content": text}]} for text in ("one", "two")]
    assert len(_runs(tmp_path, records)) == 2


def _goes_on(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*messages, {"role": "assistant", "content": "done"}]


def _image(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _tool(description: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "count", "description": description, "parameters": {}}, **fields}


def test_a_fork_in_the_last_result_is_a_run_of_its_own(tmp_path: Path) -> None:
    """A conversation that ends with a result is continued only by one that got the same result."""
    other = [*_chat(3)[:-1], {**_chat(3)[-1], "content": "another result"}]
    assert len(_runs(tmp_path, [{"messages": other}, {"messages": _goes_on(_chat(3))}])) == 2


def test_a_fork_in_the_last_words_of_the_user_is_a_run_of_its_own(tmp_path: Path) -> None:
    """What the user said behind the last result is part of what must go on."""
    asked, told = ([*_chat(2), {"role": "user", "content": words}] for words in ("Why?", "Stop."))
    assert len(_runs(tmp_path, [{"messages": asked}, {"messages": _goes_on(told)}])) == 2


def test_results_so_far_go_on_with_more_of_them(tmp_path: Path) -> None:
    """A conversation that ends with some of the results, or all and a word, is continued by the one that holds them."""
    parallel = _chat(1)
    parallel[2] = {**parallel[2], "tool_calls": [{**parallel[2]["tool_calls"][0], "id": id} for id in ("c1", "c2")]}
    some, every = parallel, [*parallel, {"role": "tool", "tool_call_id": "c2", "content": "2 counted"}]
    said = [*every, {"role": "user", "content": "Go on."}]
    for ended in (some, every, said):
        assert len(_runs(tmp_path, [{"messages": ended}, {"messages": _goes_on(said)}])) == 1


def test_two_forks_are_each_continued_by_their_own(tmp_path: Path) -> None:
    """Two runs that differ in the last result alone, each told further, are two runs."""
    one = _chat(3)
    two = [*one[:-1], {**one[-1], "content": "another result"}]
    records = [{"messages": messages} for messages in (one, two, _goes_on(two), _goes_on(one))]
    assert [len(run.turns) for run in _runs(tmp_path, records)] == [4, 4]


def test_other_tools_are_another_run(tmp_path: Path) -> None:
    """As many tools are not the same tools; a cache marker on one changes nothing."""
    first = {"messages": _chat(2), "tools": [_tool("Counts.")]}
    then = {"messages": _goes_on(_chat(2))}
    assert len(_runs(tmp_path, [first, {**then, "tools": [_tool("Counts sheep.")]}])) == 2
    marked = _tool("Counts.", cache_control={"type": "ephemeral"})
    assert len(_runs(tmp_path, [first, {**then, "tools": [marked]}])) == 1


def test_tools_nested_too_deeply_to_compare_keep_runs_apart(tmp_path: Path) -> None:
    """What cannot be compared is not taken for equal, and refuses no file."""
    deep: dict[str, Any] = {}
    for _ in range(450):
        deep = {"items": [deep]}
    records = [{"messages": messages, "tools": [_tool("Counts.", deep=deep)]} for messages in (_chat(2), _chat(3))]
    assert len(_runs(tmp_path, records)) == 2


def test_other_images_are_another_run(tmp_path: Path) -> None:
    """Messages and results that differ in an image alone are different; a cache marker on one changes nothing."""

    def task(image: dict[str, Any]) -> list[dict[str, Any]]:
        start = {"role": "user", "content": [{"type": "text", "text": "Count."}, image]}
        return [start, *_chat(2)[2:]]

    def result(image: dict[str, Any]) -> list[dict[str, Any]]:
        return [*_chat(2)[:-1], {**_chat(2)[-1], "content": [{"type": "text", "text": "seen"}, image]}]

    for told in (task, result):
        for image, count in ((_image("BBBB"), 2), ({**_image("AAAA"), "cache_control": {"type": "ephemeral"}}, 1)):
            records = [{"messages": told(_image("AAAA"))}, {"messages": _goes_on(told(image))}]
            assert len(_runs(tmp_path, records)) == count


def test_sealed_reasoning_that_a_client_leaves_out_makes_no_fork(tmp_path: Path) -> None:
    """Clients may send earlier thinking back or not: what was said and done is the same."""
    thought = {"type": "redacted_thinking", "data": "c2VhbGVk"}
    call = {"type": "tool_use", "id": "t1", "name": "count", "input": {"to": 1}}
    start = {"role": "user", "content": "Count."}
    shorter = [start, {"role": "assistant", "content": [thought, call]}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "1 counted"}
    longer = [start, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    assert len(_runs(tmp_path, [{"messages": shorter}, {"messages": _goes_on(longer)}])) == 1
