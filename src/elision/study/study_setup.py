"""The start of a study: manifest, sample and settings are written once, and found again by whoever continues it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any, Final

import msgspec

from elision.errors import SpecError
from elision.lab.results import prices_json
from elision.lab.study_settings import Candidate, StudySettings, parse_candidates
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.study.manifest import Shard, cut_shards, decode_manifest, encode_manifest, list_units
from elision.study.run_sample import take_sample
from elision.study.study_folder import (
    MANIFEST_FILE,
    SAMPLE_FILE,
    SETTINGS_FILE,
    StudyFolder,
    StudyPlan,
    digest_bytes,
    open_url,
)
from elision.trajectory.prices import Prices


def prepare_study(
    folder: StudyFolder,
    paths: Sequence[str],
    settings: StudySettings,
    options: Mapping[str, Any],
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[StudyPlan, list[Shard]]:
    """Return the study's settings and shards; of a study that is there already, as it has them.

    options: what else its rows depend on, as JSON; its `kind` is "replay" or "audit".

    Raises SpecError for a study with other settings, FormatError for
    paths without recordings, and OutputError for a folder that cannot be written.
    """
    listed = tuple(_make_absolute(path) for path in paths)
    for path in listed:
        if f"{_make_absolute(folder.url)}/".startswith(f"{path.rstrip('/')}/"):
            raise SpecError(f"--out {folder.url}: is in {path}, and would be read as a recording; name another folder")
    plan = StudyPlan(
        version=version("elision"),
        paths=listed,
        prices=settings.prices.name if settings.prices else "",
        price_list=digest_prices(settings.prices),
        sample="",
        options=dict(options),
    )
    found = folder.load_plan()
    if found is not None:
        folder.check_plan(msgspec.structs.replace(plan, sample=found.sample))
        sample = folder.read(SAMPLE_FILE)
        if digest_bytes(sample) != found.sample:
            raise SpecError(
                f"{folder.locate(SAMPLE_FILE)}: is not the sample that the study was made with ({found.sample} in"
                f" {SETTINGS_FILE} / {digest_bytes(sample)} here); put that one back, or begin another study"
            )
        return found, decode_manifest(folder.read(MANIFEST_FILE))
    progress("listing")
    shards = cut_shards(list_units(listed))
    folder.write(MANIFEST_FILE, encode_manifest(shards))
    # Of a call's bill, nothing depends on other runs.
    units = [unit for shard in shards for unit in shard.units] if options["kind"] == "replay" else []
    sample = take_sample(units, settings, lambda read: progress(f"reading the sample: {read} files"))
    folder.write(SAMPLE_FILE, sample)
    plan = msgspec.structs.replace(plan, sample=digest_bytes(sample))
    folder.write(SETTINGS_FILE, msgspec.json.format(msgspec.json.encode(plan), indent=1))
    # Another process may have begun at the same moment: what is stored counts for all.
    stored = folder.load_plan()
    return stored or plan, decode_manifest(folder.read(MANIFEST_FILE))


def _make_absolute(path: str) -> str:
    """Return an address that means the same in every process, wherever it is started."""
    system, root = open_url(path)
    return root if StudyFolder(path).is_local else str(system.unstrip_protocol(root))


def digest_prices(prices: Prices | None) -> str:
    """Return the digest of a price list; of all of ours, for runs that are billed at their own models' prices."""
    if prices is not None:
        return digest_bytes(json.dumps(prices_json(prices), sort_keys=True, default=str).encode())
    try:
        others = version("genai-prices")
    except PackageNotFoundError:
        others = ""
    return digest_bytes(files("elision.trajectory").joinpath("prices.toml").read_bytes() + others.encode())


#: Settings that a plan keeps as they are.
_KEPT: Final = ("tokens", "dialect", "hindsight", "elongation")


def describe_settings(settings: StudySettings, given: Mapping[str, str | None], *, calls: bool) -> dict[str, Any]:
    """Return the options of a replay as a plan keeps them. given: the texts of its price options."""
    return {
        "kind": "replay",
        "strategies": [[each.label, describe_strategy(each.strategy)] for each in settings.candidates],
        **{name: getattr(settings, name) for name in _KEPT},
        "calls": calls,
        "price_options": dict(given),
    }


def restore_settings(plan: StudyPlan, prices: Prices | None) -> StudySettings:
    """Return the settings of a replay out of its plan. prices: what its price options name."""
    options = plan.options
    candidates = tuple(Candidate(label, parse_strategy(text)) for label, text in options["strategies"])
    return StudySettings(
        prices=prices,
        candidates=candidates or parse_candidates([], hindsight=options["hindsight"]),
        **{name: options[name] for name in _KEPT},
    )
