"""Whose a request is, and which conversation it says it belongs to."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elision.gateway.identity import (
    ANONYMOUS,
    MAX_ID_CHARS,
    ClientIdentity,
    derive_namespace,
    find_role,
    identify_client,
)
from elision.providers.provider import Api
from elision.trajectory.run_roles import ROLES

UUID = "57a121ec-f78c-48c3-a745-e3036a3ecc33"
CODEX = "codex_cli_rs/0.169.0 (Linux 6.1; x86_64)"


SECRET = b"kept with the store"


class Body:
    """A request's fields."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def get_field(self, name: str) -> Any:
        return self._fields.get(name)


def _who(headers: dict[str, str], api: Api = "openai", **fields: Any) -> ClientIdentity:
    return identify_client(api, headers, Body(**fields), derive_namespace(headers, b"", SECRET))


# -- namespaces ------------------------------------------------------------------------------------------------------

CREDENTIALS = [
    {"authorization": "Bearer sk-1"},
    {"authorization": "Bearer sk-2"},
    {"authorization": "Basic sk-1"},
    {"x-api-key": "sk-1"},
    {"api-key": "sk-1"},
    {"x-goog-api-key": "sk-1"},
    {"x-api-key": "sk-1", "authorization": "Bearer sk-1"},
    {"x-api-key": "sk-1", "api-key": "sk-1"},
    {"x-litellm-api-key": "Bearer sk-1"},
    {"ocp-apim-subscription-key": "sk-1"},
    {"cf-aig-authorization": "Bearer sk-1"},
    {"x-portkey-api-key": "sk-1"},
    {"helicone-auth": "Bearer sk-1"},
    {"x-api-key": "sk-1 6 sk-1"},
    {"cookie": "token=sk-1"},
    {},
]


def test_every_credential_has_its_own_namespace() -> None:
    """No two of these share anything; two headers together are somebody else than each alone."""
    names = [derive_namespace(headers, b"", SECRET) for headers in CREDENTIALS]
    assert len(set(names)) == len(CREDENTIALS)
    assert names[-1] == ANONYMOUS
    assert all(len(name) == 33 and name[0] == "k" for name in names[:-1])


#: Where a provider takes a credential, besides cookies, which count only alone.
PLACES = (
    *("authorization", "x-api-key", "api-key", "x-goog-api-key", "x-litellm-api-key", "ocp-apim-subscription-key"),
    *("?key", "?access_token", "?oauth_token", "?api-key", "?subscription-key"),
)
_CREDENTIALS = st.dictionaries(st.sampled_from(PLACES), st.text("ab1 %&=?;+é", min_size=1, max_size=4), max_size=4)


def _derive_from(credentials: dict[str, str]) -> str:
    """Return the namespace of a request with these credentials: each in the place that is its key."""
    headers = {name: value for name, value in credentials.items() if name[0] != "?"}
    query = [f"{quote(name[1:])}={quote(value)}" for name, value in credentials.items() if name[0] == "?"]
    return derive_namespace(headers, "&".join(["alt=sse", *query]).encode(), SECRET)


@given(_CREDENTIALS, _CREDENTIALS)
@example({"?key": "a"}, {"?key": "b"})
@example({"?key": "a"}, {"?access_token": "a"})
@example({"x-goog-api-key": "a", "?key": "a"}, {"x-goog-api-key": "a", "?key": "b"})
@example({"x-goog-api-key": "a", "?key": "b"}, {"x-goog-api-key": "a"})
@example({"?key": "a&access_token=b"}, {"?key": "a", "?access_token": "b"})
def test_credentials_that_differ_in_any_place_share_no_namespace(one: dict[str, str], other: dict[str, str]) -> None:
    """Sessions, limits and recall are all within a namespace; a value of blanks is no header."""
    ones, others = (
        {
            name: value if name[0] == "?" else value.strip()
            for name, value in each.items()
            if name[0] == "?" or value.strip()
        }
        for each in (one, other)
    )
    assert (_derive_from(one) == _derive_from(other)) == (ones == others)


