"""Studies: trials are runs, each counts once, and the study belongs to one commit and space."""

import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna_dashboard import get_note

from tests.search.conftest import commit
from zoerefine.config import load_config
from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.search.best import finish
from zoerefine.search.study import Study, counted, reason_of
from zoerefine.train.job import prepare


def trials_of(run):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{run.path / 'study.db'}")
    return counted(study.trials)


def states(study):
    return [trial.state.name for trial in study.trials()]


def test_trials_are_runs_with_provenance_and_the_best_is_trained(study):
    assert study.status().state == "finished"
    trials = trials_of(study)
    assert len(trials) == 3
    assert len(list((study.path / "artifacts").iterdir())) == 3  # pictures, for the dashboard
    storage = f"sqlite:///{study.path / 'study.db'}"
    opened = optuna.load_study(study_name=None, storage=storage)
    for trial in trials:
        run = RunDir(study.path / "trials" / f"{trial.number:04d}")
        assert run.status().state == "finished"
        results = run.read_json(run.results_file)
        assert results["val"]["refined"]["abs_rel"] == trial.value
        assert "test" not in results
        assert trial.params["TRAIN.LR"] == load_config(run.config_file).TRAIN.LR
        assert run.read_json(run.provenance_file)["commit"] is not None
        assert f"run `{run.path}`" in get_note(optuna.Trial(opened, trial._trial_id))
    best = RunDir(study.path / "best")
    assert set(best.read_json(best.results_file)) >= {"test", "test_scenes"}
    cfg = load_config(study.path / "best.yaml")
    winner = min(trials, key=lambda trial: trial.value)
    assert winner.params["TRAIN.LR"] == cfg.TRAIN.LR
    assert cfg.TRAIN.EPOCHS == 2
    assert load_config(best.config_file) == cfg


def test_best_yaml_alone_gives_the_same_run(study, script):
    done = script("train", "--config", study.path / "best.yaml", "RUN.NAME", "again")
    assert done.returncode == 0, done.stderr
    again = RunDir(Path(done.stdout.splitlines()[-1]))
    best = RunDir(study.path / "best")
    assert again.weights_digest_file.read_text() == best.weights_digest_file.read_text()


def test_a_trial_that_diverges_or_needs_too_much_memory_fails_and_the_others_go_on(searched):
    study = searched(
        "{TRAIN: {LR: [0.001, 1.0e+30]}, MODEL: {BASE: [4, 1000000]}}",
        *("STUDY.SAMPLER", "grid", "TRAIN.CLIP", 1e30, "TRAIN.WARMUP", 0.0),
        *("TRAIN.PRECISION", "fp32", "TRAIN.EPOCHS", 8),
    )
    by = {(t.params["TRAIN.LR"], t.params["MODEL.BASE"]): t for t in study.trials()}
    assert len(by) == len(study.trials()) == 4
    assert by[0.001, 4].state.name == "COMPLETE"
    assert "look at the frames" in reason_of(by[1e30, 4])
    assert "out of memory: lower LOADER.BATCH" in reason_of(by[0.001, 1000000])
    assert RunDir(study.run.path / by[1e30, 4].user_attrs["run"]).status().state == "failed"
    assert study.best() == [by[0.001, 4]]


def test_a_study_whose_trials_all_fail_ends_with_the_reason(searched):
    with pytest.raises(UserError, match="the first 5 trials all failed; the last one: out of mem"):
        searched("{MODEL: {BASE: {low: 1000000, high: 2000000}}}")


def test_no_combination_is_run_twice(searched, tmp_path):
    study = searched("{MODEL: {MAX_LOG: [0.5, 1.0, 2.0]}}", "STUDY.TRIALS", 8)
    assert states(study) == ["COMPLETE"] * 3
    assert sorted(t.params["MODEL.MAX_LOG"] for t in study.trials()) == [0.5, 1.0, 2.0]
    assert len(list((tmp_path / "study" / "trials").iterdir())) == 3


def test_a_grid_is_every_combination_whatever_the_number_of_trials(searched):
    space = "{TRAIN: {LR: [0.001, 0.002]}, MODEL: {BASE: {low: 4, high: 8, step: 2}}}"
    words = "STUDY.SAMPLER", "grid", "STUDY.TRIALS", 1, "STUDY.PRUNER", "none"
    study = searched(space, *words)
    assert states(study) == ["COMPLETE"] * 6
    assert len({str(trial.params) for trial in study.trials()}) == 6
    with pytest.raises(
        UserError, match=r"SEARCH\.TRAIN\.LR has no end .*: give a list, or a range with a step"
    ):
        Study(load_config_with(study, "{TRAIN: {LR: {low: 0.1, high: 0.2}}}"), elsewhere(study)) \
            .enqueue_all()  # fmt: skip


