"""The prior of rooms that benchmarks/measured.py fits, and the package ships."""

from pathlib import Path

import numpy as np
import pytest

from zoerefine.depth.points.room_prior import NAMES, features

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_a_prior_is_found_from_rooms_that_were_drawn_from_it(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from common.room_prior import TrueDepth, fit_prior

    rng = np.random.default_rng(4)
    mean, spread = np.array([0.5, 0.9, 0, 0, 0, 0]), np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.1])
    rooms = []
    for _ in range(150):
        coefficients = mean + spread * rng.normal(size=len(NAMES))
        room = []
        for _ in range(8):
            rows = features(rng.uniform(0.5, 6, 20), *rng.uniform(0, 1, (2, 20)))
            log_m = rows @ coefficients + 0.2 * rng.normal() + 0.15 * rng.normal(size=20)
            room.append(TrueDepth(rows, np.exp(log_m)))
        rooms.append(room)
    found = fit_prior(rooms, "drawn")
    np.testing.assert_allclose(found.mean, mean, atol=0.1)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance))[:2], spread[:2], rtol=0.25)
    assert found.pixel_variance == pytest.approx(0.15**2, rel=0.1)
    assert found.frame_variance == pytest.approx(0.2**2, rel=0.2)
