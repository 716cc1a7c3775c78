"""What the held-out results say of a refiner, for people: a table, and warnings in plain words."""

import math
from collections.abc import Mapping
from typing import Any

from zoerefine.base.messages import counted, first_few
from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.depth.data.networks.pseudo_source import source_from_json

# A refiner that uses its pseudo depth has a larger error with another scene's, by this factor,
# unless that fits these pictures as well.
LEAST_DEPENDENCE = 1.05
SHOWN_METRICS = (SELECTION_METRIC, "silog", "delta1")
NAMED_SCENES = 5  # in a message
DEPTHS = {
    "pseudo": "pseudo depth",
    "global_scale": "pseudo depth times a single factor",
    "points": "pseudo depth with metric points",
    "refined": "refined",
    "refined_points": "refined, with metric points",
    "shuffled": "refined, from another scene's pseudo depth",
}


def closing_lines(results: Mapping[str, Any]) -> list[str]:
    """What ends a training: the calibration, each depth's metrics, a line a scene.

    That there is no calibration is one of the `warnings`.
    """
    calibration = [calibration_line(results)] if results.get("calibration") else []
    test = results.get("test") or {}
    if not test.get("refined"):
        return calibration
    width = max(map(len, DEPTHS.values()))
    scenes = results.get("test_scenes", {})
    head = counted(len(scenes), "test scene")
    lines = [f"{head:<{width}}" + "".join(f"{name:>9}" for name in SHOWN_METRICS)]
    for which, label in DEPTHS.items():
        if values := test.get(which):
            numbers = "".join(f"{values[name]:9.3f}" for name in SHOWN_METRICS)
            lines.append(f"{label:<{width}}{numbers}")
    for scene, depths in scenes.items():
        if depths.get("refined"):
            figures = ", ".join(
                f"{which.replace('global_scale', 'single factor')} "
                f"{depths[which][SELECTION_METRIC]:.3f}"
                for which in ("pseudo", "global_scale", "refined")
            )
            lines.append(f"{scene}: {SELECTION_METRIC} {figures}")
    return [*calibration, *lines]


def calibration_line(results: Mapping[str, Any]) -> str:
    """How far the refiner's correction is followed, and why."""
    found = results.get("calibration")
    if not found:
        has_scenes = results.get("scenes", {}).get("val")
        why = "TRAIN.CALIBRATE is off" if has_scenes else "no validation scenes"
        return f"not calibrated ({why}): the correction is used at full strength in any room"
    errors, strength = found["abs_rel"], found["strength"]
    measured = (
        f"on {counted(found['scenes'], 'validation scene')}, mean {SELECTION_METRIC} is "
        f"{errors['single_factor']:.3f} with the single factor {factor(results)}, "
        f"{errors['full_strength']:.3f} with the full correction"
    )
    if strength == 0:
        return f"the correction is not used, the bundle is the single factor: {measured}"
    return (
        f"the correction is used at {strength:.0%} strength: {measured}, "
        f"{errors['calibrated']:.3f} as used"
    )


def warnings(results: Mapping[str, Any]) -> list[str]:
    """What the results say against using the refiner, a sentence each."""
    test = results.get("test", {})
    errors = {which: test.get(which, {}).get(SELECTION_METRIC) for which in DEPTHS}
    refined = errors["refined"]
    found = seen_lines(results)
    if other := results.get("other_pseudo"):
        found.append(
            f"the weights of TRAIN.FROM were trained to refine the depth of {other}, these data "
            f"have that of {source_from_json(results['pseudo'])}, which has other errors."
        )
    if only_factor := (results.get("calibration") or {}).get("strength") == 0:
        found.append(
            f"this bundle multiplies by one factor, {factor(results)}: on the validation scenes "
            "the network's correction was no help, so it is not used."
        )
    if results.get("calibration", "") is None:
        found.append(
            f"{calibration_line(results)}, and its confidence was not fitted to hold 90% of the "
            "pixels."
        )
    if refined is None:
        return [*found, "this refiner has not been evaluated on held-out scenes."]
    for which, name in (
        ("pseudo", "the pseudo depth as it is"),
        ("global_scale", f"the pseudo depth times the single factor {factor(results)}"),
    ):
        other = errors[which]
        if which == "global_scale" and only_factor:
            continue  # they are the same
        if other is not None and not refined < other:
            found.append(
                f"on held-out scenes this refiner is not better than {name}: {SELECTION_METRIC} "
                f"{refined:.4f} against {other:.4f}. Leave it out: correct the pseudo depth with "
                "metric points (`infer --points`) or with a few distances of a tape (`measure`)."
            )
    by_points, both = errors["points"], errors["refined_points"]
    if by_points is not None and both is not None and not both < by_points:
        found.append(
            "with as many metric points a frame as in this evaluation, leave the refiner out: on "
            f"held-out scenes {SELECTION_METRIC} is "
            f"{both:.4f} with it and {by_points:.4f} by the points alone."
        )
    shuffled = errors["shuffled"]
    if shuffled is not None and not shuffled > LEAST_DEPENDENCE * refined:
        found.append(
            "this refiner may not depend on the pseudo depth: its "
            f"{SELECTION_METRIC} is {refined:.4f}, and {shuffled:.4f} with another scene's pseudo "
            "depth. Depth that is predicted from the picture alone rarely generalizes to other "
            "scenes."
        )
    return found


def seen_lines(results: Mapping[str, Any]) -> list[str]:
    """Which held-out scenes the weights of TRAIN.FROM have seen, or may have seen; see
    `seen_before`."""
    scenes, seen = results.get("scenes", {}), results.get("seen_before", {})
    if seen is None and (scenes["val"] or scenes["test"]):
        return [
            "unknown whether the weights of TRAIN.FROM were trained on the validation and test "
            "scenes: give a run's folder that records its scenes, not a copied file."
        ]
    found = [
        f"the weights of TRAIN.FROM were trained on, or chosen by, "
        f"{counted(len(seen[part]), f'{name} scene')}: {first_few(seen[part], NAMED_SCENES)}. "
        "Metrics there say nothing of scenes never seen: train on such scenes, by DATA.SPLIT."
        for part, name in (("val", "validation"), ("test", "test"))
        if seen and seen[part]
    ]
    if seen and seen["alike"]:
        found.append(
            f"the weights of TRAIN.FROM have seen other pictures in scenes of the same names: "
            f"{first_few(seen['alike'], NAMED_SCENES)}. If they are the same rooms, they are not "
            "held out."
        )
    return found


def factor(results: Mapping[str, Any]) -> str:
    """The single factor that fits the pseudo depth to the training scenes best."""
    return f"{math.exp(results.get('log_scale', 0.0)):.3f}"
