"""LiteLLM: a callback of the SDK's async functions, of the router, and of the proxy.

litellm.callbacks = [ElisionCallback("masking(window=10)")]
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final, Never, Unpack

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import (
    CallDescription,
    GuardedCall,
    RequestParts,
    SessionOwner,
    join_betas,
    keep_due,
    read_pool_options,
)
from elision.manager.advanced_options import CacheControl
from elision.manager.context_options import ContextOptions
from elision.manager.session_pool import Sessions
from elision.strategies.strategy import Strategy
from elision.trajectory.tool_definitions import OWN_TOOLS

check_framework("litellm", "1.68.2", "litellm")

from litellm import get_llm_provider  # noqa: E402
from litellm.integrations.custom_logger import CustomLogger  # noqa: E402

#: The field that has the messages, for each function that is prepared.
_FIELDS: Final = {"acompletion": "messages", "anthropic_messages": "messages", "aresponses": "input"}


class ElisionCallback(CustomLogger, SessionOwner):
    """Keep the requests of `litellm.acompletion`, `aresponses` and `anthropic_messages` small.

        litellm.callbacks = [ElisionCallback("masking(window=10)")]
        await litellm.acompletion(model=..., messages=messages, litellm_session_id="thread-7")

    The caller's messages stay whole. The session is named by `litellm_session_id`, or `session_id` of the metadata; a
    history without a name is known by its first messages. Each key of the proxy has sessions of its own.

    strategy, options: as for `elision.Sessions`. `model` is the request's. With `recall="auto"` requests get the recall
        tools, whose calls your loop answers with `answer_tool_call`; by default nothing can be recalled. sessions: a
        pool to use instead of an own one; it is not closed here.

    A prompt that is too long is made shorter and sent once more by the SDK's `acompletion`. An error of Elision is
    logged, and that request goes out unchanged. Raises FrameworkError on import without LiteLLM 1.68.2; SettingError,
    SpecError, StoreError as `Sessions` does.
    """

    #: Its messages are the provider's own, and what Elision sets is sent.
    CACHE_CONTROL: ClassVar[CacheControl] = "auto"

    def __init__(
        self,
        strategy: str | Strategy = "masking",
        *misplaced: Never,
        sessions: Sessions | None = None,
        **options: Unpack[ContextOptions],
    ) -> None:
        CustomLogger.__init__(self)
        own = options if sessions is not None else ContextOptions(**{"recall": "never", **options})
        SessionOwner.__init__(self, strategy, *misplaced, sessions=sessions, **own)
        #: The call of each of LiteLLM's call ids, until its usage is recorded.
        self._due: dict[str, GuardedCall[Any]] = {}

    def answer_tool_call(self, session: str, tool: str, arguments: str | Mapping[str, Any]) -> str | None:
        """Return what the model reads for a call of a recall tool in `session`; None for other tools. Never raises."""
        return self.calls.answer_recall(session, tool, arguments) if tool in OWN_TOOLS else None

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Return the arguments of a call with the messages that Elision made of its own."""
        field = _FIELDS.get(getattr(call_type, "value", ""), "")
        given = kwargs.get(field)
        if not isinstance(given, list) or kwargs.get("_agentic_loop_depth"):
            return None
        call = await self.calls.begin_described_async(given, lambda: _describe_request(kwargs, given))
        keep_due(self._due, kwargs.get("litellm_call_id", ""), call)
        if call.view is None:
            return None
        changed = {**kwargs, field: call.messages, **call.view.extra}
        if call.view.tools:
            changed["tools"] = call.view.tools
        if call.view.betas:
            headers = dict(kwargs.get("extra_headers") or {})
            headers["anthropic-beta"] = join_betas(headers.get("anthropic-beta", ""), call.view.betas)
            changed["extra_headers"] = headers
        if "model" in kwargs:
            # LiteLLM sends a prompt that is too long once more, to this model, from this very list of messages.
            changed.setdefault("context_window_fallback_dict", {kwargs["model"]: kwargs["model"]})
        return changed

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, **others: Any
    ) -> None:
        """Make the messages of a call that was too long shorter, in the list that is sent once more."""
        call = self._due.get(request_data.get("litellm_call_id", ""))
        field = _FIELDS.get(getattr(call_type, "value", ""), "")
        if call is not None and await call.retry_async(exception) and isinstance(request_data.get(field), list):
            request_data[field][:] = call.messages

    async def async_post_call_success_deployment_hook(self, request_data: Any, response: Any, call_type: Any) -> None:
        """Record the usage of a response that is no stream."""
        if getattr(response, "usage", None) is not None:
            self._record(request_data.get("litellm_call_id", ""), response)

    async def async_log_success_event(
        self, kwargs: Mapping[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Record the usage of a stream that has ended, and of a response that is not recorded yet."""
        self._record(kwargs.get("litellm_call_id", ""), response_obj)

    def _record(self, call_id: str, response: Any) -> None:
        call = self._due.pop(call_id, None)
        if call is not None:
            call.record(response)


def __getattr__(name: str) -> Any:
    """Make `proxy` when it is first named: the callback that the proxy's configuration names."""
    if name != "proxy":
        raise AttributeError(name)
    return _make_proxy_callback()


@cache
def _make_proxy_callback() -> ElisionCallback:
    """Make a callback with the settings of the environment and elision.toml, for clients that answer no recall."""
    options = read_pool_options(os.environ)
    return ElisionCallback(options.pop("strategy"), **{**options, "recall": "never"})


def _describe_request(kwargs: Mapping[str, Any], messages: Sequence[Any]) -> CallDescription[Any]:
    parts = RequestParts(
        tools=kwargs.get("tools"),
        system=kwargs.get("system") or kwargs.get("instructions"),
        # Without the provider, by which prices are not known.
        model=get_llm_provider(kwargs["model"], kwargs.get("custom_llm_provider"))[0] if kwargs.get("model") else "",
        request={name: kwargs[name] for name in ("thinking", "context_management") if kwargs.get(name)},
    )
    return CallDescription(name=_find_session(kwargs, messages), parts=parts)


def _find_session(kwargs: Mapping[str, Any], messages: Sequence[Any]) -> str:
    """Return the name of a history, behind the hash of the proxy's key where there is one."""
    metadata = {**(kwargs.get("metadata") or {}), **(kwargs.get("litellm_metadata") or {})}
    name = kwargs.get("litellm_session_id") or metadata.get("session_id")
    if not name:
        name = f"litellm-{_digest_beginning(messages)}"
    owner = metadata.get("user_api_key_hash")
    return f"{owner}/{name}" if owner else str(name)


def _digest_beginning(messages: Sequence[Any]) -> str:
    """Return a short digest of the messages up to the first of the user, which is the same at each call."""
    end = next((at for at, each in enumerate(messages) if isinstance(each, dict) and each.get("role") == "user"), 0)
    text = json.dumps(list(messages[: end + 1]), default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
