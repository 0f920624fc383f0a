"""The gateway's own pages: health, metrics, and the dashboard, which is one page, its files, and an API that it polls.

Polling is cheap: a response has an ETag, and an unchanged one is answered with 304 and no body. That works with any
number of processes on one store, and a shutdown has no open connection to wait for.

Health is open: it reveals nothing of sessions. The other pages show what agents read and write. On loopback they are
for the user of this machine. A page of another site must not reach them through a name that now resolves to it (DNS
rebinding), so the Host must be one of this machine. Beyond loopback, and wherever a token is set, they need the token.
"""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from hashlib import blake2b
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from itertools import islice
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

import elision
from elision.errors import ElisionError, MissingExtra, SpecError, StoreError, UnknownHandle, install
from elision.gateway.app import Asgi
from elision.gateway.body_reader import Receive
from elision.gateway.dashboard.json_views import (
    LIVE_SECONDS,
    decode_key,
    export_calls_as_csv,
    export_calls_as_json,
    name_file,
    render_observation,
    render_row,
    render_session,
    render_totals,
)
from elision.gateway.dashboard.session_cache import SessionCache, SessionRow, SessionTrees, render_roles
from elision.gateway.dashboard.totals import SavingsTotals
from elision.gateway.health import HealthChecks
from elision.gateway.settings import GatewaySettings, is_loopback
from elision.gateway.wire import Send
from elision.manager.session_history import SessionReport
from elision.stores.store import SessionInfo, Store
from elision.strategies.guards import Guards
from elision.trajectory.prices import Prices

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.routing import BaseRoute, Route
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

#: Paths that anybody may ask for.
OPEN_PATHS: Final = ("/healthz", "/readyz")
COOKIE_NAME: Final = "elision_admin"
#: Seconds that a browser keeps the cookie.
COOKIE_SECONDS: Final = 30 * 86_400
#: (content type, body) of the page that Prometheus scrapes.
MetricsSource: TypeAlias = Callable[[], tuple[str, bytes]]
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
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
#: Seconds that one question may spend on logs that were not read yet; the page asks again for the rest.
READ_SECONDS: Final = 0.25
#: Sessions in one answer: where nothing is said, and at most.
DEFAULT_ROWS: Final = 20
MAX_ROWS: Final = 200

_HANDLE: Final = re.compile(r"t([1-9]\d{0,8})\.([1-9]\d{0,8})", re.ASCII)


def make_admin_app(
    settings: GatewaySettings, health: HealthChecks, metrics: MetricsSource | None, dashboard: Sequence[BaseRoute]
) -> Asgi:
    """Make the guarded application of all pages. metrics: the page for Prometheus, None without its client."""

    async def alive(request: Request) -> Response:
        return Response(health.render_alive(), media_type="application/json")

    async def ready(request: Request) -> Response:
        is_ready, body = await health.check_ready()
        return Response(body, 200 if is_ready else 503, media_type="application/json")

    def render_metrics(request: Request) -> Response:
        if metrics is None:
            return PlainTextResponse(f"metrics need an extra: {install('prometheus')}\n", 501)
        kind, body = metrics()
        return Response(body, media_type=kind)

    routes = [Route("/healthz", alive), Route("/readyz", ready), Route("/metrics", render_metrics), *dashboard]
    return AdminGuard(Starlette(routes=routes), settings)


def make_routes(
    store: Store,
    *,
    guards: Guards | None = None,
    prices: Prices | None = None,
    shadow: bool = False,
    busy: Callable[[], Collection[str]] = frozenset,
    clock: Callable[[], float] = time.time,
) -> list[BaseRoute]:
    """Return the routes of `/` and of everything below `/elision/`.

    guards: of the sessions. prices: instead of each model's own. shadow: whether this gateway changes nothing.
    busy: keys of the sessions that this process serves now. clock: seconds since the epoch.
    """
    asked = _DashboardApi(SessionCache(store, guards, prices), shadow, busy, clock)
    return [
        Route("/", partial(_serve_file, name="page.html", kind="text/html; charset=utf-8")),
        # Browsers ask for an icon by its old name.
        Route("/favicon.ico", partial(_serve_file, name="icon.svg", kind="image/svg+xml")),
        Route("/elision/api/totals", _make_endpoint(asked.get_totals)),
        Route("/elision/api/sessions", _make_endpoint(asked.get_sessions)),
        Route("/elision/api/sessions/{name}", _make_endpoint(asked.get_session)),
        Route("/elision/api/sessions/{name}/observations/{handle}", _make_endpoint(asked.get_observation)),
        Route("/elision/api/sessions/{name}/calls.csv", asked.export_csv),
        Route("/elision/api/sessions/{name}/calls.json", asked.export_json),
        Route("/elision/{file}", _serve_named_file),
    ]


