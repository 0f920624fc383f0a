"""Find folders whose files are one recording, by the files' names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """How a recorder lays its files out. The first group of each pattern is the recording's folder, "" or with "/".

    parts:  files without which a folder is no such recording.
    extras: files that belong to it where it is one.
    """

    parts: re.Pattern[str]
    extras: re.Pattern[str]


#: A reader of `Document.members` decides by content; files that no reader takes as a folder are read one by one.
LAYOUTS = (
    # OpenHands V1: `events/event-00000-<id>.json`, or that folder itself.
    FolderLayout(
        parts=re.compile(r"((?:.*?/)??)(?:events/)?event-\d[^/]*\.json"),
        extras=re.compile(r"((?:.*/)?)(?:base_state|meta)\.json"),
    ),
    # OpenHands V0: `events/0.json`, `events/1.json` ..., and pages of them again in `event_cache/0-25.json`.
    FolderLayout(
        parts=re.compile(r"((?:.*?/)??)(?:events/\d+|event_cache/\d+-\d+)\.json"),
        extras=re.compile(r"((?:.*/)?)(?:metadata|init)\.json"),
    ),
    # opencode: `message/<session>/<message>.json` and `part/<message>/<part>.json`, below `session/` at first.
    FolderLayout(
        parts=re.compile(
            r"((?:.*?/)??)(?:session/)?(?:message/ses_[^/]+/msg_[^/]+|part/(?:ses_[^/]+/)?msg_[^/]+/prt_[^/]+)\.json"
        ),
        extras=re.compile(r"((?:.*?/)??)(?:session/[^/]+|session_diff|session_share|share|todo|project)/[^/]+\.json"),
    ),
)


def group_files(names: Sequence[str]) -> dict[str, str]:
    """Return which of `names` belong to a folder that is one recording: name -> that folder."""
    groups: dict[str, str] = {}
    for layout in LAYOUTS:
        own = {name: found[1] for name in names if (found := layout.parts.fullmatch(name))}
        folders = set(own.values())
        for name in names:
            if (found := layout.extras.fullmatch(name)) and found[1] in folders:
                own[name] = found[1]
        groups = own | groups
    return groups
