"""The conversation of a stored session, to be continued: its messages in the model's shape, nothing hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from elision.agent.model import Json, Shape
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.base_renderer import CONTINUE_TEXT
from elision.stores.store import Store
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
    branches = [
        info
        for info in store.sessions()
        if info.key == session or (info.family == session and info.relation in ("fork", "replaced"))
    ]
    if not branches:
        return None
    newest = max(branches, key=lambda info: info.changed)
    view = State(Sizer(make_counter())).fold_events(store.events(newest.key)).make_raw_view()
    renderer = PROVIDERS[shape].make_renderer()
    messages = renderer.render_unmarked(view)
    if messages and messages[-1]["role"] == "user" and messages[-1].get("content") == _FILLER:
        messages.pop()
    system = (str(block.get("text", "")) for block in renderer.render_system(view))
    return StoredConversation(messages=list(messages), system="\n\n".join(system))


#: What Anthropic's renderer puts behind an assistant message that is the last; the next task takes its place.
_FILLER: Final = [{"type": "text", "text": CONTINUE_TEXT}]
