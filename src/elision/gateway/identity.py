"""Whose a request is, and which conversation its client says it belongs to.

*Namespace*: what separates those who may see what. It is a hash of the credentials that the request carries, in its
headers and its query, as they are written there, and of nothing else; its key is a secret of the store's gateways,
without which nobody can test a guess.
Not of the organization or project headers: they say who is billed, whoever holds the key may name either, and a client
that begins to send them goes on with its sessions. Not of the provider: nobody else holds the same key at another one,
and histories of different APIs are kept apart by whoever looks them up. Not of any id that a client states: stating is
no proof. So a rotated key or a renewed access token begins anew, which is the safe side. Requests without a credential
(a local server behind the gateway) are all "anonymous" and see each other's sessions.

*Session*: what the client says, in the order of the tables below; a hint that narrows where a history is looked for,
never a permission. A wrong hint costs more than none: within a namespace histories are told apart by what they say,
while an id that changes within one conversation tears it. Hence what is not read: `prompt_cache_key` from anyone (the
OpenAI Agents SDK makes one up per run), `user`, `safety_identifier` and a plain `metadata.user_id` (a person),
request and turn ids, `previous_response_id`, and no header by pattern (`x-.+-session-id` is the parent's id at
opencode). Where the rows are from: shared notes on clients of November 2026, the source beside each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from elision.providers.provider import Api
from elision.providers.shared.json_reading import mapping_in, text_in
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.run_roles import ROLES, Role, SaidRole

ANONYMOUS: Final = "anonymous"
#: Characters of an id that are kept as they are; a longer one, or one with control characters, is hashed.
MAX_ID_CHARS: Final = 128


class BodyFields(Protocol):
    """A request's body: a decoded top-level field, None where there is none."""

    def get_field(self, name: str) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """Whose request it is.

    namespace: "k" and 32 hex digits, or "anonymous".
    session:   the client's own id of the conversation, of one agent where it has several; "" where it gives none.
    parent:    of a sub-agent, the same of the agent that started it; "" for others.
    role:      what the client says that it is.
    """

    namespace: str
    session: str = ""
    parent: str = ""
    role: SaidRole = ""

    @property
    def family(self) -> str:
        """Return the family: only its histories are compared."""
        return f"{self.namespace}/{self.session}" if self.session else self.namespace

    @property
    def parent_family(self) -> str:
        """Return the parent's family; "" without a parent."""
        return f"{self.namespace}/{self.parent}" if self.parent else ""


_Headers: TypeAlias = Mapping[str, str]

#: Headers that may hold a credential. Two of them in one request both count: neither alone is who asks. Those of other
#: gateways (LiteLLM, Azure API Management, Cloudflare, Portkey, Helicone) are among them: one may stand behind this.
_CREDENTIALS: Final = (
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-litellm-api-key",
    "ocp-apim-subscription-key",
    "cf-aig-authorization",
    "x-portkey-api-key",
    "helicone-auth",
)

#: Parameters of the query that may hold a credential, in lower case and without the "$" that Google allows before its
#: own: Google's API keys and OAuth tokens, Azure's keys, and those of Azure API Management.
_QUERY_CREDENTIALS: Final = frozenset(
    [b"key", b"access_token", b"oauth_token", b"api-key", b"api_key", b"subscription-key"]
)

_CODEX: Final = re.compile(r"codex", re.IGNORECASE)
_CODEX_OR_PI: Final = re.compile(r"codex|pi\b", re.IGNORECASE)
_OWN_CACHE_KEY: Final = re.compile(r"codex|opencode|pi\b", re.IGNORECASE)

#: pi (0.73, seen on the wire) goes under the OpenAI SDK's User-Agent and says the conversation's id here once more, as
#: Codex does with its thread's: a common name that holds the same is theirs.
_REPEATED_ID_HEADER: Final = "x-client-request-id"

