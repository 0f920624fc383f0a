"""`python -m elision` is the command `elision`."""

from elision.cli import main

main()
