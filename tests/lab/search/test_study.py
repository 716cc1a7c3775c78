"""Studies: trials are runs, the best is trained and exported, and settings belong to one study."""

from pathlib import Path

import optuna
import pytest
from optuna_dashboard import get_note

from tests.lab.search.conftest import commit, end
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.registries import ENGINES
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.split import Split, write_split
from zoerefine.depth.training.job import find_data
from zoerefine.lab.search.driver import publish_best
from zoerefine.lab.search.study.claims import claim_trial, complete
from zoerefine.lab.search.study.trials import reason_of, trial_run
from zoerefine.lab.search.subject import TrialOutcome


@pytest.fixture
def one_engine(monkeypatch):
    """`auto` has one kind to choose from; tests of exporting have all."""
    monkeypatch.setattr(ENGINES, "data", {"torchscript": ENGINES["torchscript"]})


def test_trials_are_runs_with_provenance_and_the_best_is_trained(study):
    assert study.status().state == "finished"
    storage = f"sqlite:///{study.path / 'study.db'}"
    opened = optuna.load_study(study_name=None, storage=storage)
    assert len(opened.trials) == 3
    assert len(list((study.path / "artifacts").iterdir())) == 3  # pictures for the dashboard
    for trial in opened.trials:
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
    assert opened.best_trial.params["TRAIN.LR"] == cfg.TRAIN.LR
    assert cfg.TRAIN.EPOCHS == 2
    assert load_config(best.config_file) == cfg


def test_training_best_yaml_gives_the_same_weights(study, script):
    done = script("train", "--config", study.path / "best.yaml", "RUN.NAME", "again")
    again = RunDir(Path(done.stdout.splitlines()[-1]))
    best = RunDir(study.path / "best")
    assert again.weights_digest_file.read_text() == best.weights_digest_file.read_text()


def test_a_trial_that_diverges_or_needs_too_much_memory_fails_and_the_others_go_on(searched):
    study = searched(
        "{TRAIN: {LR: [0.001, 1.0e+30]}, MODEL: {BASE: [4, 65536]}}",
        *("STUDY.SAMPLER", "grid", "TRAIN.CLIP", 1e30, "TRAIN.WARMUP", 0.0),
        *("TRAIN.PRECISION", "fp32", "TRAIN.EPOCHS", 8),
    )
    trials = {(t.params["TRAIN.LR"], t.params["MODEL.BASE"]): t for t in study.trials()}
    assert len(trials) == len(study.trials()) == 4
    assert trials[0.001, 4].state.name == "COMPLETE"
    diverged = trials[1e30, 4]
    assert "look at the frames" in reason_of(diverged)
    assert trial_run(study.run, diverged.number).status().state == "failed"
    assert "MODEL.BASE 65536: out of memory" in reason_of(trials[0.001, 65536])
    assert study.best() == [trials[0.001, 4]]


def test_best_yaml_keeps_a_seed_that_was_searched(open_study):
    study = open_study("{SEED: [7]}", "STUDY.TRIALS", 1)
    end(study, abs_rel=0.1)
    publish_best(study)
    assert load_config(study.run.path / "best.yaml").SEED == 7


def test_best_yaml_keeps_the_validation_scenes_of_a_split_file(open_study, tmp_path):
    split = Split(("scene00",), ("scene01", "scene03"), ("scene02",))
    write_split(split, tmp_path / "split.json")
    study = open_study("{SEED: [7]}", "STUDY.TRIALS", 1, "DATA.SPLIT", tmp_path / "split.json")
    end(study, abs_rel=0.1)
    publish_best(study)
    _, found = find_data(load_config(study.run.path / "best.yaml"))
    assert (found.train, found.val, found.test) == (split.train, split.val, split.test)


def test_a_refiner_with_more_parameters_than_the_limit_is_not_trained(searched):
    study = searched(
        "{MODEL: {BASE: [4, 12]}}",
        *("STUDY.SAMPLER", "grid", "STUDY.CONSTRAINTS", "[{name: parameters, at_most: 300000}]"),
    )
    small, large = study.trials()
    assert small.state.name == "COMPLETE"
    assert reason_of(large) == "too many parameters: not trained"
    assert not trial_run(study.run, large.number).path.exists()


