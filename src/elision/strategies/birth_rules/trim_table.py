"""The rules by which a result can be shortened as it arrives, by the names that strategies give them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from elision.strategies.birth_rules.generated_paths import drop_generated_paths
from elision.strategies.birth_rules.long_results import keep_ends
from elision.strategies.birth_rules.package_noise import drop_package_noise
from elision.strategies.birth_rules.passing_tests import drop_passing_tests
from elision.strategies.birth_rules.terminal_codes import clean_terminal_text

#: Name -> what it makes of a text, its handle and the arguments of the call; in the order in which they act.
TRIMS: Final[dict[str, Callable[[str, str, str], str]]] = {
    "terminal": lambda text, handle, asked: clean_terminal_text(text, handle),
    "passing-tests": lambda text, handle, asked: drop_passing_tests(text, handle),
    "packages": lambda text, handle, asked: drop_package_noise(text, handle),
    "generated": drop_generated_paths,
}
#: Tokens that shortening must save.
LEAST_SAVING: Final = 60


def trim_at_birth(
    text: str,
    names: Collection[str],
    count_tokens: Callable[[str], int],
    *,
    ends: int = 0,
    handle: str = "",
    asked: str = "",
) -> str | None:
    """Return what a result is shown as from its first request on; None where nothing that counts can be left out.

    names: of `TRIMS`. ends: tokens of head and tail of a longer result; 0 keeps all. handle: by which the whole result
    is recalled; "" to name none. asked: the arguments of the call.
    """
    trimmed = text
    for name, trim in TRIMS.items():
        if name in names:
            trimmed = trim(trimmed, handle, asked)
    if ends:
        trimmed = keep_ends(trimmed, ends, count_tokens, handle)
    if trimmed == text or count_tokens(text) - count_tokens(trimmed) < LEAST_SAVING:
        return None
    return trimmed
