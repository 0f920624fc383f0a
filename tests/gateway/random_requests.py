"""Requests that no client should send, a provider that says what none should, and what must hold all the same."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from elision.gateway.app import GatewayApp
from elision.gateway.routes import find_route
from elision.gateway.upstream import UpstreamError
from elision.gateway.wire import Headers
from elision.gateway.worker import Worker
from elision.providers.provider import Api
from elision.testing.recorded_run import RecordedReply
from elision.testing.request_rules import list_new_violations, list_violations
from tests.gateway import conversation_bytes
from tests.gateway.conversation_bytes import APIS, EAGER, LIST_FIELDS, PATHS, Json
from tests.gateway.loopback_gateway import make_settings
from tests.gateway.random_json import JsonWriter, iterate_requests

#: API keys, and the word that only the observations of each hold.
KEY_SECRETS = {"": "plover", "sk-one": "avocet", "sk-two": "dunlin"}
SESSION_IDS = ("", "", "", "s-1", "s-2", "../x", "s" * 300, "naïve")
STRINGS = ("", "user", "assistant", "tool", "system", "text", "tool_use", "tool_result", "function_call", "reasoning",
           "function_call_output", "thinking", "\x00", "\ud800", "é→😀", "a" * 5_000, "ephemeral", "call_1",
           "elision_recall", "t1.1")  # fmt: skip
NUMBERS = ("0", "-0.0", "1e400", "-1", "123456789012345678901234567890", "0.1", "9" * 400, "1E+2")
NAMES = ("role", "content", "type", "text", "tool_calls", "function", "arguments", "id", "tool_call_id", "tool_use_id",
         "call_id", "output", "input", "messages", "tools", "system", "instructions", "model", "stream", "name",
         "cache_control", "thinking", "context_management", "metadata", "x", "", "n", "is_error")  # fmt: skip


# -- requests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomRequest:
    """One request. key: of its client."""

    method: str
    path: bytes
    query: bytes
    headers: Headers
    body: bytes
    key: str
    api: Api | None


@dataclass(slots=True)
class RequestMaker:
    """Makes requests by chance."""

    chance: random.Random

    def make_request(self) -> RandomRequest:
        chance = self.chance
        api, key = chance.choice(APIS), chance.choice(list(KEY_SECRETS))
        stream = chance.random() < 0.4
        body = self._make_body(api, key, stream)
        headers = self._make_headers(key)
        if chance.random() < 0.05:
            headers.append((b"content-encoding", chance.choice((b"gzip", b"br", b"zstd, gzip", b"identity", b"\xff"))))
            body = gzip.compress(body, mtime=0) if chance.random() < 0.6 else body
        path = PATHS[api].encode()
        if chance.random() < 0.93:
            return RandomRequest(method="POST", path=path, query=b"", headers=headers, body=body, key=key, api=api)
        path = chance.choice((path + b"/", b"/openai" + path, b"/v1/%2e%2e/x", b"/", b"//", b"*", b"/v1/\xff", b"/x y",
                              b"/anthropic" + path, b"/healthz", b"/elision/%00",
                              b"/v1/messages/count_tokens"))  # fmt: skip
        method = chance.choice(("POST", "GET", "PUT", "HEAD", "OPTIONS", "DELETE", "TRACE", "PROPFIND"))
        query = chance.choice((b"", b"a=%7B&b", b"\xff", b"x" * 3_000))
        found = find_route(method, path, query, ())
        read = found.api if found is not None and found.kind == "complete" else None
        return RandomRequest(method=method, path=path, query=query, headers=headers, body=body, key=key, api=read)

    def _make_headers(self, key: str) -> Headers:
        chance = self.chance
        found: Headers = [(b"content-type", chance.choice((b"application/json", b"text/plain", b"", b"\xff")))]
        if key:
            found.append(chance.choice(((b"authorization", b"Bearer " + key.encode()), (b"x-api-key", key.encode()))))
        if session := chance.choice(SESSION_IDS):
            found.append((b"x-session-id", session.encode()))
        if chance.random() < 0.1:
            odd = (b"x-elision", b"anthropic-beta", b"accept-encoding", b"user-agent", b"expect", b"connection", b"te")
            found.append((chance.choice(odd), chance.choice((b"off", b"on", b"", b",,;q=", b"\xe9", b"x" * 2_000))))
        return found

    # -- bodies --------------------------------------------------------------------------------------------------------

    def _make_body(self, api: Api, key: str, stream: bool) -> bytes:
        way = self.chance.random()
        if way < 0.3:
            return self._make_conversation(api, key, stream)
        if way < 0.65:
            return self._make_wrong(api, key, stream)
        if way < 0.8:
            return self._break_bytes(
                self._make_conversation(api, key, stream) if self.chance.random() < 0.7 else self._pick_recorded(api)
            )
        if way < 0.9:
            writer = JsonWriter(self.chance, names=NAMES)
            return writer.write_whole(api, [writer.write_message() for _ in range(self.chance.randrange(6))])
        return self._make_junk()

    def _make_conversation(self, api: Api, key: str, stream: bool) -> bytes:
        """A conversation as it should be; the same tasks and calls under all keys, their observations are not."""
        steps, task = self.chance.randrange(9), f"Mend parser {self.chance.randrange(6)}."
        return conversation_bytes.make_body(api, steps, stream=stream, task=task, word=KEY_SECRETS[key], lines=14)

    def _pick_recorded(self, api: Api) -> bytes:
        return json.dumps(self.chance.choice(iterate_requests(api, 4))).encode()

    def _make_wrong(self, api: Api, key: str, stream: bool) -> bytes:
        """A conversation in which some values are others, gone, doubled or nested."""
        body = json.loads(self._make_conversation(api, key, stream))
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            self._spoil_body(body)
        text = json.dumps(body)
        if self.chance.random() < 0.1:
            name = self.chance.choice(("model", LIST_FIELDS[api], "tools", "stream", "x"))
            text = (
                f'{{"{name}": {self._make_value()}, {text[1:]}'
                if self.chance.random() < 0.5
                else (f'{text[:-1]}, "{name}": {self._make_value()}}}')
            )
        return text.replace('"@number@"', self.chance.choice(NUMBERS)).encode("utf-8", "surrogatepass")

    def _spoil_body(self, body: Json) -> None:
        at: Any = body
        for _ in range(self.chance.randrange(7)):
            inner = [each for each in (at.values() if isinstance(at, dict) else at) if isinstance(each, dict | list)]
            if not inner:
                break
            at = self.chance.choice(inner)
        if isinstance(at, dict):
            name = self.chance.choice([*at, *NAMES[:3]]) if self.chance.random() < 0.7 else self.chance.choice(NAMES)
            self._spoil_field(at, name)
        elif at:
            place = self.chance.randrange(len(at))
            if self.chance.random() < 0.3:
                at.insert(place, at[self.chance.randrange(len(at))])
            elif self.chance.random() < 0.5:
                del at[place]
            else:
                at[place] = json.loads(self._make_value())

    def _spoil_field(self, at: Json, name: str) -> None:
        way = self.chance.randrange(5)
        if way == 0:
            at.pop(name, None)
        elif way == 1:
            at[name] = [at.get(name)]
        elif way == 2:
            at[name] = {"type": at.get(name), "text": name}
        else:
            at[name] = json.loads(self._make_value())

    def _make_value(self, depth: int = 2) -> str:
        way = self.chance.randrange(9 if depth else 6)
        if way < 3:
            return json.dumps(self.chance.choice(STRINGS))
        if way < 5:
            return self.chance.choice(("null", "true", "false", "{}", "[]", '"@number@"', "7"))
        if way == 5:
            return "[" * 40 + "]" * 40
        if way == 6:
            return "[" + ", ".join(self._make_value(depth - 1) for _ in range(self.chance.randrange(4))) + "]"
        pairs = (f"{json.dumps(self.chance.choice(NAMES))}: {self._make_value(depth - 1)}" for _ in range(3))
        return "{" + ", ".join(pairs) + "}"

    def _break_bytes(self, raw: bytes) -> bytes:
        """Bytes flipped, left out, doubled, put in, or not to their end."""
        found = bytearray(raw)
        for _ in range(self.chance.choice((1, 1, 3, 20))):
            if not found:
                break
            start = self.chance.randrange(len(found))
            end = start + self.chance.choice((1, 2, 30, 500))
            way = self.chance.randrange(5)
            if way == 0:
                found[start] ^= 1 << self.chance.randrange(8)
            elif way == 1:
                del found[start:end]
            elif way == 2:
                found[start:start] = found[start:end]
            elif way == 3:
                found[start:start] = self.chance.choice(
                    (b'"', b"{", b"]", b"\\", b"\xff", b"\xed\xa0\x80", b"\x00", b",")
                )
            else:
                del found[start:]
        return bytes(found)

    def _make_junk(self) -> bytes:
        chance = self.chance
        return chance.choice((
            b"", b" ", b"null", b"[]", b'"x"', b"{", b"{}", b"[" * 100_000, b'{"messages":' * 5_000, b"\xef\xbb\xbf{}",
            b'{"messages": ' + b"[" * 2_000 + b"]" * 2_000 + b"}", '{"model": "m"}'.encode("utf-16"), b"\x00" * 100,
            b'{"input": "' + b"x" * 100_000 + b'"}', b'{"messages": [{}, {}, {}]}', b'{"input": [{}]}', b"1e999",
            b'{"messages": [' + b'{"role": "user", "content": ""},' * 3_000 + b"{}]}", chance.randbytes(300),
            b"{" + b",".join(b'"f%d": 1' % each for each in range(1_500)) + b"}",
        ))  # fmt: skip


# -- the provider ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FakeResponse:
    """An answer as `elision.gateway.upstream.UpstreamResponse` is one. cut: it breaks off behind its last chunk."""

    status: int
    headers: Headers
    parts: list[bytes]
    cut: bool = False

    def _find(self, name: bytes) -> str:
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == name), "")

    @property
    def content_type(self) -> str:
        return self._find(b"content-type")

    @property
    def content_encoding(self) -> str:
        return self._find(b"content-encoding")

    @property
    def is_event_stream(self) -> bool:
        return self.content_type.startswith("text/event-stream")

    async def iter_chunks(self) -> AsyncIterator[bytes]:
        while self.parts:
            yield self.parts.pop(0)
        if self.cut:
            raise UpstreamError("cut", "the provider closed the connection before its answer was complete")

    async def close(self) -> None:
        self.parts.clear()

    async def __aenter__(self) -> FakeResponse:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


@dataclass(slots=True)
class SeenRequest:
    """What the provider was asked for one request of a client, and how it answered. is_odd: not as a provider should;
    replies: what it said where it did."""

    bodies: list[bytes] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    replies: list[RecordedReply] = field(default_factory=list)
    is_odd: bool = False
    has_failed: bool = False


@dataclass(slots=True)
class RandomProvider:
    """In place of `Upstream`. seed: of what it says; handles: what it may ask for, if it is offered recall."""

    seed: int
    handles: Callable[[], list[str]]
    #: Of what is said to the request at hand: the same however it overtakes others, so that what is found can be found
    #: again.
    chance: random.Random = field(default_factory=random.Random)
    seen: dict[bytes, SeenRequest] = field(default_factory=dict)
    recalls: int = 0
    answers: int = 0
    #: Where it fails, refuses and says what none should: below so much, in this order.
    faults: tuple[float, float, float] = (0.02, 0.1, 0.2)
    #: Of its refusals, how many say that the prompt is too long.
    overflows: float = 0.3

    async def open(self, method: str, url: str, headers: Any, body: Any = b"") -> FakeResponse:
        raw = body if isinstance(body, bytes) else b"".join([part async for part in body])
        mark = dict(headers)[b"x-fuzz"]
        heard = self.seen.setdefault(mark, SeenRequest())
        heard.bodies.append(raw)
        await asyncio.sleep(0)
        self.chance.seed(f"{self.seed} {mark!r} {len(heard.bodies)}")
        way = self.chance.random()
        fails, refuses, odd = self.faults
        if way < fails:
            heard.has_failed = True
            raise UpstreamError("refused", "nothing listens there")
        if way < refuses:
            found = self._make_refusal(url)
        elif way < odd:
            found = self._make_odd_response(raw)
        else:
            self.answers += 1
            heard.replies.append(self._make_reply(raw))
            found = self._make_response(url, raw, heard.replies[-1])
        heard.is_odd |= refuses <= way < odd
        heard.has_failed |= found.cut
        heard.statuses.append(found.status)
        return found

    async def close(self) -> None:
        """Nothing is open."""

    def _make_refusal(self, url: str) -> FakeResponse:
        status = self.chance.choice((400, 400, 401, 413, 429, 500, 529))
        body = conversation_bytes.render_refusal(_find_api(url), status)
        if status == 400 and self.chance.random() < self.overflows:
            body = b'{"error": {"type": "x", "message": "prompt is too long: 900 tokens > 500 maximum"}}'
        return FakeResponse(status, [(b"content-type", b"application/json")], [body[:9], body[9:]])

    def _make_odd_response(self, raw: bytes) -> FakeResponse:
        kind = self.chance.choice((b"application/json", b"text/event-stream", b"text/html", b"\xff"))
        said = self.chance.choice((b"", b"{", b"data: {\n\n", b"\xff\x00", b"null", b"data: [DONE]\n\n", raw[:200]))
        coding = self.chance.choice((b"identity", b"gzip", b"br"))
        cut = self.chance.random() < 0.5
        return FakeResponse(200, [(b"content-type", kind), (b"content-encoding", coding)], [said], cut)

    def _make_reply(self, raw: bytes) -> RecordedReply:
        return (
            self._make_recall()
            if b"elision_recall" in raw and self.chance.random() < 0.6
            else conversation_bytes.make_reply()
        )

    def _make_response(self, url: str, raw: bytes, said: RecordedReply) -> FakeResponse:
        api = _find_api(url)
        if b'"stream" :  true' in raw or b'"stream": true' in raw or b'"stream":true' in raw:
            parts = conversation_bytes.render_frames(api, said, id=str(self.answers))
            return FakeResponse(200, [(b"content-type", b"text/event-stream")], parts)
        body = conversation_bytes.render_whole(api, said, id=str(self.answers))
        return FakeResponse(200, [(b"content-type", b"application/json")], [body[:50], body[50:]])

    def _make_recall(self) -> RecordedReply:
        self.recalls += 1
        handle = self.chance.choice([*self.handles(), "t1.1", "t2", "t99.1", "", "s:t1.1"])
        asked: list[tuple[str, str, Json]] = [(f"r{self.answers}", "elision_recall", {"handle": handle})]
        if self.chance.random() < 0.4:
            asked.append(
                (
                    f"s{self.answers}",
                    "elision_search",
                    {"query": self.chance.choice(("value line", "line", '"', "*", ""))},
                )
            )
        if self.chance.random() < 0.3:
            asked.append((f"b{self.answers}", "bash", {"command": "ls"}))
        return conversation_bytes.make_reply("I look.", asked)


def _find_api(url: str) -> Api:
    return next((api for api in APIS if PATHS[api].rpartition("/v1")[2] in url), "openai")


# -- the trial ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TrialReport:
    """What a trial came to. problems: what must not be, with the number of the request."""

    bodies: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    dispositions: Counter[str] = field(default_factory=Counter)
    edited: int = 0
    recalls: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = ", ".join(f"{how} {count:,}" for how, count in self.dispositions.most_common())
        return (
            f"{self.bodies:,} bodies ({told}), {self.edited:,} requests went out edited, {self.recalls:,} recalls, "
            f"{len(self.problems)} problems"
        )

    def __iadd__(self, other: TrialReport) -> TrialReport:
        self.bodies, self.edited, self.recalls = (
            self.bodies + other.bodies,
            self.edited + other.edited,
            self.recalls + other.recalls,
        )
        self.statuses += other.statuses
        self.dispositions += other.dispositions
        self.problems += other.problems
        return self


@dataclass(slots=True)
class AsgiResponse:
    """A client's answer, as ASGI messages."""

    messages: list[Any] = field(default_factory=list)

    @property
    def status(self) -> int:
        return next((each["status"] for each in self.messages if each["type"] == "http.response.start"), 0)

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.messages if each["type"] == "http.response.body")

    @property
    def is_complete(self) -> bool:
        return bool(self.messages) and not self.messages[-1].get("more_body", False) and len(self.messages) > 1


