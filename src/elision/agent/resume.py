"""The conversation of a stored session, to be continued: its messages in the model's shape, nothing hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from elision.agent.model import Json, Shape
from elision.providers.anthropic.render import CONTINUE_TEXT
from elision.providers.provider_table import PROVIDERS
from elision.stores.store import SessionInfo, Store
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversation:
    """The messages so far. system: the prompt that is apart from them (Anthropic); "" where it is one of them."""

    messages: list[Json]
    system: str = ""


def load_conversation(store: Store, session: str, shape: Shape) -> StoredConversation | None:
    """Return the messages of the session's branch that was written last; None if the store has no such session.

    Raises StoreError.
    """
    branches = [info for info in store.sessions() if _is_branch_of(info, session)]
    if not branches:
        return None
    newest = max(branches, key=lambda info: info.changed)
    view = State(Sizer(make_counter())).fold_events(store.events(newest.key)).make_raw_view()
    renderer = PROVIDERS[shape].make_renderer()
    messages = renderer.render_unmarked(view)
    if messages and messages[-1]["role"] == "user" and messages[-1].get("content") == _FILLER:
        messages.pop()
    return StoredConversation(
        messages=list(messages), system="\n\n".join(_get_block_text(block) for block in renderer.render_system(view))
    )


#: What Anthropic's renderer puts behind an assistant message that is the last; the next task takes its place.
_FILLER: Final = [{"type": "text", "text": CONTINUE_TEXT}]


def _is_branch_of(info: SessionInfo, session: str) -> bool:
    return info.key == session or (info.family == session and info.relation in ("fork", "replaced"))


def _get_block_text(block: Mapping[str, Any]) -> str:
    return str(block.get("text", ""))