#: Header -> how the User-Agent must begin for it to be believed; None: whatever. The first that is there is taken.
_SESSION_HEADERS: Final[tuple[tuple[str, re.Pattern[str] | None], ...]] = (
    ("x-elision-session", None),  # ours
    ("x-claude-code-session-id", None),  # Claude Code since 2.1.86; code.claude.com, llm-gateway-protocol
    # Codex 0.169: `session-id` is the root's for all its sub-agents, so the thread comes first. Names as common as
    # these are some other program's as easily: only from Codex (LiteLLM's rule 4), and from pi, which goes its way.
    ("thread-id", _CODEX),
    ("session-id", _CODEX_OR_PI),
    ("conversation_id", _CODEX),
    ("session_id", _CODEX_OR_PI),
    ("x-opencode-session", None),  # opencode 1.18 at its own provider
    ("x-litellm-session-id", None),  # LiteLLM, OpenHands SDK 1.58
    ("x-session-id", None),  # opencode 1.18 elsewhere, pi 1.5
    ("x-session-affinity", None),  # opencode 1.18, pi 1.5: the same id again
    ("x-grok-conv-id", None),  # xAI
    ("x-affinity", None),  # pi at Mistral
    ("x-litellm-trace-id", None),  # LiteLLM: one trace, many calls
)


def _read_claude_code_id(value: Any) -> str:
    """`metadata.user_id`: JSON with a `session_id` since Claude Code 2.1.78, before that `..._session_<uuid>`."""
    user = text_in(mapping_in(value).get("user_id"))[:2_048]
    if user.startswith("{"):
        return text_in((parse_object(user) or {}).get("session_id"))
    found = re.search(r"_session_([0-9A-Fa-f-]{8,64})$", user)
    return found[1] if found else ""


def _read_codex_id(value: Any) -> str:
    text = mapping_in(value)
    return text_in(text.get("thread_id")) or text_in(text.get("session_id"))


def _read_conversation_id(value: Any) -> str:
    """Return the id in a Responses `conversation`: a string, or an object that has one."""
    return text_in(value) or text_in(mapping_in(value).get("id"))


#: (API or None for any, field of the body, how its id is read, how the User-Agent must begin).
_SESSION_FIELDS: Final = (
    ("anthropic", "metadata", _read_claude_code_id, None),
    (None, "client_metadata", _read_codex_id, _CODEX),  # Codex 0.169
    ("openai-responses", "conversation", _read_conversation_id, None),  # OpenAI: the conversation that it keeps
    (None, "session_id", text_in, None),  # OpenRouter
    (None, "prompt_cache_key", text_in, _OWN_CACHE_KEY),  # theirs is the thread's or session's id
)


def identify_client(api: Api | None, headers: _Headers, body: BodyFields | None, namespace: str) -> ClientIdentity:
    """Identify the client of a namespace. headers: names in lower case, repeated fields joined."""
    session = _find_session_id(api, headers, body)
    parent = next((headers[name].strip() for name in _PARENT_HEADERS if headers.get(name, "").strip()), "")
    # Sub-agents of Claude Code share a session id, and have their own one.
    agent = headers.get("x-claude-code-agent-id", "").strip()
    if session and agent:
        starter = headers.get("x-claude-code-parent-agent-id", "").strip()
        session, parent = f"{session}:{agent}", f"{session}:{starter}" if starter else session
    session, parent = _shorten_id(session), _shorten_id(parent)
    parent = parent if session != parent else ""
    return ClientIdentity(namespace=namespace, session=session, parent=parent, role=find_role(headers))


def _shorten_id(given: str) -> str:
    if len(given) > MAX_ID_CHARS or not given.isprintable():
        return f"h{blake2b(given.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
    return given