class GatewayTrial:
    """One gateway in this process, without sockets."""

    def __init__(self, seed: int, **given: Any) -> None:
        usual: dict[str, Any] = {"gateway_off": False, "strategy": EAGER}
        self._settings = make_settings("http://provider.invalid", **(usual | given))
        self.maker = RequestMaker(random.Random(seed))
        self.provider = self._make_provider(seed + 1)
        self.report = TrialReport()
        self._known: list[str] = []
        self.worker = self.start_worker()

    def _make_provider(self, seed: int) -> RandomProvider:
        return RandomProvider(seed, self._list_handles)

    def start_worker(self) -> Worker:
        """One process of the gateway."""
        worker = Worker(self._settings)
        worker.gateway.proxy.upstream = self.provider  # type: ignore[assignment]
        watch = worker.gateway.proxy._listener
        worker.gateway.proxy._listener = lambda served: (self.report.dispositions.update([served.how]), watch(served))[
            1
        ]
        return worker

    @property
    def app(self) -> GatewayApp:
        """What the next request is asked of."""
        return self.worker.app

    async def run(self, count: int, *, at_once: int = 8) -> TrialReport:
        async with self.watch_log() as log:
            for start in range(0, count, at_once):
                log.now = start
                await asyncio.gather(*(self._send_one(number) for number in range(start, min(count, start + at_once))))
        return self.report

    @asynccontextmanager
    async def watch_log(self) -> AsyncIterator[TracebackCollector]:
        """Failures that are logged meanwhile are problems; the gateway is closed at the end."""
        log = TracebackCollector()
        logging.getLogger("elision").addHandler(log)
        try:
            yield log
        finally:
            logging.getLogger("elision").removeHandler(log)
            await self.close()
        self.report.problems += log.found
        self.report.recalls = self.provider.recalls

    async def close(self) -> None:
        await self.worker.close()

    def _list_handles(self) -> list[str]:
        """Of sessions, whosesoever they are."""
        if self.provider.answers % 100 == 1 or not self._known:
            self._known = [f"{info.key}:t1.1" for info in self.worker.store.sessions()]
        return self._known

    async def _send_one(self, number: int) -> None:
        asked, mark = self.maker.make_request(), b"%d" % number
        await self.send_request(asked, mark)

    async def send_request(self, asked: RandomRequest, mark: bytes) -> tuple[AsgiResponse, SeenRequest]:
        """What the client gets for it, and what the provider heard."""
        got = await self._send_asgi(asked, mark)
        heard = self.provider.seen.pop(mark, SeenRequest())
        self.report.bodies += 1
        self.report.statuses[got.status] += 1
        self.report.problems += [f"request {mark.decode()}: {each}" for each in self._find_problems(asked, heard, got)]
        return got, heard

    async def _send_asgi(self, asked: RandomRequest, mark: bytes) -> AsgiResponse:
        sent, got = [{"type": "http.request", "body": asked.body, "more_body": False}], AsgiResponse()
        over = asyncio.Event()

        async def receive() -> Any:
            if sent:
                return sent.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            got.messages.append(message)

        scope = {
            "type": "http", "method": asked.method, "path": asked.path.decode("utf-8", "replace"),
            "raw_path": asked.path, "query_string": asked.query, "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"x"), (b"x-fuzz", mark), *asked.headers,
                        (b"content-length", str(len(asked.body)).encode())],
            "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 1), "root_path": "",
        }  # fmt: skip
        await self.app(scope, receive, send)
        over.set()
        return got

    def _find_problems(self, asked: RandomRequest, heard: SeenRequest, got: AsgiResponse) -> list[str]:
        found = []
        starts = sum(each["type"] == "http.response.start" for each in got.messages)
        if starts != 1 or not (got.is_complete or heard.has_failed or heard.is_odd):
            found.append(f"no whole answer: {starts} starts, status {got.status}")
        if got.status >= 500 and got.status not in heard.statuses and not (heard.has_failed or heard.is_odd):
            found.append(f"a {got.status} of our own: {got.body[:200]!r}")
        if asked.api is not None and not heard.is_odd and not heard.has_failed:
            found += _is_unreadable(got)
        for raw in heard.bodies:
            if raw != asked.body:
                self.report.edited += 1
                found += _is_spoilt(asked, raw)
        others = [word for key, word in KEY_SECRETS.items() if key != asked.key]
        for raw in (*heard.bodies, got.body):
            found += [f"leaks {word}" for word in others if word.encode() in raw and word.encode() not in asked.body]
        return found