def test_several_objectives_give_a_pareto_front_within_the_limits(open_study):
    words = ("STUDY.OBJECTIVES", "[abs_rel, parameters]", "STUDY.CONSTRAINTS",
             "[{name: parameters, at_most: 5}]")  # fmt: skip
    study = open_study("{SEED: {low: 0, high: 1000}}", *words)
    points = [(0.5, 1.0), (0.3, 2.0), (0.4, 3.0), (0.2, 4.0), (0.1, 6.0)]
    for abs_rel, parameters in points:
        end(study, abs_rel=abs_rel, parameters=parameters)
    assert [trial.values for trial in study.best()] == [[0.2, 4.0], [0.3, 2.0], [0.5, 1.0]]


def test_each_point_of_the_front_is_trained_with_its_seeds_and_exported(open_study, one_engine):
    study = open_study(
        "{MODEL: {BASE: [4, 6]}}",
        *("STUDY.SAMPLER", "grid", "STUDY.OBJECTIVES", "[abs_rel, parameters]"),
        *("STUDY.THEN", "train,export", "STUDY.SEEDS", 2, "TRAIN.EPOCHS", 1),
    )
    for _ in range(2):
        claim = claim_trial(study, "a")
        base = claim.values["MODEL.BASE"]
        complete(study, claim, TrialOutcome({"abs_rel": 1.0, "parameters": float(base)}))
    study.subject.save(study.run)
    publish_best(study)
    (best,) = study.best()  # equal in AbsRel, so the smaller one alone
    point = study.run.path / f"pareto-{best.number:04d}"
    assert load_config(point.with_suffix(".yaml")).MODEL.BASE == 4
    weights = set()
    for folder, seed in ((point, 0), (point.with_name(f"{point.name}-seed1"), 1)):
        assert seed == load_config(folder / "config.yaml").SEED
        assert list((folder / "engine").glob("refiner.*"))
        weights.add((folder / "weights.sha256").read_text())
        assert RunDir(folder).results()["calibration"]["scenes"] == 1
    assert len(weights) == 2


def test_no_trial_within_the_limits_is_an_error(open_study):
    words = ("STUDY.CONSTRAINTS", "[{name: abs_rel, at_most: 0.0}]")
    study = open_study("{TRAIN: {LR: [0.001]}}", *words)
    end(study, abs_rel=0.1)
    with pytest.raises(UserError, match="no trial was completed within the constraints"):
        study.best()


def test_the_latency_of_the_exported_engine_is_an_objective(searched, one_engine):
    study = searched("{MODEL: {BASE: [4]}}", "STUDY.OBJECTIVES", "[abs_rel, latency_ms]")
    (trial,) = study.best()
    assert trial.values[1] > 0
    assert trial_run(study.run, trial.number).bundle.exists()


def test_more_trials_continue_a_study_and_another_space_is_refused(open_study):
    space = "{MODEL: {MAX_LOG: [0.5, 2.0]}}"
    study = open_study(space, "STUDY.TRIALS", 1)
    end(study, abs_rel=0.1)
    assert claim_trial(study, "a") is None
    more = open_study(space, "STUDY.TRIALS", 2)
    assert claim_trial(more, "a").number == 1
    assert claim_trial(more, "b") is None
    different = r"SEARCH\.MODEL\.MAX_LOG: \[0\.5, 2\.0\] there, \[1\.0\] here"
    with pytest.raises(UserError, match=different):
        open_study("{MODEL: {MAX_LOG: [1.0]}}")


def test_a_study_of_another_commit_is_refused(open_study, tree, monkeypatch):
    monkeypatch.setattr("zoerefine.depth.training.job.CHECKOUT", tree)
    open_study("{MODEL: {MAX_LOG: [0.5]}}")
    open_study("{MODEL: {MAX_LOG: [0.5]}}")
    commit(tree)
    with pytest.raises(
        UserError, match=r"give another RUN\.NAME:\n  commit: \w{40} there, \w{40} here$"
    ):
        open_study("{MODEL: {MAX_LOG: [0.5]}}")


def test_a_plan_is_printed_and_nothing_is_run(tiny, script, tmp_path):
    tiny.write_text(tiny.read_text() + "SEARCH: {MODEL: [{BASE: [4, 8]}, {NAME: guided}]}\n")
    done = script("search", "--config", tiny, "--plan", "--grid")
    assert "in total 3 combinations" in done.stdout
    assert "MODEL: branch 1 | guided\n    where branch 1: BASE: 4 | 8\n" in done.stdout
    assert "minimize: abs_rel" in done.stdout
    assert "3 trials by grid" in done.stdout
    assert "a trial: 2 epochs of 8 frames at" in done.stdout
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "caches").exists()
