"""The Python API: cheap to import, complete, and usable without the command line."""

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch

import zoerefine as zr
from tests.processes import run_new_python


def test_importing_the_package_loads_nothing_heavy():
    heavy = ("torch", "numpy", "optuna", "matplotlib", "cv2", "yaml", "yacs")
    program = f"import sys, zoerefine; print([m for m in {heavy} if m in sys.modules])"
    assert run_new_python(program).stdout.strip() == "[]"


def test_every_promised_name_is_there_and_documented():
    for name in zr.__all__:
        assert getattr(zr, name).__doc__, name
    assert set(zr.__all__) <= set(dir(zr))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        zr.trian  # noqa: B018


def test_the_package_is_typed():
    from importlib.resources import files

    assert files("zoerefine").joinpath("py.typed").is_file()


def test_a_config_comes_from_a_tree_and_dotted_overrides():
    cfg = zr.load_config({"TRAIN": {"LR": 0.5}, "SEED": 3}, {"TRAIN.EPOCHS": 7, "SEED": 4})
    assert (cfg.TRAIN.LR, cfg.TRAIN.EPOCHS, cfg.SEED) == (0.5, 7, 4)
    assert zr.load_config(cfg, {"SEED": 9}).TRAIN.LR == 0.5
    with pytest.raises(zr.UserError, match=r"TRAIN\.LRR"):
        zr.load_config({"TRAIN": {"LRR": 0.5}})
    with pytest.raises(zr.UserError, match=r"TRAIN\.EPOCHS"):
        zr.load_config({}, {"TRAIN.EPOCHS": -1})


def test_a_key_that_is_misspelt_in_a_config_is_refused(world, tmp_path):
    cfg = zr.load_config({"DATA": {"ROOT": str(world)}, "RUN": {"ROOT": str(tmp_path)}})
    cfg.defrost()
    cfg.TRAIN.EPOCH = 1
    for call in (zr.train, zr.search):
        with pytest.raises(zr.UserError, match=r"TRAIN\.EPOCH; did you mean TRAIN\.EPOCHS"):
            call(cfg)


def test_an_epoch_of_batches_holds_every_frame_once_and_can_be_kept(world, tmp_path):
    loader = zr.make_loader(zr.open_dataset(world), 4, size=(24, 32), cache_root=tmp_path)
    kept = list(loader)
    assert sorted(i for batch in kept for i in batch.index.tolist()) == list(range(16))
    assert len({batch.rgb01.sum().item() for batch in kept}) == 4


def settings(world, folder, name):
    """Of a short training."""
    return {"DATA.ROOT": str(world), "CACHE.ROOT": str(folder / "cache"),
            "CACHE.HEIGHT": 24, "CACHE.WIDTH": 32, "LOADER.BATCH": 4, "MODEL.NAME": "small",
            "MODEL.BASE": 4, "TRAIN.STEPS": 2, "TRAIN.PICTURES": 0,
            "RUN.ROOT": str(folder), "RUN.NAME": name}  # fmt: skip


def trained(world, folder, name, seed=0):
    """The digest of the weights of a short training."""
    cfg = zr.load_config({"SEED": seed}, settings(world, folder, name))
    return zr.train(cfg).weights_digest()


def test_the_callers_settings_of_torch_change_no_training_and_are_kept(world, tmp_path):
    expected = trained(world, tmp_path, "plain")
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.backends.mkldnn.enabled = False
    drawn, strict = torch.get_rng_state(), torch.are_deterministic_algorithms_enabled()
    try:
        with torch.device("meta"), torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert trained(world, tmp_path, "odd") == expected
            assert torch.is_autocast_enabled("cpu") and not torch.is_grad_enabled()
            assert torch.empty(0).is_meta
        assert torch.get_default_dtype() is torch.float64
        assert torch.get_float32_matmul_precision() == "medium"
        assert not torch.backends.mkldnn.enabled
        assert torch.equal(torch.get_rng_state(), drawn)
        assert torch.are_deterministic_algorithms_enabled() == strict
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        torch.backends.mkldnn.enabled = True


def test_trainings_in_threads_of_one_process_give_the_weights_that_they_give_alone(world, tmp_path):
    train = partial(trained, world, tmp_path)
    alone = [train("alone", seed) for seed in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(partial(train, "together"), range(2))) == alone


def test_a_search_runs_in_another_thread_than_the_main_one(world, tmp_path):
    words = settings(world, tmp_path, "s") | {"STUDY.TRIALS": 1, "STUDY.THEN": ""}
    cfg = zr.load_config({"SEARCH": {"TRAIN": {"LR": [1e-3]}}}, words)
    with ThreadPoolExecutor(1) as pool:
        study = pool.submit(zr.search, cfg).result()
    assert (study.path / "best.yaml").exists()


def random_states():
    """Of Python, NumPy and torch."""
    numpy = np.random.get_state()[1].tolist()
    return random.getstate(), numpy, torch.get_rng_state().tolist()


def test_a_search_and_an_analysis_leave_the_callers_random_numbers_as_they_were(world, tmp_path):
    words = settings(world, tmp_path, "s") | {"STUDY.TRIALS": 1}
    before = random_states()
    study = zr.search(zr.load_config({"SEARCH": {"TRAIN": {"LR": [1e-3]}}}, words))
    assert random_states() == before
    zr.analyze([study.path], tmp_path / "report")
    assert '"frames": []' not in (tmp_path / "report/report.html").read_text()
    assert random_states() == before


def test_one_folder_or_metric_need_no_list_and_another_style_is_named(study, tmp_path):
    name = "val.refined.abs_rel"
    for folder in (study, study.path, str(study.path)):
        assert zr.analyze(folder, tmp_path / "report", metrics=name).runs
    with pytest.raises(zr.UserError, match="there is no style 'x': give page, "):
        zr.analyze(study.path, tmp_path / "report", style="x")


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(zr.UserError, match="is not a run"):
        zr.load_run(tmp_path)


def test_a_table_of_runs_is_rows_that_a_notebook_draws(study):
    table = zr.load_runs(study.path)
    assert {"run", "state", "seed", "TRAIN.LR", "val/refined/abs_rel"} <= set(table.columns)
    assert {row["state"] for row in table} == {"finished"}
    assert "<th>TRAIN.LR</th>" in table._repr_html_()
    assert "&lt;b&gt;" in zr.api.RunTable([{"note": "<b>"}])._repr_html_()
