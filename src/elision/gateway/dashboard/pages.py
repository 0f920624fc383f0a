"""The dashboard's routes: one page, its files, and an API of JSON that it asks again and again.

Questions are cheap to repeat: an answer bears an ETag, and what did not change is answered with 304 and no body. That
works over any number of processes on one store, and no connection is held open that a shutdown would have to wait for.

Nothing in here guards who may ask: whoever mounts the routes does.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from itertools import islice
from typing import Any, Final

from elision.errors import ElisionError, MissingExtra, SpecError, StoreError, UnknownHandle
from elision.gateway.dashboard.figures import Figures
from elision.gateway.dashboard.readings import Readings
from elision.gateway.dashboard.told import LIVE, figures_json, key_of, observation_json, row_json, session_json
from elision.stores.store import Store
from elision.strategies.guards import Guards
from elision.trajectory.plan import Key
from elision.trajectory.prices import Prices

try:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Route
except ImportError as error:
    raise MissingExtra("the dashboard", "gateway") from error

#: Nothing but the page's own files; no frame around it, no form out of it.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: What stands in every answer. Sessions hold what agents read: no cache keeps any of it.
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
#: Files of the page by the name they are asked for, and their types.
FILES: Final = {
    "style.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "chart.js": ("chart.js", "text/javascript; charset=utf-8"),
    "details.js": ("details.js", "text/javascript; charset=utf-8"),
    "words.js": ("words.js", "text/javascript; charset=utf-8"),
}
#: Seconds that one question may spend on logs that were not read yet; the page asks again for the rest.
READING: Final = 0.25
#: Sessions in one answer: where nothing is said, and at most.
PAGE: Final = 20
MOST: Final = 200

_HANDLE: Final = re.compile(r"t([1-9]\d{0,8})\.([1-9]\d{0,8})", re.ASCII)


def routes(
    store: Store,
    *,
    guards: Guards | None = None,
    prices: Prices | None = None,
    shadow: bool = False,
    busy: Callable[[], Collection[str]] = frozenset,
    clock: Callable[[], float] = time.time,
) -> list[BaseRoute]:
    """`/` and everything below `/elision/`.

    guards: of the sessions. prices: instead of each model's own. shadow: whether this gateway changes nothing.
    busy: keys of the sessions that this process answers just now. clock: seconds since the epoch.
    """
    asked = _Questions(Readings(store, guards, prices), shadow, busy, clock)
    return [
        Route("/", _page),
        Route("/favicon.ico", _icon),
        Route("/elision/api/totals", _answered(asked.totals)),
        Route("/elision/api/sessions", _answered(asked.sessions)),
        Route("/elision/api/sessions/{name}", _answered(asked.session)),
        Route("/elision/api/sessions/{name}/observations/{handle}", _answered(asked.observation)),
        Route("/elision/{file}", _file),
    ]


class _Questions:
    """What the API answers, as JSON values."""

    def __init__(
        self, readings: Readings, shadow: bool, busy: Callable[[], Collection[str]], clock: Callable[[], float]
    ) -> None:
        self._readings = readings
        self._shadow = shadow
        self._busy = busy
        self._clock = clock

    def totals(self, request: Request) -> dict[str, Any]:
        """All sessions of the store in sum, as far as they were read; those of shadow mode in a sum of their own."""
        infos = self._readings.listed()
        now = self._clock()
        rows = list(self._readings.rows(infos, READING))
        read = [row for row in rows if row is not None]
        return {
            "sessions": len(infos),
            "live": sum(now - info.changed < LIVE for info in infos),
            "unread": rows.count(None),
            "faults": sum(bool(row.fault) for row in read),
            "unpriced": sum(bool(row.calls and not row.priced) for row in read),
            "shadow": self._shadow,
            "would": figures_json(sum((row.own for row in read if row.shadow), Figures())),
            **figures_json(sum((row.own for row in read if not row.shadow), Figures())),
        }

    def sessions(self, request: Request) -> dict[str, Any]:
        """Sessions, the one changed last first. Asks `search` (part of a name), `after` (how many to pass over) and
        `limit`."""
        wanted = request.query_params.get("search", "").casefold()
        found = [info for info in self._readings.listed() if wanted in info.key.casefold()]
        after = _number(request, "after", 0)
        limit = min(_number(request, "limit", PAGE), MOST)
        infos = found[after : after + limit]
        now = self._clock()
        busy = self._busy()
        rows = self._readings.rows(infos, READING)
        told = [row_json(info, row, now, busy) for info, row in zip(infos, rows, strict=True)]
        return {"found": len(found), "after": after, "sessions": told}

    def session(self, request: Request) -> dict[str, Any]:
        """One session, and its calls behind the first `after`."""
        key = key_of(request.path_params["name"])
        account, amendments = self._readings.account(key)
        branches = (info for info in self._readings.listed() if info.parent == key and info.key != key)
        told = session_json(account, islice(branches, MOST), amendments, _number(request, "after", 0))
        return {**told, "live": self._clock() - account.info.changed < LIVE, "busy": key in self._busy()}

    def observation(self, request: Request) -> dict[str, Any]:
        """What was hidden under a handle, from letter `start` on."""
        key = key_of(request.path_params["name"])
        handle = _key(request.path_params["handle"])
        observation = self._readings.store.observation(key, handle)
        return observation_json(observation, _number(request, "start", 0))


def _answered(ask: Callable[[Request], dict[str, Any]]) -> Callable[[Request], Response]:
    """The endpoint of a question; starlette runs it on a thread of its own, as stores and logs take their time."""

    def endpoint(request: Request) -> Response:
        try:
            return _told(request, ask(request))
        except UnknownHandle as error:
            return _told(request, {"error": str(error)}, 404)
        except StoreError as error:
            return _told(request, {"error": f"the store does not serve: {error}"}, 503)
        except ElisionError as error:
            return _told(request, {"error": str(error)}, 400)

    return endpoint


def _told(request: Request, value: dict[str, Any], status: int = 200) -> Response:
    body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    return _tagged(request, body, "application/json", status)


def _tagged(request: Request, body: bytes, kind: str, status: int = 200) -> Response:
    """The answer, or that it is the one the asker has."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {**HEADERS, "etag": tag, "content-type": kind}
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, status_code=status, headers=headers)


def _page(request: Request) -> Response:
    return _tagged(request, _text("page.html"), "text/html; charset=utf-8")


def _icon(request: Request) -> Response:
    """Answer a browser that asks for an icon, as it does for every page without one: there is none."""
    return Response(status_code=204, headers=HEADERS)


def _file(request: Request) -> Response:
    found = FILES.get(request.path_params["file"])
    if found is None:
        return _told(request, {"error": "there is no such file"}, 404)
    return _tagged(request, _text(found[0]), found[1])


@cache
def _text(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()


def _number(request: Request, name: str, usual: int) -> int:
    """A whole number that was asked with, 0 or more. Raises SpecError."""
    text = request.query_params.get(name, "")
    if not text:
        return usual
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise SpecError(f"{name}={text[:40]!r}: give a whole number, 0 or more")
    return int(text)


def _key(handle: str) -> Key:
    found = _HANDLE.fullmatch(handle)
    if found is None:
        raise UnknownHandle(f"{handle[:40]!r} is no handle; they look like t12.1")
    return int(found[1]), int(found[2])
