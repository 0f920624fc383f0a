"""What a user's type checker finds in the library, where mypy alone would not tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TYPED = Path(__file__).parent / "typed"


@pytest.mark.parametrize("checker", [["mypy", "--strict"], ["pyright"]], ids=["mypy", "pyright"])
def test_responses_keep_the_types_of_the_providers_packages(checker: list[str]) -> None:
    """`**view.request` does not make a response of Anthropic, OpenAI or Google unknown."""
    pytest.importorskip(checker[0])
    arguments = ["--pythonpath", sys.executable] if checker[0] == "pyright" else []
    done = subprocess.run(
        [sys.executable, "-m", *checker, *arguments, str(TYPED / "responses.py")],
        cwd=TYPED.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
