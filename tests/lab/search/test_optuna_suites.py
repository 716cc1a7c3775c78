"""Optuna's own test suites, run over our storage and our samplers."""

import pytest
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)
from optuna.testing.pytest_storages import StorageTestCase

from zoerefine.base.registries import SAMPLERS
from zoerefine.lab.search.study.next_trial import TrialSampler
from zoerefine.lab.search.study.samplers import ResumableGP
from zoerefine.lab.search.study.storage import open_storage, storage_url

pytestmark = pytest.mark.filterwarnings("ignore")  # of numbers that the suites mean to be odd
NEEDS = {"gp": ("scipy", "torch"), "cmaes": ("cmaes",), "auto": ("scipy", "cmaes", "torch")}


class TestStorage(StorageTestCase):
    @pytest.fixture
    def storage(self, tmp_path):
        return open_storage(storage_url("", tmp_path), heartbeat_s=60)


class OfTrials:
    @pytest.fixture
    def sampler(self, request):
        """Makes the sampler of one trial, as a study does."""
        for package in NEEDS.get(request.param, ()):
            pytest.importorskip(package)
        return lambda: TrialSampler(SAMPLERS.load(request.param), 0, 0)


def of(names):
    return pytest.mark.parametrize("sampler", names, indirect=True)


@of(list(SAMPLERS))
class TestSamplers(OfTrials, BasicSamplerTestCase):
    pass


class TestRelativeSamplers(RelativeSamplerTestCase):
    @pytest.fixture
    def sampler(self):
        """A Gaussian process that fits at once, and not after ten random trials."""
        pytest.importorskip("scipy")
        return lambda: TrialSampler(lambda seed: ResumableGP(seed=seed, n_startup_trials=0), 0, 0)


@of(["cmaes"])
class TestSamplersOfRanges(OfTrials, RelativeSamplerTestCase):
    # CMA-ES leaves choices to random sampling.
    test_sample_relative_categorical = None  # type: ignore[assignment]
    test_sample_relative_mixed = None  # type: ignore[assignment]


@of([name for name in SAMPLERS if name != "cmaes"])
class TestSamplersOfSeveralObjectives(OfTrials, MultiObjectiveSamplerTestCase):
    pass


@of(["cmaes"])
class TestSamplersOfOneObjective(OfTrials, SingleOnlySamplerTestCase):
    pass
