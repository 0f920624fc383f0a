"""LiteLLM and mini-swe-agent, told what to do line by line: run by an environment that has them and not Elision.

A line in is a JSON object `{"do": NAME, ...arguments}`, a line out `{"got": ...}` or `{"error": "..."}`. One process
serves every test of a session, since importing LiteLLM takes ten seconds. It connects to loopback and nowhere else.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def _near(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: names are not looked up and connections not made beyond this machine."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    told = host.decode() if isinstance(host, bytes) else str(host)
    if told not in ("localhost", "::1", "None") and not told.startswith("127."):
        _left.append(told)
        raise OSError(f"not loopback: {told}")


_left: list[str] = []
sys.addaudithook(_near)

import litellm  # noqa: E402 - behind the hook
from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.config import get_config_from_spec  # noqa: E402
from minisweagent.environments.local import LocalEnvironment  # noqa: E402
from minisweagent.models.litellm_model import LitellmModel  # noqa: E402
from minisweagent.models.litellm_response_model import LitellmResponseModel  # noqa: E402
from minisweagent.utils.serialize import recursive_merge  # noqa: E402

_loop = asyncio.new_event_loop()


def completion(**arguments: Any) -> Json:
    """Sync; streamed where the arguments say so, and then put together by LiteLLM itself."""
    answer = litellm.completion(**arguments)
    return _whole(list(answer)) if arguments.get("stream") else answer.model_dump(mode="json")


def acompletion(**arguments: Any) -> Json:
    """The same, async."""
    return _loop.run_until_complete(_acompletion(arguments))


def at_once(jobs: list[Json]) -> list[Json]:
    """Several async completions at the same time."""

    async def every() -> list[Json]:
        return list(await asyncio.gather(*map(_acompletion, jobs)))

    return _loop.run_until_complete(every())


async def _acompletion(arguments: Json) -> Json:
    answer = await litellm.acompletion(**arguments)
    if not arguments.get("stream"):
        return answer.model_dump(mode="json")
    return _whole([chunk async for chunk in answer])


def _whole(chunks: list[Any]) -> Json:
    return litellm.stream_chunk_builder(chunks).model_dump(mode="json")


def responses(**arguments: Any) -> Json:
    """OpenAI Responses; of a stream the answer in its last event."""
    answer = litellm.responses(**arguments)
    if arguments.get("stream"):
        answer = [event for event in answer if event.type == "response.completed"][-1].response
    return answer.model_dump(mode="json", exclude_none=True)


def messages(**arguments: Any) -> Json:
    """Anthropic's own shape, in and out."""
    return dict(_loop.run_until_complete(litellm.anthropic.messages.acreate(**arguments)))


class Recorded(LocalEnvironment):
    """Every command prints what it printed in the recording; behind the last output the task is handed in."""

    def __init__(self, outputs: list[str]) -> None:
        super().__init__()
        self._outputs = iter(outputs)

    def execute(self, action: Json, cwd: str = "", *, timeout: int | None = None) -> Json:
        output = {"output": next(self._outputs), "returncode": 0, "exception_info": ""}
        self._check_finished(output)
        return output


def mini(
    model: Json,
    agent: Json,
    task: str,
    outputs: list[str] | None = None,
    environment: Json | None = None,
    responses: bool = False,
    save: str = "",
    instance: str = "",
) -> Json:
    """A whole run of mini-swe-agent, in a recording's environment or in a real shell; how it ended.

    save: the trajectory's file, saved as the program's batch mode saves that of `instance`.
    """
    made = (LitellmResponseModel if responses else LitellmModel)(**model)
    shell = Recorded(outputs) if outputs is not None else LocalEnvironment(**(environment or {}))
    worker = DefaultAgent(made, shell, **agent)
    ending = worker.run(task)
    if save:
        worker.save(Path(save), {"info": ending, "instance_id": instance})
    return {"ending": ending, "calls": worker.n_calls, "messages": len(worker.messages)}


def mini_config(specs: list[str]) -> Json:
    """The configuration of mini-swe-agent out of these files, merged as its own programs do."""
    return dict(recursive_merge(*[get_config_from_spec(spec) for spec in specs]))


def left() -> list[str]:
    """Hosts beyond this machine that something here wanted to reach."""
    return _left


DO: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (completion, acompletion, at_once, responses, messages, mini, mini_config, left)
}


def _answers(lines: Iterator[str]) -> Iterator[Json]:
    for line in lines:
        job = json.loads(line)
        try:
            yield {"got": DO[job.pop("do")](**job)}
        except Exception:  # noqa: BLE001 - whatever failed is told to the test that asked
            yield {"error": traceback.format_exc()}
        gc.collect()


def main() -> None:
    """Serve until stdin ends. What libraries print goes to stderr, so that stdout is answers only."""
    # LiteLLM leaves streams half read, in cycles. Where they are collected while httpcore holds its pool's lock, which
    # closing one takes again, the process stands still for good.
    gc.disable()
    # What was imported stays: to look through all of it took most of an answer's time.
    gc.freeze()
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for answer in _answers(iter(sys.stdin)):
        print(json.dumps(answer), file=said, flush=True)


if __name__ == "__main__":
    main()