@pytest.mark.parametrize(
    "query",
    [b"key=a", b"alt=sse&key=a", b"%6bey=%61", b"KEY=a", b"$key=a", b"%24key=a", b"+key=a", b"key=a&alt=sse"],
)
def test_one_credential_in_the_query_is_one_namespace(query: bytes) -> None:
    """However the name is spelled, and wherever it is."""
    assert derive_namespace({}, query, SECRET) == derive_namespace({}, b"key=a", SECRET) != ANONYMOUS


def test_every_credential_of_a_query_counts() -> None:
    """Of a name that is there twice only the provider knows which one it takes."""
    queries = (b"key=a&key=b", b"key=b&key=a", b"key=a", b"key=b")
    assert len({derive_namespace({}, query, SECRET) for query in queries}) == len(queries)
    assert derive_namespace({}, b"key=&alt=sse&monkey=a", SECRET) == ANONYMOUS


def test_a_namespace_does_not_show_its_credential() -> None:
    """What is stored and logged is a hash, and without the secret nobody can test a guess against it."""
    headers = {"authorization": "Bearer sk-1"}
    assert "sk-1" not in derive_namespace(headers, b"key=sk-1", SECRET)
    assert len({derive_namespace(headers, b"", secret) for secret in (SECRET, b"a", b"b" * 200)}) == 3


def test_no_namespace_is_made_without_a_secret() -> None:
    """An unkeyed hash of a short credential is found by trying all of them."""
    with pytest.raises(ValueError, match="needs a secret"):
        derive_namespace({"authorization": "Bearer sk-1"}, b"", b"")


@pytest.mark.parametrize("empty", [{"authorization": " "}, {"x-api-key": ""}, {"cookie": ""}])
def test_empty_credentials_are_none(empty: dict[str, str]) -> None:
    """A header without a value says nobody."""
    assert derive_namespace(empty, b"", SECRET) == ANONYMOUS


def test_cookies_count_only_where_nothing_else_does() -> None:
    """A cookie that changes beside a key does not make another caller."""
    key = {"x-api-key": "sk-1"}
    assert (
        derive_namespace({**key, "cookie": "a=1"}, b"", SECRET)
        == derive_namespace({**key, "cookie": "a=2"}, b"", SECRET)
        == derive_namespace(key, b"", SECRET)
    )


def test_who_is_billed_is_not_who_asks() -> None:
    """Organization and project headers, ids of sessions and users leave the namespace as it is."""
    key = {"authorization": "Bearer sk-1"}
    more = {"openai-organization": "org-1", "openai-project": "proj", "x-session-id": "s", "user-agent": "x"}
    assert derive_namespace({**key, **more}, b"", SECRET) == derive_namespace(key, b"", SECRET)


def test_one_session_id_with_two_keys_is_two_sessions() -> None:
    """Ids are the client's to choose: they never reach over to another key."""
    one, other = (_who({"x-api-key": key, "x-session-id": "shared"}) for key in ("sk-1", "sk-2"))
    assert one.session == other.session == "shared"
    assert one.namespace != other.namespace


# -- sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({"x-elision-session": " mine "}, "mine"),
        ({"x-elision-session": "mine", "x-claude-code-session-id": "c"}, "mine"),
        ({"x-claude-code-session-id": UUID}, UUID),
        ({"user-agent": CODEX, "session-id": "root", "thread-id": "t"}, "t"),
        ({"user-agent": CODEX, "session-id": "root"}, "root"),
        ({"user-agent": CODEX, "session_id": "s", "conversation_id": "c"}, "c"),
        ({"user-agent": "pi (linux; x64)", "session_id": "s"}, "s"),
        ({"user-agent": "pi/1.5.2", "session-id": "s"}, "s"),
        ({"user-agent": "OpenAI/JS 6.26.0", "session_id": UUID, "x-client-request-id": UUID}, UUID),
        ({"x-opencode-session": "ses_1", "x-opencode-request": "r"}, "ses_1"),
        ({"x-session-affinity": "ses_1", "x-session-id": "ses_1"}, "ses_1"),
        ({"x-session-affinity": "ses_1"}, "ses_1"),
        ({"x-litellm-trace-id": "t", "x-litellm-session-id": "s"}, "s"),
        ({"x-litellm-trace-id": "t"}, "t"),
        ({"x-grok-conv-id": "g"}, "g"),
        ({"x-affinity": "a"}, "a"),
    ],
)
def test_sessions_named_by_headers(headers: dict[str, str], session: str) -> None:
    """What known clients send is their session's id."""
    assert _who(headers).session == session