class _DashboardApi:
    """The API's responses, as JSON values."""

    def __init__(
        self, readings: SessionCache, shadow: bool, busy: Callable[[], Collection[str]], clock: Callable[[], float]
    ) -> None:
        self._cache = readings
        self._shadow = shadow
        self._busy = busy
        self._clock = clock
        #: Of the newest listing that was asked for.
        self._trees = SessionTrees(())

    def get_totals(self, request: Request) -> dict[str, Any]:
        """Return the totals of all sessions that are read; those of shadow mode apart."""
        infos = self._cache.list_sessions()
        now = self._clock()
        rows = list(self._cache.iterate_rows(infos, READ_SECONDS))
        #: By whether its requests are forwarded unchanged.
        by_shadow: dict[bool, list[SessionRow]] = {False: [], True: []}
        for row in rows:
            if row is not None:
                by_shadow[row.shadow].append(row)
        read = by_shadow[False] + by_shadow[True]
        unpriced = [row for row in read if row.calls and not row.priced]
        return {
            "version": elision.__version__,
            "sessions": len(infos),
            "live": sum(now - info.changed < LIVE_SECONDS for info in infos),
            "unread": rows.count(None),
            "faults": sum(bool(row.fault) for row in read),
            "unpriced": len(unpriced),
            "unpriced_models": sorted({row.model for row in unpriced if row.model})[:3],
            "shadow": self._shadow,
            "roles": render_roles(by_shadow[self._shadow]),
            "would": render_totals(sum((row.own_totals for row in by_shadow[True]), SavingsTotals())),
            **render_totals(sum((row.own_totals for row in by_shadow[False]), SavingsTotals())),
        }

    def get_sessions(self, request: Request) -> dict[str, Any]:
        """Return sessions, the one changed last first.

        Parameters: `search` (part of a task, model, API or name), `after` (how many to skip) and `limit`.
        """
        wanted = " ".join(request.query_params.get("search", "").casefold().split())
        found = self._cache.list_sessions()
        if wanted:
            rows = self._cache.iterate_rows(found, READ_SECONDS)
            found = [info for info, row in zip(found, rows, strict=True) if wanted in _join_names(info, row)]
        after = _parse_number(request, "after", 0)
        limit = min(_parse_number(request, "limit", DEFAULT_ROWS), MAX_ROWS)
        infos = found[after : after + limit]
        now = self._clock()
        busy = self._busy()
        rows = self._cache.iterate_rows(infos, READ_SECONDS)
        told = [render_row(info, row, now, busy) for info, row in zip(infos, rows, strict=True)]
        return {"found": len(found), "after": after, "sessions": told}

    def get_session(self, request: Request) -> dict[str, Any]:
        """Return one session, and its calls after the first `after`."""
        key = decode_key(request.path_params["name"])
        account, amendments = self._cache.load_account(key)
        infos = self._cache.list_sessions()
        trees = self._trees
        if trees.infos is not infos:
            trees = self._trees = SessionTrees(infos)
        tree = trees.find_tree(account.info)
        branches = islice(trees.list_branches(key), MAX_ROWS)
        told = render_session(account, branches, amendments, _parse_number(request, "after", 0))
        rows = list(self._cache.iterate_rows(tree, READ_SECONDS))
        told["tree"] = {
            "sessions": len(tree),
            "unread": rows.count(None),
            "roles": render_roles(row for row in rows if row is not None and row.shadow == account.shadow),
        }
        return {**told, "live": self._clock() - account.info.changed < LIVE_SECONDS, "busy": key in self._busy()}

    def get_observation(self, request: Request) -> dict[str, Any]:
        """Return what was hidden under a handle, from character `start` on."""
        key = decode_key(request.path_params["name"])
        handle = request.path_params["handle"]
        found = _HANDLE.fullmatch(handle)
        if found is None:
            raise UnknownHandle(f"{handle[:40]!r} is not a handle; handles look like t12.1")
        observation = self._cache.store.observation(key, (int(found[1]), int(found[2])))
        return render_observation(observation, _parse_number(request, "start", 0))

    def export_csv(self, request: Request) -> Response:
        """Give the calls of one session as a CSV file."""
        return self._export_calls(request, export_calls_as_csv, "csv", "text/csv; charset=utf-8")

    def export_json(self, request: Request) -> Response:
        """Give the calls of one session as a JSON file."""
        return self._export_calls(request, export_calls_as_json, "json", "application/json")

    def _export_calls(
        self, request: Request, export: Callable[[SessionReport], bytes], ending: str, kind: str
    ) -> Response:
        try:
            account, _ = self._cache.load_account(decode_key(request.path_params["name"]))
            body = export(account)
        except ElisionError as error:
            return _respond_error(request, error)
        response = _respond_tagged(request, body, kind)
        response.headers["content-disposition"] = f'attachment; filename="{name_file(account, ending)}"'
        return response


def _join_names(info: SessionInfo, row: SessionRow | None) -> str:
    """Return everything that a session is searched by; of one that was not read yet, its name alone."""
    if row is None:
        return info.key.casefold()
    return "\n".join((info.key, row.task, row.model, row.api)).casefold()


