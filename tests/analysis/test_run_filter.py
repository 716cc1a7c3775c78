"""The --where filter: comparisons mean what they say, and nothing else is evaluated."""

import pytest

from zoerefine.analysis.run_filter import parse_filter
from zoerefine.errors import UserError

RUN = {"TRAIN.LR": 3e-4, "MODEL.NAME": "unet", "MODEL.BASE": 16, "seed": 2, "state": "finished"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRAIN.LR<1e-3", True),
        ("TRAIN.LR<1e-3 and MODEL.NAME=='small'", False),
        ("TRAIN.LR<1e-3 and not MODEL.NAME=='small'", True),
        ("MODEL.NAME in ['small', 'unet'] and (MODEL.BASE>=32 or seed==2)", True),
        ("8 < MODEL.BASE <= 16", True),
        ("MODEL.NAME not in ('unet',)", False),
        ("TRAIN.LR > -1", True),
        ("state != 'finished'", False),
    ],
)
def test_comparisons_mean_what_they_say(text, expected):
    assert parse_filter(text)(RUN) is expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "TRAIN.LR",
        "TRAIN.LR < (lambda: 1)()",
        "[x for x in (1,)] == [1]",
        "TRAIN.LR <",
        "",
        "TRAIN.LR is None",
        "f'{TRAIN.LR}' == ''",
        "TRAIN.LR < 1; 2",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(UserError, match="--where"):
        parse_filter(text)(RUN)


def test_unknown_settings_and_wrong_types_are_named():
    with pytest.raises(UserError, match=r"no setting TRAIN\.LRR"):
        parse_filter("TRAIN.LRR < 1")(RUN)
    with pytest.raises(UserError, match="compares 'unet' with 3"):
        parse_filter("MODEL.NAME < 3")(RUN)
