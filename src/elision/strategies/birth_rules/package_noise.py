"""What package managers print while all goes well: downloads, unpacking, what is installed already."""

from __future__ import annotations

import re
from typing import Final

from elision.strategies.birth_rules.left_out_lines import leave_out_lines

#: What was installed in the end, warnings of the code that is built, and errors are none of these.
_ROUTINE: Final = re.compile(
    # pip
    r"\s*(?:Requirement already satisfied: |Collecting \S|Downloading \S|Using cached \S|Obtaining (?:\S+ from )?file:"
    r"|Preparing metadata|Installing build dependencies|Getting requirements to build|Checking if build backend"
    r"|Building (?:wheels? for|editable for) |Created wheel for |Stored in directory: |Installing collected packages: "
    r"|Attempting uninstall: |Found existing installation: |Uninstalling \S+:$|Successfully uninstalled "
    r"|[━╸╺ ]{5,}\s?[\d.]+/[\d.]+ [kM]B )"
    # npm, yarn, pnpm
    r"|npm (?:notice|http|(?:warn|WARN) deprecated|verb|sill|timing)\b"
    r"|\[\d/\d\] (?:Resolving|Fetching|Linking|Building) |➤ YN0(?:013|019|002)\b|Progress: resolved "
    # apt
    r"|(?:Get|Hit|Ign):\d+ |Selecting previously unselected package |Preparing to unpack |Unpacking \S|Setting up \S"
    r"|Processing triggers for |\(Reading database |Reading (?:package lists|state information)"
    r"|Building dependency tree"
    # cargo, go, gem, Maven
    r"|\s{2,}(?:Compiling|Downloaded|Downloading|Fresh|Checking|Locking|Adding) \S+ v?\d|go: downloading "
    r"|(?:Fetching|Installing) \S+ [\d.]+(?: .with native extensions.)?$|(?:\[INFO\] )?(?:Downloading|Downloaded) from "
)


def drop_package_noise(text: str, handle: str = "") -> str:
    """Return `text` without the routine lines of package managers."""
    return leave_out_lines(text, lambda line: _ROUTINE.match(line) is not None, "package manager routine", handle)