def _make_endpoint(ask: Callable[[Request], dict[str, Any]]) -> Callable[[Request], Response]:
    """Return the endpoint of a method; starlette runs it in a thread, since stores and logs take time."""

    def endpoint(request: Request) -> Response:
        try:
            return _respond_json(request, ask(request))
        except ElisionError as error:
            return _respond_error(request, error)

    return endpoint


def _respond_error(request: Request, error: ElisionError) -> Response:
    if isinstance(error, UnknownHandle):
        return _respond_json(request, {"error": str(error)}, 404)
    if isinstance(error, StoreError):
        return _respond_json(request, {"error": f"the store does not serve: {error}"}, 503)
    return _respond_json(request, {"error": str(error)}, 400)


def _respond_json(request: Request, value: dict[str, Any], status: int = 200) -> Response:
    body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    return _respond_tagged(request, body, "application/json", status)


def _respond_tagged(request: Request, body: bytes, kind: str, status: int = 200) -> Response:
    """Return the response, or 304 if the client has it."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {**HEADERS, "etag": tag, "content-type": kind}
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, status_code=status, headers=headers)


def _serve_file(request: Request, name: str, kind: str) -> Response:
    return _respond_tagged(request, _read_file(name), kind)


def _serve_named_file(request: Request) -> Response:
    """Serve a file of the page by its name."""
    found = FILES.get(request.path_params["file"])
    if found is None:
        return _respond_json(request, {"error": "there is no such file"}, 404)
    return _serve_file(request, *found)


@cache
def _read_file(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()


def _parse_number(request: Request, name: str, usual: int) -> int:
    """Return a parameter as an integer, 0 or more. Raises SpecError."""
    text = request.query_params.get(name, "")
    if not text:
        return usual
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise SpecError(f"{name}={text[:40]!r}: give a whole number, 0 or more")
    return int(text)


# -- who may ask -------------------------------------------------------------------------------------------------------


class AdminGuard:
    """Lets only authorized requests reach the pages of `app`."""

    def __init__(self, app: Asgi, settings: GatewaySettings) -> None:
        self._app = app
        self._token = settings.admin_token
        self._is_local = is_loopback(settings.host)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        request = Request(scope)
        refused = None if scope["path"] in OPEN_PATHS else self._check_access(request)
        await (refused or self._app)(scope, receive, send)

    def _check_access(self, request: Request) -> Response | None:
        """Return the refusal of a request; None where it may see the page."""
        if self._is_local and not is_loopback(_get_host(request)):
            return PlainTextResponse("this page is for this machine: open it at http://127.0.0.1\n", 403)
        # A page of another site names that one.
        origin = request.headers.get("origin")
        is_same_origin = origin is None or origin.partition("://")[2] == request.headers.get("host", "")
        if request.method not in ("GET", "HEAD") and not is_same_origin:
            return PlainTextResponse("another site's page asks for this\n", 403)
        if self._token is None:
            return None
        token = request.query_params.get("token")
        if token is not None:
            if _is_same_secret(token, self._token):
                return self._redirect_signed_in(request)
            return _make_unauthorized()
        if self._has_token(request):
            return None
        return _make_unauthorized()

    def _has_token(self, request: Request) -> bool:
        assert self._token is not None
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return _is_same_secret(text.strip(), self._token)
        return _is_same_secret(_read_cookie(request.headers), _derive_cookie(self._token))

    def _redirect_signed_in(self, request: Request) -> Response:
        """Redirect to the address without the token, which histories and logs would keep."""
        assert self._token is not None
        rest = urlencode([pair for pair in parse_qsl(request.url.query) if pair[0] != "token"])
        # One slash: behind two, a browser would read the name of a machine.
        there = "/" + quote(request.url.path.lstrip("/"))
        answer = RedirectResponse(f"{there}?{rest}" if rest else there, 303, {"cache-control": "no-store"})
        answer.set_cookie(
            COOKIE_NAME,
            _derive_cookie(self._token),
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer


def _make_unauthorized() -> Response:
    text = "the token is missing or wrong: open /?token=... once, or send Authorization: Bearer ...\n"
    return PlainTextResponse(text, 401, {"www-authenticate": "Bearer", "cache-control": "no-store"})


def _get_host(request: Request) -> str:
    """Return the name in the Host header, without its port."""
    text = request.headers.get("host", "")
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.partition(":")[0]


def _read_cookie(headers: Mapping[str, str]) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE_NAME)
    except CookieError:
        return ""
    return found.value if found else ""


def _derive_cookie(token: str) -> str:
    """Return the cookie's value: the token itself is not left in a browser."""
    return hmac.new(token.encode(), b"elision admin cookie", "sha256").hexdigest()


def _is_same_secret(token: str, wanted: str) -> bool:
    return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), wanted.encode())
