"""The tiers of tests: what their files list exists, and the Makefile selects the quick one."""

from tests import tiers
from tests.conftest import CHECKOUT


def test_what_the_tiers_list_exists():
    listed = [line for name in tiers.LISTED for line in tiers.lines(name)]
    assert [line for line in listed if not tiers.exists(line)] == []


def test_the_makefile_selects_the_quick_tier_by_the_same_words():
    assert f"\nQUICK := {tiers.QUICK}\n" in (CHECKOUT / "Makefile").read_text()
