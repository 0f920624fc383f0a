"""Run the Python blocks of a page, or an example, in the environment of its framework.

    python -m tests.adapters.page_runner FILE

It prints a line of JSON for each block: the line at which the block begins, and what it printed. All blocks share one
namespace. An example is one block.
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
from tests.docs.blocks import Block, blocks


def list_code_blocks(file: Path) -> list[Block]:
    """Return the Python blocks of a page, or an example as one block."""
    if file.suffix == ".py":
        return [Block(language="python", title="", text=file.read_text(encoding="utf-8"), line=0, start=0)]
    return [block for block in blocks(file) if block.language == "python"]


def run_block(block: Block, file: Path, module: ModuleType) -> list[str]:
    """Return the lines that a block prints."""
    printed = StringIO()
    # Without the `annotations` of this module: frameworks show them to the model.
    code = compile("\n" * block.line + block.text, str(file), "exec", dont_inherit=True)
    with redirect_stdout(printed):
        exec(code, module.__dict__)  # noqa: S102 - our own pages
    return printed.getvalue().splitlines()


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
    for block in list_code_blocks(file):
        printed = run_block(block, file, module)
        print(json.dumps([block.line, printed]), flush=True)


if __name__ == "__main__":
    main()