@pytest.mark.parametrize(
    ("api", "agent", "fields", "session"),
    [
        ("anthropic", "", {"metadata": {"user_id": f"user_{'a' * 64}_account__session_{UUID}"}}, UUID),
        (
            "anthropic",
            "claude-cli/2.1.329",
            {"metadata": {"user_id": json.dumps({"device_id": "d", "account_uuid": "", "session_id": UUID})}},
            UUID,
        ),
        ("openai-responses", CODEX, {"client_metadata": {"session_id": "r", "thread_id": "t"}}, "t"),
        ("openai-responses", "", {"conversation": "conv_1"}, "conv_1"),
        ("openai-responses", "", {"conversation": {"id": "conv_1"}}, "conv_1"),
        ("openai", "", {"session_id": "router"}, "router"),
        ("openai-responses", CODEX, {"prompt_cache_key": "t"}, "t"),
        ("openai", "opencode/1.18.0 ai-sdk", {"prompt_cache_key": "ses_1"}, "ses_1"),
    ],
)
def test_sessions_named_by_bodies(api: Api, agent: str, fields: dict[str, Any], session: str) -> None:
    """Fields of the body count where no header says anything."""
    assert _who({"user-agent": agent}, api, **fields).session == session
    assert _who({"user-agent": agent, "x-session-id": "first"}, api, **fields).session == "first"


@pytest.mark.parametrize(
    ("headers", "api", "fields"),
    [
        # LiteLLM's rule `^x-.+-session-id$` takes opencode's parent for the session.
        ({"x-parent-session-id": "ses_parent"}, "openai", {}),
        ({"x-some-session-id": "abcdefgh"}, "openai", {}),
        # Codex' names from anyone else.
        ({"session-id": "s", "user-agent": "Mozilla/5.0"}, "openai", {}),
        ({"session_id": "s", "thread-id": "t", "conversation_id": "c"}, "openai", {}),
        ({"session-id": "s", "user-agent": "pip/24"}, "openai", {}),
        ({"session_id": "s", "x-client-request-id": "r"}, "openai", {}),
        # Ids of a request, a turn, a window, an installation.
        ({"x-client-request-id": "r", "x-codex-window-id": "t:1", "x-opencode-request": "r"}, "openai", {}),
        ({"x-gemini-api-privileged-user-id": "i"}, "openai", {}),
        # A person is no conversation.
        ({}, "openai", {"safety_identifier": "u", "user": "u"}),
        ({}, "anthropic", {"metadata": {"user_id": "person-1"}}),
        ({}, "anthropic", {"metadata": {"user_id": "my_session_name"}}),
        # The OpenAI Agents SDK makes one up for every run of a conversation.
        ({"user-agent": "Agents/Python 0.9"}, "openai-responses", {"prompt_cache_key": "agents-sdk:run:0123"}),
        ({}, "openai-responses", {"previous_response_id": "resp_1"}),
        # Another API's field.
        ({}, "openai", {"conversation": "c"}),
    ],
)
def test_what_is_no_session(headers: dict[str, str], api: Api, fields: dict[str, Any]) -> None:
    """An id that means something else, or changes within a conversation, is not taken for one."""
    assert _who(headers, api, **fields).session == ""


def test_the_parent_is_not_the_session() -> None:
    """opencode's sub-agents send their own id and their parent's: two sessions."""
    child = _who({"x-session-id": "ses_child", "x-session-affinity": "ses_child", "x-parent-session-id": "ses_parent"})
    assert (child.session, child.parent) == ("ses_child", "ses_parent")


def test_codex_sub_agents_have_their_own_thread() -> None:
    """All threads of one Codex share `session-id`: the thread is the session."""
    shared = {"user-agent": CODEX, "session-id": "root"}
    root = _who({**shared, "thread-id": "root"})
    child = _who({**shared, "thread-id": "child", "x-codex-parent-thread-id": "root"})
    assert (root.session, child.session) == ("root", "child")
    assert (root.parent, child.parent) == ("", "root")


