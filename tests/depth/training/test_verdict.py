"""What the end of a training says: a table, a line a scene, and warnings in plain words."""

import math

from zoerefine.depth.training.verdict import closing_lines, warnings


def results(refined=0.2, factor=0.25, pseudo=0.3, shuffled=0.5):
    def metrics(abs_rel):
        return {"abs_rel": abs_rel, "silog": 10.0, "delta1": 0.9}

    depths = {
        "pseudo": metrics(pseudo),
        "global_scale": metrics(factor),
        "refined": metrics(refined),
    }
    return {
        "log_scale": -0.1,
        "test": depths | {"shuffled": metrics(shuffled)},
        "test_scenes": {"kitchen": depths},
    }


def test_a_good_refiner_gets_a_table_and_no_warning():
    lines = closing_lines(results())
    assert not any(line.startswith("warning") for line in lines)
    assert lines[0].split() == ["1", "test", "scene", "abs_rel", "silog", "delta1"]
    assert "kitchen: abs_rel pseudo 0.300, single factor 0.250, refined 0.200" in lines


def test_a_refiner_that_loses_to_the_single_factor_is_named():
    (line,) = warnings(results(refined=0.27))
    assert "not better than the pseudo depth times the single factor 0.905" in line
    assert line.endswith(
        "Leave it out: correct the pseudo depth with metric points (`infer --points`) or with a "
        "few distances of a tape (`measure`)."
    )
    assert warnings(results(refined=0.25)) != []  # equal to it
    for abs_rel in (0.31, math.nan):
        lines = warnings(results(refined=abs_rel))
        assert any("not better than the pseudo depth as it is" in line for line in lines)
    assert len(warnings(results(refined=0.4))) == 2  # nor than the pseudo depth itself


def test_a_calibration_that_leaves_only_the_factor_is_named_once():
    found = results(refined=0.25) | {"calibration": {"strength": 0.0}}
    (line,) = warnings(found)
    assert "this bundle multiplies by one factor, 0.905" in line
    (line, _) = warnings({"calibration": {"strength": 0.0}, "test": {}})
    assert "multiplies by one factor" in line
    assert warnings(results() | {"calibration": {"strength": 0.4}}) == []


def test_a_refiner_without_a_calibration_is_named():
    (line,) = warnings(results() | {"calibration": None})
    assert line.startswith("not calibrated (no validation scenes): the correction is used at full")
    assert line.endswith("its confidence was not fitted to hold 90% of the pixels.")


def test_a_refiner_that_ignores_its_pseudo_depth_is_named():
    (line,) = warnings(results(shuffled=0.201))
    assert "may not depend on the pseudo depth" in line


def test_a_refiner_that_makes_points_worse_is_to_be_left_away():
    found = results()
    found["test"] |= {"points": {"abs_rel": 0.0456}, "refined_points": {"abs_rel": 0.0492}}
    (line,) = warnings(found)
    assert "leave the refiner out: on held-out scenes abs_rel is 0.0492 with" in line
    assert "is 0.0492 with it and 0.0456 by the points alone" in line
    found["test"]["refined_points"]["abs_rel"] = 0.04
    assert warnings(found) == []


def test_a_run_without_test_scenes_has_no_table():
    assert closing_lines({"test_scenes": {}, "calibration": None}) == []