def _is_unreadable(got: AsgiResponse) -> list[str]:
    """What a client cannot read of an answer to a sound one of the provider."""
    if b"data: " not in got.body[:200]:
        return [] if _load_json(got.body) is not None or not got.body else [f"no JSON: {got.body[:100]!r}"]
    lines = [line[6:] for line in got.body.split(b"\n") if line.startswith(b"data: ") and line != b"data: [DONE]"]
    return [f"no event: {line[:100]!r}" for line in lines if _load_json(line) is None]


def _is_spoilt(asked: RandomRequest, raw: bytes) -> list[str]:
    """What is wrong with a body that is not the client's own."""
    after = _load_json(raw)
    before = _load_json(gzip.decompress(asked.body) if asked.body[:2] == b"\x1f\x8b" else asked.body)
    if asked.api is None or not isinstance(before, dict) or not isinstance(after, dict):
        return [f"what is no request was edited: {asked.body[:100]!r} -> {raw[:100]!r}"]
    # What is wrong already may be wrong in another way where it stands now.
    known = {each.subject for each in list_violations(asked.api, before) if each.subject}
    # The last message may be empty. That a model calls a tool right behind it happens only here.
    last = (before.get("messages") or [None])[-1]
    is_empty = isinstance(last, dict) and not last.get("content")
    allowed = {"messages-have-content"} if is_empty else set()
    return [
        f"introduces {each}"
        for each in list_new_violations(asked.api, before, after)
        if each.subject not in known and each.rule not in allowed
    ]


def _load_json(raw: bytes) -> Any:
    # What no encoding allows may stand where nobody reads it, and passes.
    try:
        return json.loads(raw.decode("utf-8", "surrogateescape"), parse_int=float)
    except (ValueError, RecursionError):
        return None


class TracebackCollector(logging.Handler):
    """Failures of ours that were logged. now: the first of the requests at hand."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []
        self.now = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info or "Traceback" in text:
            why = logging.Formatter().formatException(record.exc_info) if record.exc_info else text
            self.found.append(f"request {self.now}...: {text}\n{why[-3000:]}")
