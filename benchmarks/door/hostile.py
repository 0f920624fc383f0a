"""Clients that ask too much of a gateway, one kind at a time, from a process of their own.

    python -m benchmarks.door.hostile PORT CASE SECONDS        prints how many requests were answered

Each kind is a request that costs a reader more than its sender. Two connections send it again and again until the time
is over; what is under way then is brought to its end.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import Final

PATH: Final = "/v1/chat/completions"
MODEL: Final = "gpt-4.1"
MB: Final = 1_000_000
#: Marks a request that the scripted provider answers with eight megabytes.
HUGE: Final = b'"user":"huge answer"'
#: Seconds that one request may take.
PATIENCE: Final = 120.0
CONNECTIONS: Final = 2
#: Uploads at a time that send a byte now and then.
SLOW: Final = 100
ROOT: Final = Path(__file__).parents[2]
#: Of a file that does not change, so that figures can be compared.
_WORDS: Final = (ROOT / "LICENSE").read_text()

#: Makes the bodies of one connection, one after another.
Bodies = Callable[[int], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request. bodies: of connection `number`. headers: beside the usual ones. options: of the gateway."""

    name: str
    bodies: Bodies
    headers: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()


def english(size: int) -> str:
    return (_WORDS * (size // len(_WORDS) + 1))[:size]


def opaque(size: int) -> str:
    return base64.b64encode(random.Random(1).randbytes(size * 3 // 4)).decode()


def request(messages: object, **fields: object) -> bytes:
    return json.dumps({"model": MODEL, "messages": messages, **fields}, separators=(",", ":")).encode()


def one(text: str, role: str = "user") -> bytes:
    last = [] if role == "user" else [{"role": "user", "content": "Go on."}]
    return request([{"role": role, "content": text}, *last])


def again(make: Callable[[], bytes]) -> Bodies:
    """The same body each time, told apart by a number, so that no cache knows it."""

    def bodies(number: int) -> Iterator[bytes]:
        body = make()
        for turn in count():
            yield body.replace(b'"content":"', b'"content":"%d-%d ' % (number, turn), 1)

    return bodies


def doubled_keys() -> bytes:
    doubles = b",".join(b'"a":%d' % (place % 9) for place in range(900))
    return b'{"model":"%b","messages":[{"role":"user","content":"hi"}],"metadata":{"x":"%b"},%b}' % (
        MODEL.encode(),
        b"x" * (30 * MB),
        doubles,
    )


def nested(size: int) -> bytes:
    depth = size // 2
    return b'{"model":"%b","messages":[{"role":"user","content":"","x":%b%b}]}' % (
        MODEL.encode(),
        b"[" * depth,
        b"]" * depth,
    )


def dense(size: int) -> bytes:
    return b'{"model":"%b","messages":[{"role":"user","content":"","x":[%b[]]}]}' % (
        MODEL.encode(),
        b"[]," * (size // 3),
    )


def small_messages(size: int) -> bytes:
    return b'{"model":"%b","messages":[%b{"role":"user","content":"x"}]}' % (
        MODEL.encode(),
        b'{"role":"user","content":"x"},' * (size // 30),
    )


def huge_answer() -> bytes:
    return b"{%b,%b" % (HUGE, one("Tell me all of it.")[1:])


def running_session(size: int, most: int) -> Bodies:
    """A session whose every turn brings a tool result of that size; a new one behind `most` turns."""

    def bodies(number: int) -> Iterator[bytes]:
        for session in count():
            messages: list[dict[str, object]] = [{"role": "user", "content": f"Task {number}-{session}."}]
            for turn in range(most):
                name = f"call_{turn}"
                call = {"id": name, "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
                text = f"{number}-{session}-{turn} {english(size)}"
                messages += [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": name, "content": text},
                ]
                yield request(messages)

    return bodies


CASES: Final = {
    case.name: case
    for case in (
        Case("900 doubled keys, 30 MB", again(doubled_keys)),
        Case("one message, 1 MB English", again(lambda: one(english(MB)))),
        Case("one message, 5 MB English", again(lambda: one(english(5 * MB)))),
        Case("one message, 30 MB English", again(lambda: one(english(30 * MB)))),
        Case("one message, 5 MB base64", again(lambda: one(opaque(5 * MB)))),
        Case("one message, 5 MB white space", again(lambda: one(" " * (5 * MB)))),
        Case("system prompt, 30 MB English", again(lambda: one(english(30 * MB), "system"))),
        Case("small messages, 8 MB of them", again(lambda: small_messages(8 * MB))),
        Case("empty lists in a message, 8 MB", again(lambda: dense(8 * MB))),
        Case("lists in lists, 1 MB", again(lambda: nested(MB))),
        Case("a session, 1 MB a tool result", running_session(MB, 20)),
        Case(
            "a session of 2 MB, background summary",
            running_session(60_000, 40),
            options=("--strategy", "summarization(every=10, tail=5, schedule=every-turn)"),
        ),
        Case("answers of 8 MB", again(huge_answer)),
        Case(
            "30 MB English, compressed",
            lambda number: iter(lambda: gzip.compress(one(english(30 * MB)), 1), b""),
            headers=(("content-encoding", "gzip"),),
        ),
    )
}
SLOW_UPLOADS: Final = f"{SLOW} slow uploads of no stated length"


def send_bodies(port: int, case: Case, number: int, end: float) -> int:
    """Send the case's requests until `end` (monotonic seconds); how many were answered."""
    answered = 0
    headers = {"content-type": "application/json", "authorization": f"Bearer sk-hostile-{number}", **dict(case.headers)}
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    for body in case.bodies(number):
        if time.monotonic() >= end:
            break
        try:
            connection.request("POST", PATH, body, headers)
            connection.getresponse().read()
            answered += 1
        except (OSError, HTTPException):
            connection.close()
    connection.close()
    return answered


def drip_uploads(port: int, end: float) -> int:
    """Chunked uploads that send a kilobyte a second each; none of them is ever complete."""
    head = f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    open_ones = [socket.create_connection(("127.0.0.1", port)) for _ in range(SLOW)]
    for each in open_ones:
        each.sendall(head)
    while time.monotonic() < end:
        for each in open_ones:
            each.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
        time.sleep(1.0)
    for each in open_ones:
        each.close()
    return 0


def main(port: int, name: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    if name == SLOW_UPLOADS:
        print(drip_uploads(port, end))
        return
    answered: list[int] = []
    threads = [
        threading.Thread(target=lambda number=number: answered.append(send_bodies(port, CASES[name], number, end)))
        for number in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(answered))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
