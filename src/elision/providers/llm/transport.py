"""One JSON request over HTTP, with limits of time and size. The only file that imports urllib3.

urllib3 and not a provider's package: four shapes of request need no client of their own, and one sync client serves
sync callers and, in a thread, async ones.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from elision.errors import MissingExtra, SpecError
from elision.providers.llm.answers import EndpointFault, parse_refusal
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.redact import format_mark

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

#: Bytes of an answer that are read; a summary of 8,000 tokens with its reasoning is below a tenth of it.
LARGEST = 2_000_000
_CHUNK = 65_536
_TELLING = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)
#: Seconds to reach a server.
_CONNECT = 10.0


class Transport:
    """Posts JSON to `url` and reads JSON; keeps its connections. Several threads may use it.

    headers: of each request, keys included; no repr shows them. proxy: URL of an HTTP proxy, "" for none.
    Redirects are not followed: a key is for the host it was given for.
    Raises MissingExtra without urllib3, and SpecError if `url` is not an HTTP URL.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, proxy: str = "", largest: int = LARGEST) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError(f"{url!r} is not a base URL; give one like https://api.openai.com/v1")
        self.url = url
        self.largest = largest
        self._secrets: list[str] = []
        for name, value in headers.items():
            if _TELLING.search(name):
                # "Bearer KEY": the key is the last word.
                self._secrets += value.split()[-1:]
        self._headers = {"content-type": "application/json", "accept": "application/json", **headers}
        self._pool = _make_pool(proxy)

    def __repr__(self) -> str:
        return f"Transport({self.url!r})"

    def post_json(self, body: Mapping[str, Any], seconds: float) -> Mapping[str, Any] | EndpointFault:
        """Return the answer to `body`, a JSON object, within `seconds` (at most twice that where a server drips)."""
        import urllib3

        ends = time.monotonic() + seconds
        timeout = urllib3.Timeout(connect=min(_CONNECT, seconds), read=seconds)
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            response = self._pool.request(
                "POST",
                self.url,
                body=data,
                headers=self._headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                return self._read_response(response, ends)
            finally:
                # A response read to its end is in the pool already; the rest of a huge one is dropped.
                response.close()
        except urllib3.exceptions.NewConnectionError as error:
            # urllib3 derives it from its timeout error for the sake of old callers.
            return EndpointFault(cause="connection", reason=f"nobody answers there ({type(error).__name__})")
        except urllib3.exceptions.TimeoutError as error:
            return EndpointFault(cause="timeout", reason=f"no answer within {seconds:.3g} s ({type(error).__name__})")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return EndpointFault(cause="connection", reason=f"the connection failed ({type(error).__name__})")

    def _read_response(self, response: BaseHTTPResponse, deadline: float) -> Mapping[str, Any] | EndpointFault:
        data = bytearray()
        while chunk := response.read1(_CHUNK):
            data += chunk
            if len(data) > self.largest:
                return EndpointFault(cause="too-large", reason=f"the answer is larger than {self.largest:,} bytes")
            if time.monotonic() > deadline:
                return EndpointFault(cause="timeout", reason="the answer came too slowly")
        text = data.decode("utf-8", "replace")
        if 200 <= response.status < 300:
            return _parse_json(text)
        for secret in self._secrets:
            text = text.replace(secret, format_mark("key"))
        headers = {name.lower(): value for name, value in response.headers.items()}
        return parse_refusal(response.status, text, headers)


def _make_pool(proxy: str) -> PoolManager:
    try:
        import urllib3
    except ImportError as error:
        raise MissingExtra("a summary written by a model", "llm") from error
    if proxy:
        return urllib3.ProxyManager(proxy)
    return urllib3.PoolManager()


def _parse_json(text: str) -> Mapping[str, Any] | EndpointFault:
    value = parse_object(text)
    if value is None:
        return EndpointFault(cause="malformed", reason=f"the answer is not a JSON object; it begins with {text[:60]!r}")
    return value
