"""Keep a context small where thinking is bound to the messages before it: four policies.

Anthropic's newest models check each signed thinking block against the messages it was thought behind. "Clear or shorten
an earlier tool result … invalid for every later thinking block" (preserved thinking, Nov 2026): HTTP 400, or the block
is dropped where the request asks for that. Cache markers may move, and what the server edits itself does not count.

The policies, `THINKING_POLICIES`:

- `defer`: we edit only what comes after the newest bound thinking. It saves little where every turn thinks.
- `native`: our messages stay as they were first sent, and the server clears old results up to our frontier
  (`server_clearing.py`). Its placeholder is the provider's: no gist, no handle, no rule on arguments, and only a run of
  the oldest results.
- `drop_block`: we edit, and every request from then on asks for invalid thinking to be dropped. Thoughts are lost.
- `ignore`: we edit as if nothing were bound. Right where nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

from elision.errors import SpecError
from elision.providers.shared.capabilities import Capabilities
from elision.providers.shared.json_reading import mapping_in
from elision.trajectory.turn import Opaque, Turn

ThinkingPolicy = Literal["defer", "native", "drop_block", "ignore"]
THINKING_POLICIES: Final[tuple[ThinkingPolicy, ...]] = get_args(ThinkingPolicy)
AUTO_POLICY: Final = "auto"
#: `anthropic-beta`, without which `block_binding` is an unknown field and refused.
DROP_BETA: Final = "thinking-binding-controls-2026-08-01"
#: Thinking configurations that take `block_binding`.
_THINKING_ON: Final = frozenset(("adaptive", "enabled"))
#: Parts of a message that may hold bound thinking: Anthropic's blocks, and the items that Responses has for them.
_BLOCKS: Final = frozenset(("thinking", "redacted_thinking", "reasoning"))


def choose_thinking_policy(capabilities: Capabilities, option: str = AUTO_POLICY) -> ThinkingPolicy:
    """Choose how to edit a history at this model. Raises SpecError for an unknown option.

    `auto` takes, in this order: `ignore` if nothing is bound; `native` if the server can clear by itself; else `defer`.
    It never chooses `drop_block`: giving thoughts away is the user's decision. An option that the model cannot do falls
    back in the same order.
    """
    if option != AUTO_POLICY and option not in THINKING_POLICIES:
        raise SpecError(
            f"no way {option!r} to treat bound thinking; there are: {', '.join((AUTO_POLICY, *THINKING_POLICIES))}"
        )
    if not capabilities.binds_thinking or option == "ignore":
        return "ignore"
    if option == "drop_block" and capabilities.can_drop_block:
        return "drop_block"
    if capabilities.clears_results and option != "defer":
        return "native"
    return "defer"


def choose_policy_elsewhere(capabilities: Capabilities, option: str = AUTO_POLICY) -> ThinkingPolicy:
    """Choose as `choose_thinking_policy` does, for a history in another API's shape: `defer` or `ignore`.

    Frameworks and proxies translate signed thinking to such shapes. A request in them can ask neither for clearing nor
    for dropping. A model that is not in the table is hardly one that binds: there only an option defers.
    """
    if choose_thinking_policy(capabilities, option) == "ignore":
        return "ignore"
    if not capabilities.model and option == AUTO_POLICY:
        return "ignore"
    return "defer"


# -- defer ------------------------------------------------------------------------------------------------------------


def has_bound_thinking(turn: Turn) -> bool:
    """Return whether a turn may carry bound thinking.

    Reasoning text is enough: the text of a thinking block is kept as `reasoning`, apart from its signature.
    """
    if turn.reasoning:
        return True
    return any(isinstance(part, Opaque) and part.kind in _BLOCKS for part in turn.content)


def find_newest_thinking(turns: Sequence[Turn]) -> int:
    """Return the index of the newest turn that thinks; 0 if none does.

    Results of that turn come after its thinking, so they may change, and so may those of every later turn.
    """
    for turn in reversed(turns):
        if has_bound_thinking(turn):
            return turn.index
    return 0


def find_editable_from(turns: Sequence[Turn]) -> int:
    """Return the first turn whose observations may change.

    A summary must cover at least every turn before it: the thinking of covered turns goes with them, and what stays
    must not think.
    """
    return max(find_newest_thinking(turns), 1)


# -- drop_block -------------------------------------------------------------------------------------------------------


def ask_to_drop_thinking(request: Mapping[str, Any], capabilities: Capabilities) -> dict[str, Any] | None:
    """Return `request` with the wish to drop invalid thinking; None if it cannot ask.

    The service does not remember the wish, so every later request of the session must ask as well, under `DROP_BETA`.
    Only the top level and `thinking` are new objects. A request without `thinking` gets the model's default.
    """
    thinking = mapping_in(request.get("thinking"))
    if not thinking and capabilities.thinking in ("default", "always"):
        thinking = {"type": "adaptive"}
    if thinking.get("type") not in _THINKING_ON or not capabilities.can_drop_block:
        return None
    binding = {**mapping_in(thinking.get("block_binding")), "prefix_mismatch_behavior": "drop_block"}
    return {**request, "thinking": {**thinking, "block_binding": binding}}


def add_beta(header: str, beta: str) -> str:
    """Add `beta` to an `anthropic-beta` header, after what the client asked for."""
    asked = [each.strip() for each in header.split(",") if each.strip()]
    if beta not in asked:
        asked.append(beta)
    return ",".join(asked)
