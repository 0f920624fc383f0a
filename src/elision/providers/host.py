"""Who serves an API: where, with which key, and how requests to it are told from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One provider's servers, which may have several APIs.

    name:          as settings and paths of the gateway have it. title: for people.
    url:           its base URL, as its own clients take it.
    key_variable, url_variable: environment variables that are usual for its key and another base URL.
    old_url_variables: others that clients read for a base URL.
    make_key_headers: returns the headers that carry a key.
    make_error_body: returns the body of an error, of its status, its message and one word for programs.
    busy_status:   of a response that there is no room for another request.
    headers:       those that every request needs.
    own_headers:   names that only requests to it carry. own_paths: beginnings of paths that only it has, below the
                   version.
    versions:      first segments of its paths. With several, the client's is forwarded.
    version_anywhere: whether a version anywhere in a base URL stands for ours; else only one at its end does.
    """

    name: str
    title: str
    url: str
    key_variable: str
    url_variable: str
    make_key_headers: Callable[[str], dict[str, str]]
    make_error_body: Callable[[int, str, str], dict[str, Any]]
    old_url_variables: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    own_headers: tuple[str, ...] = ()
    own_paths: tuple[bytes, ...] = ()
    versions: tuple[bytes, ...] = (b"v1",)
    version_anywhere: bool = False
    busy_status: int = 503

    @property
    def root_url(self) -> str:
        """Return the base URL without a version."""
        return self.url.removesuffix(f"/{self.versions[0].decode()}")


def _make_openai_error_body(status: int, message: str, code: str) -> dict[str, Any]:
    """Return the body of an error; its types are strings without a list."""
    if status == 429:
        kind = "rate_limit_error"
    elif status >= 500:
        kind = "server_error"
    else:
        kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


OPENAI: Final = Host(
    name="openai",
    title="OpenAI",
    url="https://api.openai.com/v1",
    key_variable="OPENAI_API_KEY",
    url_variable="OPENAI_BASE_URL",
    old_url_variables=("OPENAI_API_BASE",),
    make_key_headers=lambda key: {"authorization": f"Bearer {key}"},
    make_error_body=_make_openai_error_body,
    version_anywhere=True,
)
