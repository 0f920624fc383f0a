"""What a user's type checker finds in the library, where mypy alone would not tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TYPED = Path(__file__).parent / "typed"


def test_responses_keep_the_types_of_the_providers_packages() -> None:
    """`**view.request` does not make a response of Anthropic, OpenAI or Google unknown. `make check` asks mypy."""
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(TYPED / "responses.py")]
    done = subprocess.run(command, cwd=TYPED.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
