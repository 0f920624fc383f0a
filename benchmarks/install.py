"""What an install takes on disk: a fresh environment for each set of extras, with the packages of the index.

Counted are the bytes of the files in `site-packages`, which has no pip. It needs a network, so no test runs it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
#: Extras -> the most that they may take, MB.
LIMITS = {"": 40, "cli": 60, "report,gateway": 130}


def main(*, small: bool = False) -> None:
    print(f"{'extras':16} {'MB':>6} {'at most':>8}")
    for extras, limit in list(LIMITS.items())[: 1 if small else None]:
        print(f"{extras or 'none':16} {measure_install(extras) / 1e6:6.1f} {limit:8}")


def measure_install(extras: str) -> int:
    """Return the bytes of an environment with Elision and `extras`."""
    with tempfile.TemporaryDirectory(prefix="elision-") as name:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", name], check=True)
        wanted = f"{ROOT}[{extras}]" if extras else str(ROOT)
        python = str(Path(name, "bin", "python"))
        subprocess.run([str(UV), "pip", "install", "--quiet", "--python", python, wanted], check=True)
        (packages,) = Path(name, "lib").glob("python*/site-packages")
        return sum(path.lstat().st_size for path in packages.rglob("*") if path.is_file())