def load_config_with(study, space):
    return load_config(study.run.config_file, ["SEARCH", space])


def elsewhere(study):
    return RunDir(study.run.path.with_name("elsewhere"))


def test_a_config_on_the_grid_is_not_tried_again_as_its_neighbour_by_rounding(
    searched, tiny, tmp_path
):
    """The third of these steps is 0.1 + 2 * 0.1, which is not 0.3."""
    first = tmp_path / "first.yaml"
    first.write_text(tiny.read_text() + "\nLOSS: {OBJECT_WEIGHT: 0.3}\n")
    space = "{LOSS: {OBJECT_WEIGHT: {low: 0.1, high: 0.4, step: 0.1}}}"
    study = searched(space, "STUDY.SAMPLER", "grid", enqueued=[first])
    tried = [t.params["LOSS.OBJECT_WEIGHT"] for t in study.trials()]
    assert sorted(tried) == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_the_best_keeps_a_seed_that_was_searched(searched):
    study = searched("{SEED: [7]}", "STUDY.TRIALS", 1)
    finish(study, *prepare(study.cfg))
    assert load_config(study.run.path / "best.yaml").SEED == 7


def test_limits_and_several_objectives_give_a_pareto_front(searched):
    study = searched(
        "{MODEL: {BASE: [4, 6, 8, 12]}}",
        *("STUDY.SAMPLER", "grid", "STUDY.OBJECTIVES", "[abs_rel, parameters]"),
        *("STUDY.CONSTRAINTS", "[{name: parameters, at_most: 300000}]"),
    )
    by = {trial.params["MODEL.BASE"]: trial for trial in study.trials()}
    assert reason_of(by[12]) == "too many parameters: not trained"
    assert not (study.run.path / by[12].user_attrs["run"]).exists()
    front = study.best()
    points = [trial.values for trial in front]
    assert points == sorted(points)
    for trial in (by[4], by[6], by[8]):
        beaten = any(all(a <= b for a, b in zip(p, trial.values, strict=True)) and
                     p != trial.values for p in points)  # fmt: skip
        assert beaten == (trial not in front)


def test_each_point_of_the_front_is_trained_with_its_seeds_and_exported(searched):
    study = searched(
        "{MODEL: {BASE: [4, 6]}}",
        *("STUDY.SAMPLER", "grid", "STUDY.OBJECTIVES", "[abs_rel, parameters]"),
        *("STUDY.THEN", "train,export", "STUDY.SEEDS", 2),
    )
    finish(study, *prepare(study.cfg))
    (small,) = (trial for trial in study.best() if trial.params["MODEL.BASE"] == 4)
    point = study.run.path / f"pareto-{small.number:04d}"
    assert load_config(point.with_suffix(".yaml")).MODEL.BASE == 4
    weights = set()
    for folder, seed in ((point, 0), (point.with_name(f"{point.name}-seed1"), 1)):
        assert seed == load_config(folder / "config.yaml").SEED
        assert (folder / "engine" / "refiner.ts").exists()
        weights.add((folder / "weights.sha256").read_text())
    assert len(weights) == 2


def test_a_constraint_on_what_is_known_late_keeps_a_trial_from_being_best(searched):
    study = searched(
        "{TRAIN: {LR: [0.001, 0.002]}}",
        *("STUDY.SAMPLER", "grid", "STUDY.CONSTRAINTS", "[{name: abs_rel, at_most: 0.0}]"),
    )
    assert states(study) == ["COMPLETE"] * 2
    with pytest.raises(UserError, match="no trial was completed within the constraints"):
        study.best()


def test_the_exported_engines_latency_is_an_objective(searched):
    study = searched("{MODEL: {BASE: [4]}}", "STUDY.OBJECTIVES", "[abs_rel, latency_ms]")
    (trial,) = study.best()
    assert trial.values[1] > 0
    assert (study.run.path / trial.user_attrs["run"] / "engine" / "refiner.ts").exists()


def test_configs_and_other_studies_are_tried_first(searched, study, tmp_path):
    config = tmp_path / "known.yaml"
    config.write_text("TRAIN: {LR: 0.0033}\nMODEL: {MAX_LOG: 1.0}\n")
    space = "{TRAIN: {LR: {low: 0.0001, high: 0.01}}, MODEL: {MAX_LOG: [0.5, 1.0]}}"
    ours = searched(space, "STUDY.TRIALS", 5, enqueued=(config, study.path))
    rates = [trial.params["TRAIN.LR"] for trial in ours.trials()]
    known = sorted(trials_of(study), key=lambda trial: trial.value)
    assert rates[:4] == [0.0033, *(trial.params["TRAIN.LR"] for trial in known)]
    assert len(set(rates)) == 5
    config.write_text("TRAIN: {LR: 3.0}\n")
    with pytest.raises(UserError, match=r"known\.yaml: its values lie outside"):
        searched(space.replace("0.01", "0.02"), "RUN.NAME", "b", enqueued=(config,))


