"""A scripted Gemini on loopback: it answers what the script says, and checks each request as Google would."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from elision.testing.request_checks import find_problems

Json = dict[str, Any]
KEY = "a-key-of-google"


@dataclass
class GeminiProvider:
    """script: the parts of each answer, in order. requests: what arrived; problems: what Google would refuse of it."""

    script: list[list[Json]]
    requests: list[Json] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, key: str | None, body: Json) -> Json:
        """Return the response to one request."""
        self.requests.append(body)
        self.paths.append(path)
        if key != KEY:
            self.problems.append(f"key {key!r}")
        if ":countTokens" in path:
            return {"totalTokens": 7}
        model = path.partition("/models/")[2].partition(":")[0]
        self.problems += find_problems("gemini", {**body, "model": model})
        parts = self.script.pop(0)
        return {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 10, "totalTokenCount": 1010},
            "modelVersion": model,
            "responseId": f"r{len(self.requests)}",
        }


def split_response(response: Json) -> Iterator[Json]:
    """Yield the chunks of a response: one for each part, the ending with the last."""
    candidate = response["candidates"][0]
    parts = candidate["content"]["parts"]
    for place, part in enumerate(parts):
        chunk = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if place == len(parts) - 1:
            chunk["finishReason"] = candidate["finishReason"]
        yield {**response, "candidates": [chunk]}


@contextmanager
def run_gemini(script: Sequence[list[Json]]) -> Iterator[GeminiProvider]:
    """Serve the answers of `script` until the end of the block."""
    provider = GeminiProvider(script=list(script))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            response = provider.answer(self.path, self.headers["x-goog-api-key"], json.loads(raw))
            if "alt=sse" in self.path:
                chunks = [f"data: {json.dumps(each)}\r\n\r\n" for each in split_response(response)]
                body, kind = "".join(chunks).encode(), "text/event-stream"
            else:
                body, kind = json.dumps(response).encode(), "application/json"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    provider.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
