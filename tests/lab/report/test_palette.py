"""Which colour is whose."""

from __future__ import annotations

from elision.lab.report.svg import COLOURS, assign_looks, build_css
from tests.lab.report.studies import STRATEGIES


def test_raw_is_grey_and_kinds_share_a_hue() -> None:
    """Raw is grey; the variants of one strategy are tones of one hue, told apart by dash and shape as well."""
    found = assign_looks(STRATEGIES)
    assert found["raw"].slot == "grey"
    assert (found["masking"].slot, found["masking (every turn)"].slot) == ("blue", "blue-pale")
    assert (found["hybrid"].slot, found["hybrid (hindsight)"].slot) == ("orange", "orange-deep")
    assert found["masking"].dash != found["masking (every turn)"].dash
    assert found["hybrid"].shape != found["hybrid (hindsight)"].shape


def test_fifteen_strategies_have_fifteen_looks() -> None:
    """Even of one kind; beyond that looks are shared, not missing."""
    labels = [f"masking(window={number})" for number in range(20)]
    slots = [look.slot for look in assign_looks(labels).values()]
    assert len(set(slots[:15])) == 15
    assert set(slots) <= set(COLOURS)


def test_variables_for_both_schemes() -> None:
    """The page is given every slot twice, in different colours."""
    assert "--blue:#0072b2;" in build_css(dark=False)
    assert build_css(dark=True).count("--") == len(COLOURS)
    assert build_css(dark=True) != build_css(dark=False)