def test_what_is_asked_follows_from_the_seed(searched, tmp_path):
    space = "{TRAIN: {LR: {low: 0.0001, high: 0.01}}}"
    first = searched(space, "STUDY.TRIALS", 3)
    again = Study(load_config(first.run.config_file), RunDir(tmp_path / "again"))
    other = Study(load_config(first.run.config_file, ["SEED", "1"]), RunDir(tmp_path / "other"))
    rate = first.trials()[0].params["TRAIN.LR"]
    assert again.claim().values == {"TRAIN.LR": rate}
    assert other.claim().values != {"TRAIN.LR": rate}
    assert again.claim().values != {"TRAIN.LR": rate}  # a second worker begins elsewhere


def test_a_study_of_another_space_or_commit_is_refused_with_the_difference(tiny, tmp_path, tree):
    def search(space, *words):
        config = tmp_path / "study.yaml"
        config.write_text(f"{tiny.read_text()}\nSEARCH: {space}\n")
        return subprocess.run(
            [sys.executable, tree / "platform" / "search.py", "--config", config,
             "TRAIN.EPOCHS", "1", *words],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip

    first = search("{MODEL: {MAX_LOG: [0.5]}}", "--trials", "1")
    assert first.returncode == 0, first.stderr
    more = search("{MODEL: {MAX_LOG: [0.5]}}", "--trials", "2")  # more of the same is no other
    assert more.returncode == 0, more.stderr
    other = search("{MODEL: {MAX_LOG: [0.5, 1.0]}}")
    assert other.returncode == 2
    assert "SEARCH.MODEL.MAX_LOG: [0.5] there, [0.5, 1.0] here" in other.stderr
    commit(tree)
    later = search("{MODEL: {MAX_LOG: [0.5]}}")
    assert later.returncode == 2
    assert "commit: " in later.stderr
    assert "give another RUN.NAME" in later.stderr
    assert "Traceback" not in later.stderr
    (run,) = (tmp_path / "runs" / "tiny").iterdir()
    assert RunDir(run).status().state == "finished"  # as it was


def test_a_plan_is_printed_and_nothing_is_run(tiny, script, tmp_path):
    tiny.write_text(tiny.read_text() + "SEARCH: {MODEL: [{BASE: [4, 8]}, {NAME: guided}]}\n")
    done = script("search", "--config", tiny, "--plan", "--grid")
    assert done.returncode == 0, done.stderr
    assert "in all 3 combinations" in done.stdout
    assert "NAME guided" in done.stdout
    assert "3 trials by grid" in done.stdout
    assert "a trial: 2 epochs of 8 frames at" in done.stdout
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "caches").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "SEARCH is empty"),
        (["SEARCH.TRAIN.LRR", "[1.0]"], "TRAIN.LRR is no config key of a training"),
        (["SEARCH.TRAIN.LR", "[1.0]", "DATA.VAL_FRACTION", "0.0"], "set DATA.VAL_FRACTION above 0"),
        (["SEARCH.TRAIN.LR", "[1.0]", "STUDY.OBJECTIVES", "[speed]"],
         "STUDY.OBJECTIVES.0 must be one of abs_rel"),
        (["SEARCH.TRAIN.LR", "[1.0]", "STUDY.CONSTRAINTS", "[{name: x, at_most: 1}]"],
         "STUDY.CONSTRAINTS.0.name must be one of abs_rel"),
        (["SEARCH.TRAIN.LR", "[1.0]", "STUDY.PRUNER", "axe"], "STUDY.PRUNER must be one of median"),
        (["SEARCH.TRAIN.LR", "[1.0]", "--workers", "0"], "STUDY.WORKERS must be an integer from 1"),
        (["SEARCH.TRAIN.LR", "[1.0]", "--storage", "mysql://h/d"], "must be empty, sqlite"),
        (["SEARCH.TRAIN.LR", "[1.0]", "--storage", "postgresql://me@127.0.0.1:1/d"],
         "cannot be used"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(tiny, script, words, message):
    done = script("search", "--config", tiny, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_password_in_the_storages_url_is_refused_and_never_shown(tiny, script, tmp_path):
    url = "postgresql://me:hunter2@127.0.0.1/d"
    done = script("search", "--config", tiny, "--storage", url, "SEARCH.TRAIN.LR", "[1.0]")
    assert done.returncode == 2
    assert "PGPASSWORD" in done.stderr
    assert "hunter2" not in done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != tiny]
    assert not any(b"hunter2" in path.read_bytes() for path in files)
