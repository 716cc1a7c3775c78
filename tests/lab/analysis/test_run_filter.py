"""The --where filter: comparisons mean what they say, and nothing else is evaluated."""

import pytest

from zoerefine.base.errors import UserError
from zoerefine.lab.runs.filter import parse_filter

RUN = {"TRAIN.LR": 3e-4, "MODEL.NAME": "unet", "MODEL.BASE": 16, "seed": 2, "state": "finished",
       "commit": "7b19660b" + "c" * 32}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRAIN.LR<1e-3", True),
        ("TRAIN.LR<1e-3 and MODEL.NAME=='small'", False),
        ("TRAIN.LR<1e-3 and not MODEL.NAME=='small'", True),
        ("MODEL.NAME in ['small', 'unet'] and (MODEL.BASE>=32 or seed==2)", True),
        ("8 < MODEL.BASE <= 16", True),
        ("MODEL.NAME not in ('unet',)", False),
        ("MODEL.NAME in ('unet_old')", False),
        ("MODEL.NAME in 'unet'", True),
        ("'une' in MODEL.NAME", True),
        ("TRAIN.LR > -1", True),
        ("state != 'finished'", False),
        ("TRAIN.LR == '0.00030' and MODEL.BASE < '16.5'", True),
        ("TRAIN.LR in ['3e-4']", True),
        ("commit == '7b19660b' and '7b19' == commit and commit in ['7b1966']", True),
        ("commit != '7b19660b'", False),
        ("commit in ['7b2', ''] or commit == '' or commit == 'cccc'", False),
        ("commit == '7b19660b" + "c" * 33 + "'", False),
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


def test_a_name_in_backquotes_may_hold_any_character():
    run = {"train/loss": 0.4, "val-acc": 0.9, "my key": "`a`", "x": 1}
    assert parse_filter("`train/loss`<0.5 and not `val-acc` < 0.5")(run)
    assert parse_filter("`my key` == '`a`' and `x`==1 and \"`\" in `my key`")(run)
    with pytest.raises(UserError, match=r"no setting train/los$"):
        parse_filter("`train/los` < 1")(run)
    with pytest.raises(UserError, match=r"'`train/loss` \+ 1' is not a name or constant"):
        parse_filter("`train/loss` + 1 < 2")(run)
    for text in ("``<1", "`a<1", "`a` `b` < 1"):
        with pytest.raises(UserError, match="is not a comparison"):
            parse_filter(text)


@pytest.mark.parametrize("text", ["train/loss < 0.5", "val-acc > 0.5"])
def test_a_name_that_needs_backquotes_is_answered_with_them(text):
    with pytest.raises(UserError, match="in backquotes: `train/loss`"):
        parse_filter(text)


def test_unknown_settings_and_wrong_types_are_named():
    with pytest.raises(UserError, match=r"no setting TRAIN\.LRR"):
        parse_filter("TRAIN.LRR < 1")(RUN)
    with pytest.raises(UserError, match="compares 'unet' with 3"):
        parse_filter("MODEL.NAME < 3")(RUN)
