"""Print the walk of a call's messages: the files they visit, and the names they bear there.

    python tools/trace_walk.py            of `ContextManager.prepare`, and of a request through the gateway
    python tools/trace_walk.py --names    with each name and its function

A marker in the newest message is looked for in the arguments of every function of Elision that is called: in text,
bytes and containers, not in objects that keep them. Each argument of a function that holds it is a name. Comprehensions
and lambdas are no functions here: Python 3.12 runs comprehensions in the function that holds them.
"""

from __future__ import annotations

import inspect
import json
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, Final

import elision
from elision import ContextManager
from elision.gateway.server import GatewayThread
from elision.gateway.settings import gateway_settings

MARKER: Final = "the-marker-of-the-walk"
ROOT: Final = str(Path(elision.__file__).parent)
#: How deep containers are searched.
DEPTH: Final = 5
#: Turns before the call that is traced.
TURNS: Final = 30
#: Seconds in which an idle gateway does once whatever it does every second.
IDLE: Final = 1.3
#: Seconds without a call after which a request is over in every thread of the gateway: of those before, and of the one
#: that is traced.
PAUSE: Final = 0.08
QUIET: Final = 0.4


@dataclass
class Walk:
    """What was seen of one call. names: (file, function, argument). functions: the calls of each (file, function)."""

    names: set[tuple[str, str, str]] = field(default_factory=set)
    functions: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def files(self) -> set[str]:
        """The files whose functions ran."""
        return {file for file, _ in self.functions}

    def count_call(self, frame: FrameType, event: str, _: Any) -> bool:
        """Count a call, and return whether it was one: a profile function of `sys.setprofile`."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or code.co_name.startswith("<"):
            return False
        self.functions[code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname] += 1
        return True

    def watch_call(self, frame: FrameType, event: str, value: Any) -> None:
        """Count a call, and note the names of the message: a profile function of `sys.setprofile`."""
        if not self.count_call(frame, event, value):
            return
        code = frame.f_code
        file = code.co_filename.removeprefix(f"{ROOT}/")
        values = inspect.getargvalues(frame)
        for name in values.args:
            # A generator that goes on is called again, and may have let go of an argument.
            if name not in ("self", "cls") and holds_marker(values.locals.get(name)):
                self.names.add((file, code.co_qualname, name))

    def print_summary(self, what: str, *, with_names: bool) -> None:
        """Print how long the walk was."""
        files = {file for file, _, _ in self.names}
        words = {name for _, _, name in self.names}
        print(f"{what}: {len(files)} files, {len(self.names)} names, {len(words)} different words")
        if with_names:
            for file, function, name in sorted(self.names):
                print(f"  {file}  {function}({name})")


def holds_marker(value: Any, depth: int = DEPTH) -> bool:
    """Return whether `value` holds the newest message."""
    if isinstance(value, str):
        return MARKER in value
    if isinstance(value, bytes | bytearray):
        return MARKER.encode() in value
    if depth == 0 or isinstance(value, type) or callable(value):
        return False
    if isinstance(value, dict):
        return any(holds_marker(each, depth - 1) for each in value.values())
    if isinstance(value, list | tuple):
        return any(holds_marker(each, depth - 1) for each in value[-3:])
    return False


def make_messages(turns: int) -> list[dict[str, Any]]:
    """Return a conversation of `turns` turns in OpenAI's shape; the result of turn TURNS holds the marker."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You fix bugs."},
        {"role": "user", "content": "Fix the parser."},
    ]
    for index in range(turns):
        messages.append(make_answer(index))
        lines = "\n".join(f"line {line} of result {index}: value {line * index}" for line in range(60))
        if index == TURNS - 1:
            lines += f"\n{MARKER}"
        messages.append({"role": "tool", "tool_call_id": f"c{index}", "content": lines})
    return messages


def make_answer(index: int) -> dict[str, Any]:
    """Return what the model says in a turn."""
    call = {"id": f"c{index}", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "make"}'}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def trace_prepare() -> Walk:
    """Return the walk of the messages of one prepared call."""
    walk = Walk()
    with ContextManager(strategy="masking(window=5)", store="memory:", model="gpt-5.2") as context:
        for turns in range(1, TURNS):
            context.prepare(list(make_messages(turns)))
        messages = make_messages(TURNS)
        sys.setprofile(walk.watch_call)
        try:
            context.prepare(messages)
        finally:
            sys.setprofile(None)
    return walk


class _Provider(BaseHTTPRequestHandler):
    """Answers every request with the call that its client sends back in the next one."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        answered = sum(message["role"] == "assistant" for message in json.loads(raw)["messages"])
        choice = {"index": 0, "message": make_answer(answered), "finish_reason": "tool_calls"}
        # Four characters a token.
        tokens = len(raw) // 4
        usage = {"prompt_tokens": tokens, "completion_tokens": 12, "total_tokens": tokens + 12}
        body = json.dumps({"id": "r", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Print nothing."""


def trace_request() -> Walk:
    """Return the walk of one request through a gateway on loopback, without what an idle gateway runs every second."""
    before, idle, walk = Walk(), Walk(), Walk()
    note: Callable[[FrameType, str, Any], object] = before.count_call

    def watch(frame: FrameType, event: str, value: Any) -> None:
        note(frame, event, value)

    provider = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    upstream = f"http://127.0.0.1:{provider.server_port}"
    threading.setprofile(watch)
    settings = gateway_settings(
        gateway_port=0, store="memory:", strategy="masking(window=5)", gateway_upstream_openai=upstream
    )
    try:
        with GatewayThread(settings) as gateway:
            for turns in range(1, TURNS):
                _post(gateway.url, make_messages(turns))
                # As an agent would, whose tools take longer than the gateway takes to record the response.
                wait_until_quiet(before, PAUSE)
            wait_until_quiet(before, QUIET)
            note = idle.count_call
            time.sleep(IDLE)
            note = walk.watch_call
            _post(gateway.url, make_messages(TURNS))
            wait_until_quiet(walk, QUIET)
            note = before.count_call
    finally:
        threading.setprofile(None)
        provider.shutdown()
        provider.server_close()
    for function in idle.functions:
        del walk.functions[function]
    return walk


def wait_until_quiet(walk: Walk, seconds: float) -> None:
    """Wait until no thread calls anything for `seconds`: a gateway records a response after it has relayed it."""
    seen = -1
    while (calls := walk.functions.total()) != seen:
        seen = calls
        time.sleep(seconds)


def _post(url: str, messages: list[dict[str, Any]]) -> None:
    body = json.dumps({"model": "gpt-5.2", "messages": messages}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        answer.read()


def main(arguments: list[str]) -> None:
    """Print both walks."""
    with_names = "--names" in arguments
    walks: list[tuple[str, Callable[[], Walk]]] = [("prepare", trace_prepare), ("a request", trace_request)]
    for what, trace in walks:
        trace().print_summary(what, with_names=with_names)


if __name__ == "__main__":
    main(sys.argv[1:])
