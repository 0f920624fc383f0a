"""The code of the published descriptions, out of the documents themselves, where they are beside this checkout.

`tests/published_managers.py` has it word for word for every checkout; tests that find the documents run both.
"""

from __future__ import annotations

import re
import time
from functools import cache
from types import SimpleNamespace
from typing import Any, Final, Optional

import pytest

from tests.corpus import SHARED

DOCUMENTS: Final = SHARED / "seeds"
#: A block of Python in a document; the examples at its end would run.
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

needs_documents = pytest.mark.skipif(
    not DOCUMENTS.is_dir(), reason="no ../shared/seeds here, so not checked: the documents' own code"
)


@cache
def load_document(number: str) -> SimpleNamespace:
    """Return what the Python blocks of document `number` define, with what they leave out."""
    (path,) = DOCUMENTS.glob(f"{number}_*.txt")
    defined: dict[str, Any] = {"time": time, "Optional": Optional}
    for block in _BLOCK.findall(path.read_text(encoding="utf-8")):
        code = block.partition("# Usage Example")[0]
        if re.match(r"\s*(?:#.*\n)?(?:def|class) ", code):
            exec(compile(code, path.name, "exec"), defined)  # noqa: S102 - our own documents
    return SimpleNamespace(**defined)


class AnsweringModel:
    """The summarizer that the documents' managers ask. write: returns a summary of nothing that it is given."""

    def __init__(self, write: Any) -> None:
        self.write = write

    def generate(self, prompt: str, temperature: float, max_tokens: int) -> str:
        """Return the next summary; the documents ask for at most 250 tokens of it."""
        assert (temperature, max_tokens) == (0.0, 250)
        summary: str = self.write(())
        return summary
