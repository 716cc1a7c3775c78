"""The doctor: every part of the machine is checked, and a missing one has its cost beside it."""

import pytest

from zoerefine.base.machine import doctor


def test_every_part_is_listed(tmp_path, here):
    shown = here("doctor", "--folder", tmp_path).out
    for part in ("CPU cores", "OpenMP", "free memory", "libjpeg-turbo", "disk reads", "GPU",
                 "Torch-TensorRT", "OpenVINO", "git", "Git LFS", "transformers",
                 "Ray"):  # fmt: skip
        assert part in shown


def test_a_missing_part_states_its_cost(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor.metadata, "version", not_installed)
    checks = (doctor.git(), doctor.git_lfs(), doctor.tensorrt(),
              doctor.package("OpenVINO", "openvino", "slow"))  # fmt: skip
    found = {check.part: check for check in checks}
    assert not any(check.good for check in found.values())
    assert found["git"].cost == "nothing can be run from a commit"
    assert (found["OpenVINO"].found, found["OpenVINO"].cost) == ("not installed", "slow")


def not_installed(name):
    raise doctor.metadata.PackageNotFoundError(name)


def test_a_gpu_that_torch_cannot_use_is_named_with_its_driver(tmp_path, monkeypatch):
    """As with a driver that is too old, or a torch without CUDA."""
    if doctor.torch.cuda.is_available():
        pytest.skip("torch can use the GPU")
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 470.82\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for cuda, found in (("13.0", "for CUDA 13.0"), (None, "without CUDA")):
        monkeypatch.setattr("torch.version.cuda", cuda)
        assert doctor.gpu().found == f"torch {found} cannot use it, driver 470.82"


def test_a_missing_folder_is_named(tmp_path, here):
    assert "x does not exist" in here("doctor", "--folder", tmp_path / "x", code=2).err


def test_limits_of_a_container_are_reported(monkeypatch):
    monkeypatch.setattr(doctor, "cpu_quota", lambda: 1.5)
    monkeypatch.setattr(doctor, "usable_cores", lambda: 2)
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(doctor, "memory_left", lambda: 2**30)
    assert doctor.cores().found == "2 of 64, quota of 1.5"
    assert doctor.memory().found.endswith("GiB in this container")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert not doctor.openmp().good
