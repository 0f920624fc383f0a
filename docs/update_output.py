"""Writes the output that the pages show anew: `python docs/update_output.py`. Read the difference before committing it.

Lines are replaced, never added: each shown stretch gives way to the one of the same length that is most like it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from difflib import SequenceMatcher
from io import StringIO
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.docs.blocks import CONTRIBUTING, PAGES, blocks, chunks, commands  # noqa: E402
from tests.docs.run import elision, folder, made, working_in  # noqa: E402


def nearest(chunk: Sequence[str], real: Sequence[str]) -> list[str]:
    """The stretch of `real` that is as long as `chunk` and most like it."""
    starts = range(max(1, len(real) - len(chunk) + 1))
    return max((list(real[at : at + len(chunk)]) for at in starts), key=lambda lines: _likeness(chunk, lines))


def _likeness(ours: Sequence[str], theirs: Sequence[str]) -> float:
    return sum(SequenceMatcher(None, one, other).ratio() for one, other in zip(ours, theirs, strict=False))


def updated(page: Path, at: Path) -> str:
    """The text of `page` with every shown output of a command as it is now. Its code runs too: commands read what it
    writes."""
    text = page.read_text(encoding="utf-8")
    module = ModuleType("a_page")
    # Dataclasses look up the module that they are made in.
    sys.modules[module.__name__] = module
    for block in blocks(page):
        if block.language == "python":
            with working_in(at), redirect_stdout(StringIO()):
                exec(compile("\n" * block.line + block.text, str(page), "exec"), module.__dict__)  # noqa: S102
            continue
        for command in commands(block):
            first, _, rest = command.text.partition(" ")
            lines = [command.text] if first == "elision" else made(rest) if first == "make" else []
            if "../shared/" in command.text or not lines:
                continue
            real = elision(lines[0], at).lines
            for chunk in chunks(command.printed):
                text = text.replace("\n".join(chunk) + "\n", "\n".join(nearest(chunk, real)) + "\n")
    return text


if __name__ == "__main__":
    for page in PAGES:
        if page != CONTRIBUTING:
            with tempfile.TemporaryDirectory() as name:
                page.write_text(updated(page, folder(Path(name))), encoding="utf-8")