def test_claude_code_sub_agents_have_their_own_session() -> None:
    """They share the session's id and have an id of their own."""
    shared = {"x-claude-code-session-id": UUID}
    child = _who({**shared, "x-claude-code-agent-id": "a1"})
    nested = _who({**shared, "x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"})
    assert len({_who(shared).session, child.session, nested.session}) == 3
    assert (_who(shared).parent, child.parent, nested.parent) == ("", UUID, child.session)


def test_long_ids_are_hashed() -> None:
    """An id of any length is an id, and no store has to take a long one."""
    one, other = (_who({"x-session-id": "x" * 10_000 + end}).session for end in "ab")
    assert one != other
    assert len(one) < MAX_ID_CHARS
    assert _who({"x-session-id": "x" * MAX_ID_CHARS}).session == "x" * MAX_ID_CHARS


@given(st.text(), st.text())
def test_any_text_is_an_id(session: str, agent: str) -> None:
    """Whatever stands in a header becomes something short and printable, the same each time."""
    headers = {"x-session-id": session, "x-claude-code-agent-id": agent}
    who = _who(headers)
    assert who == _who(headers)
    assert len(who.session) <= MAX_ID_CHARS
    assert who.session.isprintable()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just('{"a":' * 400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["user_id", "id"]), inner, max_size=2),
    max_leaves=5,
)
_NAMES = ("metadata", "client_metadata", "conversation", "session_id", "prompt_cache_key")


@given(st.fixed_dictionaries(dict.fromkeys(_NAMES, _JSON)), st.sampled_from(["anthropic", "openai-responses"]))
def test_odd_bodies_name_no_session_and_break_nothing(fields: dict[str, Any], api: Api) -> None:
    """Fields of the wrong shape say nothing, and nothing is raised."""
    assert len(_who({"user-agent": CODEX}, api, **fields).session) <= MAX_ID_CHARS


def test_a_request_without_a_body() -> None:
    """What has no readable body is known by its headers."""
    assert identify_client(None, {"x-session-id": "s"}, None, ANONYMOUS) == ClientIdentity(
        namespace=ANONYMOUS, session="s"
    )


@pytest.mark.parametrize(
    ("headers", "role"),
    [
        ({}, ""),
        ({"x-claude-code-session-id": UUID}, ""),
        ({"x-claude-code-session-id": UUID, "x-claude-code-agent-id": "a1"}, "sub-agent"),
        ({"x-claude-code-agent-id": "  "}, ""),
        ({"x-claude-code-request-class": "workflow"}, "sub-agent"),
        ({"x-claude-code-request-class": "Auxiliary"}, "side"),
        ({"x-claude-code-request-class": "compaction", "x-claude-code-agent-id": "a1"}, "side"),
        ({"x-claude-code-request-class": "of-tomorrow", "x-claude-code-agent-id": "a1"}, "sub-agent"),
        ({"user-agent": CODEX, "session-id": "root", "thread-id": "root"}, ""),
        ({"user-agent": CODEX, "thread-id": "child", "x-codex-parent-thread-id": "root"}, "sub-agent"),
        ({"user-agent": CODEX, "x-openai-subagent": "review"}, "sub-agent"),
        ({"user-agent": CODEX, "x-openai-subagent": "compact", "x-codex-parent-thread-id": "root"}, "side"),
        ({"x-session-id": "ses_child", "x-parent-session-id": "ses_parent"}, "sub-agent"),
        ({"x-elision-role": " Side ", "x-elision-parent": "s1"}, "side"),
        ({"x-elision-role": "main", "x-openai-subagent": "review"}, "main"),
        # What is no role makes no label.
        ({"x-elision-role": "<script>"}, ""),
    ],
)
def test_roles(headers: dict[str, str], role: str) -> None:
    assert find_role(headers) == role


ROLE_HEADERS = ("x-elision-role", "x-claude-code-request-class", "x-openai-subagent", "x-elision-parent")


@given(st.dictionaries(st.sampled_from(ROLE_HEADERS), st.text(max_size=40) | st.just("<script>alert(1)</script>")))
def test_a_header_makes_no_role_of_its_own(headers: dict[str, str]) -> None:
    """A role is a label in metrics and a word on pages: what a client writes is never one."""
    assert find_role(headers) in ("", *ROLES)
