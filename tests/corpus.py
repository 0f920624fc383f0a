"""The shared recordings, where they are beside this checkout, and the mark of the tests that need them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

SHARED: Final = Path(__file__).parents[2] / "shared"
CORPUS: Final = SHARED / "corpus"


def needs_corpus(guarded: str) -> pytest.MarkDecorator:
    """Skip a test where the recordings are not here. guarded: what is not checked then, as the summary says it."""
    return pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no ../shared/corpus here, so not checked: {guarded}")


def reproduces(figure: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test that finds a figure again on the recordings: for soaks, and where they are here."""
    return lambda test: pytest.mark.soak(needs_corpus(figure)(test))


def list_recordings(path: Path) -> list[Path]:
    """Return the recordings at `path`, a file or a folder."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return [file for file in files if file.is_file() and file.suffix not in (".tsv", ".md")]
