"""The command line of a search: wrong values are refused at once, and its help can be followed."""

import json
import re
import shlex

import pytest

from tests.conftest import CHECKOUT
from tests.lab.search.conftest import configs_of_rates
from zoerefine.base.config import load_config, to_dict
from zoerefine.base.errors import UserError
from zoerefine.commands import search

DEMO = CHECKOUT / "configs" / "demo.yaml"
LR = ("SEARCH", "{TRAIN: {LR: [0.001]}}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "SEARCH is empty"),
        (["SEARCH.TRAIN.LRR", "[1.0]"], "TRAIN.LRR is no config key of a training"),
        (["SEARCH", "{TRAIN: {LR: {X: [1.0]}}}"], "TRAIN.LR.X is no config key of a training"),
        (["SEARCH.TRAIN.LR", "[]"], "SEARCH.TRAIN.LR must be a list of values to try"),
        (["SEARCH.TRAIN.LR", "[0.1, fast]"], "SEARCH.TRAIN.LR.1 must be a number"),
        (["SEARCH.TRAIN.LR", "{low: 2, high: 1}"], "SEARCH.TRAIN.LR has low 2.0 above high 1.0"),
        (["SEARCH.MODEL.OPTIONS.depth", "[]"], "SEARCH.MODEL.OPTIONS.depth must be a list"),
        (["SEARCH", "{SEED: {low: 0, high: 1000000000}}", "--grid"],
         "STUDY.SAMPLER grid cannot try 1,000,000,001 combinations, the limit is 100,000"),
        (["SEARCH", "{TRAIN: {LR: {low: 0.1, high: 0.2}}}", "--grid"],
         "SEARCH.TRAIN.LR has no end of them"),
        (["SEARCH", "{DATA: {SPLIT_SEED: [0, 1]}}"],
         "SEARCH.DATA cannot be searched: trials of other data cannot be compared"),
        (["--search", "DATA.ROOT=[a, b]"], "SEARCH.DATA cannot be searched: trials of other data"),
        (["--search", "CACHE.HEIGHT=[24, 48]"],
         "SEARCH.CACHE cannot be searched: trials of other data"),
        (["SEARCH", "{LOADER: {HEIGHT: [24, 48], WIDTH: [32]}}"],
         "SEARCH.LOADER.HEIGHT cannot be searched: trials are measured at this size"),
        (["SEARCH", "{TRAIN: {EPOCHS: [1, 2]}}", "STUDY.EPOCHS", "1"],
         "STUDY.EPOCHS 1 sets how long every trial is, so SEARCH cannot list TRAIN.EPOCHS"),
        (["SEARCH", "{TRAIN: [{STEPS: 3, LR: [0.1]}, {LR: [0.2]}]}", "STUDY.EPOCHS", "1"],
         "STUDY.EPOCHS 1 sets how long every trial is, so SEARCH cannot list TRAIN.STEPS"),
        (["SEARCH", "{TRAIN: {EPOCHS: {low: 1, high: 2}}}", "TRAIN.STEPS", "3"],
         "TRAIN.STEPS 3 sets how long every trial is, so SEARCH cannot list TRAIN.EPOCHS"),
        ([*LR, "DATA.VAL_FRACTION", "0.0"], "set DATA.VAL_FRACTION above 0"),
        ([*LR, "STUDY.OBJECTIVES", "[speed]"], "STUDY.OBJECTIVES.0 must be one of abs_rel"),
        ([*LR, "STUDY.CONSTRAINTS", "[{name: x, at_most: 1}]"],
         "STUDY.CONSTRAINTS.0.name must be one of abs_rel"),
        ([*LR, "STUDY.SAMPLER", "best"], "STUDY.SAMPLER must be one of tpe, random, grid"),
        ([*LR, "STUDY.PRUNER", "axe"], "STUDY.PRUNER must be one of auto, median"),
        ([*LR, "--workers", "0"], "STUDY.WORKERS must be an integer from 1"),
        ([*LR, "--storage", "mysql://h/d"], "must be empty, sqlite"),
        ([*LR, "--storage", "postgresql://me:hunter2@h/d"], "set PGPASSWORD"),
        ([*LR, "--enqueue", "tiny.yaml", "TRAIN.EPOCHS", "1"],
         "no config file or study TRAIN.EPOCHS for --enqueue: give an existing one; KEY VALUE "
         "words stand before --enqueue"),
        ([*LR, "--enqueue", "nowhere.yaml"], "nowhere.yaml"),
        ([*LR, "--enqueue", str(CHECKOUT / "Makefile")], "Makefile"),
        ([*LR, "--enqueue", str(CHECKOUT)], "is not a study: give the folder"),
        (["SEARCH", "{TRAIN: {LR: [3.0]}}", "--enqueue", str(DEMO)], "demo.yaml: its values lie"),
        ([*LR, "--from", "nowhere"], "nowhere is not a study"),
        ([*LR, "TRAIN.LR", "0.3"], "TRAIN.LR: searched, and set by KEY VALUE words for all trials"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("plan", [[], ["--plan"]], ids=["run", "plan"])
def test_a_wrong_value_is_refused_before_anything_is_written(tiny, tmp_path, words, message, plan):
    with pytest.raises(UserError) as caught:
        search.main(["--config", str(tiny), *plan, *words])
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [tiny]


@pytest.mark.parametrize("root", ["", "nowhere"])
def test_a_missing_data_folder_is_refused_before_anything_is_written(tiny, tmp_path, root):
    with pytest.raises(UserError, match=r"DATA\.ROOT"):
        search.main(["--config", str(tiny), *LR, "DATA.ROOT", root])
    assert list(tmp_path.iterdir()) == [tiny]


def test_joining_a_folder_that_is_not_a_study_is_refused(tmp_path):
    with pytest.raises(UserError, match="is not a study: give the folder that a search wrote"):
        search.main(["--join", str(tmp_path)])


def test_a_database_that_cannot_be_reached_is_one_line(tiny, script):
    url = "postgresql://me@127.0.0.1:1/d"
    done = script("search", "--config", tiny, "--storage", url, *LR, code=2)
    assert re.search("cannot be used|needs psycopg", done.stderr)
    assert "Traceback" not in done.stderr


def test_the_examples_of_the_help_are_accepted():
    text = search.EPILOG.partition("data/synthetic`:")[2].replace("\\\n", " ")
    text, _, script = text.partition("any script of any repository:")
    assert search.parser().parse_intermixed_args(shlex.split(script)[2:]).metric == "val_acc"
    examples = [shlex.split(line) for line in text.splitlines() if line.strip()]
    assert len(examples) > 3
    for zoerefine, verb, *words in examples:
        assert (zoerefine, verb) == ("zoerefine", "search")
        args = search.parser().parse_intermixed_args(words)
        if args.config:
            args.config = CHECKOUT / args.config
            search.check_search_space(search.training_config(args))


def test_the_example_of_the_documentation_is_accepted(tmp_path):
    text = (CHECKOUT / "docs" / "searching.md").read_text()
    example = tmp_path / "example.yaml"
    example.write_text(text.partition("```yaml\n")[2].partition("```")[0])
    search.check_search_space(load_config(example))


def test_spaces_in_words_and_in_a_file_join_the_configs_own(tiny, tmp_path):
    tiny.write_text(tiny.read_text() + "SEARCH: {TRAIN: {LR: [0.1]}, MODEL: {BASE: [4]}}\n")
    space = tmp_path / "space.yaml"
    space.write_text("SEARCH: {TRAIN: {CLIP: [1, 2]}}\n")

    def searched(*words):
        args = search.parser().parse_intermixed_args(["--config", str(tiny), *words])
        return to_dict(search.training_config(args).SEARCH)

    added = ("--search", "TRAIN.LR=1e-4..1e-2 log")
    rate = {"low": 1e-4, "high": 1e-2, "log": True}
    assert searched(*added) == {"TRAIN": {"LR": rate}, "MODEL": {"BASE": [4]}}
    assert searched("--space", str(space), *added) == {"TRAIN": {"CLIP": [1.0, 2.0], "LR": rate}}
    with pytest.raises(UserError, match=r"--search: SEARCH\.TRAIN\.LRR cannot be searched"):
        searched("--search", "TRAIN.LRR=1..2")


@pytest.mark.parametrize(
    ("words", "space", "line"),
    [
        (["--trials", "20"], "[0.1]", "1 of 20 trials by tpe (the space has 1 combination), "),
        (["--trials", "1"], "[0.1, 0.2]", "\n1 trial by tpe, "),
        (["--trials", "1", "--grid"], "[0.1, 0.2]", "\n2 trials by grid, "),
        (["--trials", "3", "--enqueue", "0.1.yaml"], "[0.1, 0.2]",
         "tried first (--enqueue): 1\n"),
        (["--trials", "1", "--enqueue", "0.1.yaml", "0.2.yaml"], "[0.1, 0.2]",
         "tried first (--enqueue): 1 of 2, as many as there are trials\n"),
        (["--timeout", "60"], "[0.1, 0.2]", ", none started after 60 s\n"),
    ],
)  # fmt: skip
def test_a_plan_says_how_many_trials_there_can_be(
    words, space, line, tiny, tmp_path, here, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    configs_of_rates(tmp_path, 0.1, 0.2)
    searched = ["--search", f"TRAIN.LR={space}"]
    assert line in here("search", "--config", tiny, "--plan", *searched, *words).out


@pytest.mark.depth  # it reads the config of our training
def test_a_plan_needs_no_data(tmp_path, here):
    (tmp_path / "config.yaml").write_text("SEARCH: {TRAIN: {LR: [0.1, 0.2]}}\n")
    found = json.loads(here("search", "--config", tmp_path / "config.yaml", "--plan", "--json").out)
    assert (found["combinations"], found["estimate"], found["limits"]) == (2, None, {})
