"""The gateway's own pages: the dashboard, `/metrics`, `/healthz`, `/readyz`, and access to them.

Health is open: it reveals nothing of sessions. The other pages show what agents read and write. On loopback they are
for the user of this machine. A page of another site must not reach them through a name that now resolves to it (DNS
rebinding), so the Host must be one of this machine. Beyond loopback, and wherever a token is set, they need the token.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

from elision.errors import MissingExtra, install
from elision.gateway.health import HealthChecks
from elision.gateway.request_body_reader import Receive
from elision.gateway.settings import GatewaySettings, is_loopback

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.routing import BaseRoute, Route
    from starlette.types import ASGIApp, Scope, Send
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

OPEN_PATHS: Final = ("/healthz", "/readyz")
COOKIE_NAME: Final = "elision_admin"
#: (content type, body) of the page that Prometheus scrapes.
MetricsSource: TypeAlias = Callable[[], tuple[str, bytes]]
#: Seconds that a browser keeps the cookie.
COOKIE_SECONDS: Final = 30 * 86_400


def make_admin_app(
    settings: GatewaySettings, health: HealthChecks, metrics: MetricsSource | None, dashboard: Sequence[BaseRoute]
) -> ASGIApp:
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


class AdminGuard:
    """Lets only authorized requests reach the pages of `app`."""

    def __init__(self, app: ASGIApp, settings: GatewaySettings) -> None:
        self._app = app
        self._token = settings.admin_token
        self._is_local = is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if scope["path"] in OPEN_PATHS:
            refused = None
        else:
            refused = self._check_access(request)
        await (refused or self._app)(scope, receive, send)

    def _check_access(self, request: Request) -> Response | None:
        """Return the refusal of a request; None where it may see the page."""
        if self._is_local and not is_loopback(_get_host(request)):
            return PlainTextResponse("this page is for this machine: open it at http://127.0.0.1\n", 403)
        if request.method not in ("GET", "HEAD") and not _is_same_origin(request):
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


def _is_same_origin(request: Request) -> bool:
    """Return whether no page of another site sent the request."""
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host", "")


def _read_cookie(headers: Mapping[str, str]) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE_NAME)
    except CookieError:
        return ""
    if found:
        return found.value
    return ""


def _derive_cookie(token: str) -> str:
    """Return the cookie's value: the token itself is not left in a browser."""
    return hmac.new(token.encode(), b"elision admin cookie", "sha256").hexdigest()


def _is_same_secret(token: str, wanted: str) -> bool:
    return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), wanted.encode())