#: Claude Code, with CLAUDE_CODE_GATEWAY_HINT_HEADERS=1 (code.claude.com, llm-gateway-protocol).
_CLAUDE_CODE_ROLES: Final[Mapping[str, Role]] = {
    "main": "main",
    "subagent": "sub-agent",
    "workflow": "sub-agent",
    "compaction": "side",
    "auxiliary": "side",
}
#: Codex 0.169, `x-openai-subagent`; what else it says is a sub-agent.
_CODEX_ROLES: Final[Mapping[str, Role]] = {"compact": "side", "memory_consolidation": "side"}
#: Headers with the session of the agent that started this one: ours, since the OpenAI Agents SDK (0.24) and LangGraph
#: (1.2) send none of their own, Codex's and opencode's.
_PARENT_HEADERS: Final = ("x-elision-parent", "x-codex-parent-thread-id", "x-parent-session-id")
#: Headers that only sub-agents send.
_SUB_AGENT_HEADERS: Final = ("x-claude-code-agent-id", *_PARENT_HEADERS)


def find_role(headers: _Headers) -> SaidRole:
    """Return what asks, as far as the client says it. headers: names in lower case."""
    named = headers.get("x-elision-role", "").strip().lower()
    if found := next((role for role in ROLES if role == named), None):
        return found
    if found := _CLAUDE_CODE_ROLES.get(headers.get("x-claude-code-request-class", "").strip().lower()):
        return found
    if kind := headers.get("x-openai-subagent", "").strip().lower():
        return _CODEX_ROLES.get(kind, "sub-agent")
    if any(headers.get(name, "").strip() for name in _SUB_AGENT_HEADERS):
        return "sub-agent"
    return ""


def derive_namespace(headers: _Headers, query: bytes, secret: bytes) -> str:
    """Return the namespace of the request's credentials. query: as it is sent, without the "?".

    Raises ValueError where `secret` is empty.
    """
    if not secret:
        raise ValueError("a namespace needs a secret: without one a short credential can be guessed from it")
    credentials = _find_credentials(headers, query)
    if not credentials:
        return ANONYMOUS
    # A key may have any length here, and at most 64 bytes there.
    hashed = blake2b(digest_size=16, key=blake2b(secret).digest(), person=b"elision-families")
    for name, value in credentials:
        hashed.update(b"%s %d " % (name, len(value)) + value)
    return f"k{hashed.hexdigest()}"


def list_credentials(headers: _Headers, query: bytes) -> list[str]:
    """Return the request's credentials, which must not be shown."""
    return [value.decode("utf-8", "surrogateescape") for _, value in _find_credentials(headers, query)]


def _find_credentials(headers: _Headers, query: bytes) -> list[tuple[bytes, bytes]]:
    """Return each credential after the name of its place; a cookie only where there is no other."""
    said = [(name, value) for name in _CREDENTIALS if (value := headers.get(name, "").strip())]
    credentials = [(name.encode(), value.encode("utf-8", "surrogatepass")) for name, value in said]
    if query:
        credentials += _find_query_credentials(query)
    if not credentials and (cookie := headers.get("cookie", "").strip()):
        credentials = [(b"cookie", cookie.encode("utf-8", "surrogatepass"))]
    return credentials


def _find_query_credentials(query: bytes) -> list[tuple[bytes, bytes]]:
    """Return the credentials in a query, repeated ones as well: which of them counts, only the provider knows."""
    found = []
    for pair in query.split(b"&"):
        written, _, value = pair.partition(b"=")
        # Some servers read a name with a blank around it as the name, and none reads another name as this one.
        name = unquote_to_bytes(written).strip(b" +").removeprefix(b"$").lower()
        if value and name in _QUERY_CREDENTIALS:
            found.append((b"?" + name, unquote_to_bytes(value)))
    return found


def _find_session_id(api: Api | None, headers: _Headers, body: BodyFields | None) -> str:
    """Return the id as the client wrote it; "" where it gives none."""
    agent = headers.get("user-agent", "").lstrip()
    for name, believed in _SESSION_HEADERS:
        value = headers.get(name, "").strip()
        if value and (believed is None or believed.match(agent) or value == headers.get(_REPEATED_ID_HEADER)):
            return value
    if body is None:
        return ""
    for whose, name, read, believed in _SESSION_FIELDS:
        meant = whose in (None, api) and (believed is None or believed.match(agent))
        if meant and (value := read(body.get_field(name)).strip()):
            return value
    return ""
