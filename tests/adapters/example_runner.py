"""Run an example in the environment of its framework.

    python -m tests.adapters.example_runner FILE

It prints a JSON list of the lines that the example printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType

from tests.adapters.worker import ENVIRONMENT, stay_on_loopback


def main() -> None:
    """Run what the argument names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    os.environ.update(ENVIRONMENT, HOME=str(Path.cwd()))
    sys.addaudithook(stay_on_loopback)
    # As a script of the reader's is: frameworks read type hints and sources by the module's name.
    module = ModuleType("__main__")
    module.__file__ = str(file)
    sys.modules["__main__"] = module
    printed = StringIO()
    # Without the `annotations` of this module: frameworks show them to the model.
    code = compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True)
    with redirect_stdout(printed):
        exec(code, module.__dict__)  # noqa: S102 - our own examples
    print(json.dumps(printed.getvalue().splitlines()))


if __name__ == "__main__":
    main()
