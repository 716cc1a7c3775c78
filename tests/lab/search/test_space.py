"""The search space: it mirrors the config, and its values are checked like those of the config."""

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.base.config import defaults
from zoerefine.base.config.searched_keys import OWN_KEYS, TreeKeys
from zoerefine.base.errors import UserError
from zoerefine.base.yaml.keys import with_values
from zoerefine.base.yaml.read import Document
from zoerefine.lab.search.space.checks import endless_ranges
from zoerefine.lab.search.space.reader import read_space
from zoerefine.lab.search.space.script_section import SpaceSource
from zoerefine.lab.search.space.space import all_names, combinations, params_of, size_of, suggest


def space_of(tree, keys=OWN_KEYS):
    source = SpaceSource(tree, Document(tree, {}, "space"))
    return read_space(source.read(keys), keys)


def test_lists_and_ranges_become_typed_values():
    terms = [[{"name": "l1", "weight": 1.0}], [{"name": "mse", "weight": 1.0}]]
    space = space_of(
        {
            "TRAIN": {"LR": {"low": 1e-4, "high": "1e-2", "log": True}, "CLIP": [1, 2]},
            "MODEL": {"BASE": {"low": 8, "high": 32, "step": 8}, "NAME": ["small", "unet"]},
            "LOSS": {"TERMS": terms},
        }
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        trial = study.ask()
        values = suggest(space, trial)
        assert 1e-4 <= values["TRAIN.LR"] <= 1e-2
        assert values["TRAIN.CLIP"] in (1.0, 2.0)
        assert isinstance(values["TRAIN.CLIP"], float)
        assert values["MODEL.BASE"] in (8, 16, 24, 32)
        assert values["LOSS.TERMS"] in terms
        cfg = with_values(defaults(), values)
        assert values["MODEL.NAME"] == cfg.MODEL.NAME
        assert not cfg.SEARCH


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"TRAIN": {"LRR": [1.0]}},
         r"SEARCH\.TRAIN\.LRR cannot be searched: TRAIN\.LRR is no config key"),
        ({"TRAIN": {"LR": ["fast"]}}, r"SEARCH\.TRAIN\.LR\.0 must be a number from 0 to"),
        ({"TRAIN": {"LR": 0.1}}, r"SEARCH\.TRAIN\.LR must be a list of values to try, or \{low"),
        ({"TRAIN": {"LR": {"low": 1}}}, r"SEARCH\.TRAIN\.LR must be \{low, high, log, step\}"),
        ({"TRAIN": {"CLIP": {"low": 0, "high": 1}}}, r"CLIP\.low must be a number above 0"),
        ({"TRAIN": {"WARMUP": {"low": 0, "high": 1, "log": True}}}, "needs low above 0"),
        ({"TRAIN": {"EPOCHS": {"low": 1, "high": 2.5}}}, r"TRAIN\.EPOCHS\.high must be an integer"),
        ({"MODEL": {"NAME": {"low": 1, "high": 2}}}, "a range needs a number"),
        ({"TRAIN": {"CLIP": [1, 1.0]}}, "lists a value twice"),
        ({"TRAIN": 1}, r"SEARCH\.TRAIN must be a group of keys or a list of such groups, got 1"),
        ({"TRAIN": []},
         r"SEARCH\.TRAIN must be a group of keys or a list of such groups, got \[\]"),
        ({"TRAIN": [1]}, r"SEARCH\.TRAIN\.0 must be a group of keys such as"),
        ({"MODEL": [{"NAMEE": "small"}]}, r"SEARCH\.MODEL\.0\.NAMEE cannot be searched"),
        ({"MODEL": [{"BASE": "wide"}]}, r"SEARCH\.MODEL\.0\.BASE must be an integer"),
        ({"MODEL": [{"BASE": []}]}, r"SEARCH\.MODEL\.0\.BASE must be a list of values"),
        ({"MODEL": [{"BASE": {"low": 9, "high": 8}}]}, "has low 9 above high 8"),
        ({"MODEL": [{"BASE": {"low": 3, "high": 8}}]}, r"BASE\.low must be an integer from 4 to"),
        ({"MODEL": [{"BASE": 8}, {"BASE": 8}]}, "lists a value twice"),
        ({"TRAIN": {"LR": {"low": 0.1, "high": 0.2, "step": 0}}},
         r"LR\.step must be a number above 0"),
        ({"TRAIN": {"LR": {"low": 0.1, "high": float("inf")}}}, r"LR\.high must be a number"),
        ({"LOSS": {"TERMS": [[{"name": "l1", "weight": {"low": "a", "high": 1}}]]}}, "weight"),
        ({"STUDY": {"TRIALS": [1, 2]}}, r"SEARCH\.STUDY cannot be searched"),
        ({"MODEL": {"OPTIONS": {"depth": 2}}}, r"SEARCH\.MODEL\.OPTIONS\.depth must be a list of"),
        ({"MODEL": {"OPTIONS": {"n": {"low": 3, "high": 2}}}},
         r"OPTIONS\.n has low 3 above high 2"),
        ({"MODEL": {"OPTIONS": {"n": {"low": "a", "high": 2}}}},
         r"OPTIONS\.n\.low must be a number"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_key(tree, message):
    with pytest.raises(UserError, match=message):
        space_of(tree)


@given(low=st.floats(1e-6, 1e3), high=st.floats(1e-6, 1e3), log=st.booleans())
def test_a_value_lies_within_any_range_that_is_accepted(low, high, log):
    tree = {"TRAIN": {"LR": {"low": low, "high": high, "log": log}}}
    if low > high:
        with pytest.raises(UserError, match=r"has low .* above high"):
            space_of(tree)
        return
    (parameter,) = space_of(tree)
    value = parameter.suggest(optuna.create_study().ask())["TRAIN.LR"]
    assert low * (1 - 1e-9) <= value <= high * (1 + 1e-9)


BRANCHES = {
    "MODEL": [
        {"NAME": "small", "BASE": [8, 16]},
        {"NAME": "guided", "BASE": {"low": 16, "high": 48, "step": 16}, "MAX_LOG": 0.5},
        {"NAME": "unet"},
    ],
    "LOSS": {
        "TERMS": [
            [{"name": "l1_log", "weight": 1.0}],
            [
                {"name": "l1_log", "weight": 1.0},
                {"name": "gradient", "weight": {"low": 0.5, "high": 1.5, "step": 0.5}},
            ],
        ]
    },
}


def test_a_branch_has_its_own_choices_and_ranges():
    space = space_of(BRANCHES)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = set()
    for _ in range(60):
        cfg = with_values(defaults(), suggest(space, study.ask()))
        model, terms = cfg.MODEL, cfg.LOSS.TERMS
        seen.add((model.NAME, model.BASE, model.MAX_LOG, terms[-1]["weight"]))
        assert terms[0] == {"name": "l1_log", "weight": 1.0}
        if len(terms) == 2:
            assert terms[1]["name"] == "gradient"
    small = {(b, m) for name, b, m, _ in seen if name == "small"}
    guided = {(b, m) for name, b, m, _ in seen if name == "guided"}
    assert small == {(8, 2.0), (16, 2.0)}  # what a branch leaves out is as the config has it
    assert guided == {(16, 0.5), (32, 0.5), (48, 0.5)}
    assert {weight for *_, weight in seen} == {0.5, 1.0, 1.5}
    # Only what was chosen is a trial's parameter.
    for trial in study.trials:
        inside = {name.partition(":")[0] for name in trial.params if ": BASE" in name}
        assert inside == {trial.params["MODEL"]} - {"unet"}


def test_a_branch_is_named_by_the_values_that_it_sets():
    branches = [{"NAME": "small", "BASE": [8]}, {"NAME": "small", "MAX_LOG": [1]}, {"BASE": [4]}]
    (choice,) = space_of({"MODEL": branches})
    labels = [option.label for option in choice.options]
    assert labels == ["small branch 1", "small branch 2", "branch 3"]
    (choice,) = space_of(BRANCHES)[:1]
    assert [option.label for option in choice.options] == ["small", "guided, MAX_LOG 0.5", "unet"]


def test_parameters_have_the_names_that_the_config_gives():
    assert all_names(space_of(BRANCHES)) == [
        "MODEL", "small: BASE", "guided, MAX_LOG 0.5: BASE",
        "LOSS.TERMS", "l1_log + gradient: gradient.weight",
    ]  # fmt: skip
    terms = space_of(BRANCHES)[1]
    assert [option.label for option in terms.options] == ["l1_log", "l1_log + gradient"]


def test_options_with_the_same_names_are_labelled_with_their_numbers():
    one, two = ([{"name": "mse", "weight": weight}] for weight in (1.0, {"low": 2, "high": 3}))
    (terms,) = space_of({"LOSS": {"TERMS": [one, two]}})
    assert [option.label for option in terms.options] == ["mse 1", "mse 2..3"]
    assert all_names([terms]) == ["LOSS.TERMS", "mse 2..3: mse.weight"]


def test_parameters_that_would_be_called_alike_have_the_key_of_their_choice():
    keys = TreeKeys({"A": {"NAME": "x", "SIZE": 1}, "B": {"NAME": "x", "SIZE": 1}})
    branch = [{"NAME": "x", "SIZE": {"low": 1, "high": 2}}]
    space = space_of({"A": branch, "B": branch}, keys)
    assert all_names(space) == ["A", "A x: SIZE", "B", "B x: SIZE"]


def test_the_combinations_of_a_finite_space_are_counted_and_listed():
    space = space_of(BRANCHES)
    listed = list(combinations(space))
    assert size_of(space) == len(listed) == (2 + 3 + 1) * (1 + 3)
    assert len({str(one) for one in listed}) == len(listed)
    endless = {"TRAIN": {"LR": {"low": 0.1, "high": 0.2}}}
    assert size_of(space_of(endless)) == float("inf")
    assert size_of(space_of({"TRAIN": {"EPOCHS": {"low": 2, "high": 5}}})) == 4


def test_endless_ranges_are_found_wherever_they_are():
    tree = {
        "SEED": {"low": 0, "high": 3},
        "TRAIN": {"LR": {"low": 0.1, "high": 0.2, "step": 0.1}, "CLIP": {"low": 0.1, "high": 0.2}},
        "MODEL": [{"BASE": {"low": 4, "high": 64, "log": True}, "MAX_LOG": {"low": 1, "high": 2}}],
    }
    assert [one.key for one in endless_ranges(space_of(tree))] == ["TRAIN.CLIP", "MODEL.MAX_LOG"]


def test_a_large_range_is_counted_without_being_listed():
    assert size_of(space_of({"SEED": {"low": 0, "high": 10**12}})) == 10**12 + 1


def test_every_combination_gives_a_config_that_gives_the_combination_back():
    space = space_of(BRANCHES)
    for params in combinations(space):
        study = optuna.create_study()
        study.enqueue_trial(params)
        cfg = with_values(defaults(), suggest(space, study.ask()))
        assert params_of(space, cfg) == params
        assert study.trials[0].params == params


def test_the_options_of_a_network_are_searched_with_the_types_that_are_listed():
    options = {"depth": [2, 3], "rate": {"low": 0.1, "high": 0.5}, "width": {"low": 8, "high": 16},
               "norm": ["batch", "group"]}  # fmt: skip
    space = space_of({"MODEL": {"OPTIONS": options}})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = [with_values(defaults(), suggest(space, study.ask())).MODEL.OPTIONS for _ in range(30)]
    assert {one["depth"] for one in seen} == {2, 3}
    assert {type(one["depth"]) for one in seen} == {type(one["width"]) for one in seen} == {int}
    assert all(isinstance(one["rate"], float) and 0.1 <= one["rate"] <= 0.5 for one in seen)
    assert {one["norm"] for one in seen} == {"batch", "group"}


def test_the_options_of_a_network_belong_to_its_branch():
    guided = {"NAME": "guided", "OPTIONS": {"depth": [2, 3], "norm": "group"}}
    space = space_of({"MODEL": [{"NAME": "small"}, guided]})
    found = []
    for params in combinations(space):
        study = optuna.create_study()
        study.enqueue_trial(params)
        cfg = with_values(defaults(), suggest(space, study.ask()))
        found.append((cfg.MODEL.NAME, dict(cfg.MODEL.OPTIONS)))
        assert params_of(space, cfg) == params
    assert found == [
        ("small", {}),
        ("guided", {"norm": "group", "depth": 2}),
        ("guided", {"norm": "group", "depth": 3}),
    ]


def test_a_config_outside_the_space_has_no_parameters():
    space = space_of({"TRAIN": {"LR": {"low": 1e-4, "high": 1e-2}}, "MODEL": {"BASE": [8, 16]}})
    cfg = defaults()
    assert params_of(space, cfg) == {"TRAIN.LR": 1e-3, "MODEL.BASE": 16}
    cfg.TRAIN.LR = 0.5
    assert params_of(space, cfg) is None
    cfg.TRAIN.LR, cfg.MODEL.BASE = 1e-3, 12
    assert params_of(space, cfg) is None


SCRIPT = TreeKeys({"n": 3, "x": 1.0, "any": None})


def params_in(space, tree):
    return params_of(space_of(space, SCRIPT), {"n": 0, "x": 2.0, "any": None} | tree)


def test_a_config_of_a_script_lies_inside_a_range_where_it_is_on_a_step():
    steps = {"n": {"low": 0, "high": 10, "step": 5}, "x": {"low": 0, "high": 10, "step": 2}}
    inside = params_in(steps, {"n": 5.0, "x": 4})
    assert inside == {"n": 5, "x": 4.0}
    assert [type(value) for value in inside.values()] == [int, float]
    for outside in ({"n": 3}, {"n": 2.5}, {"n": 15}, {"x": 1.0}, {"x": True}):
        assert params_in(steps, outside) is None
    assert params_in({"n": {"low": 0, "high": 10}}, {"n": 2.5}) is None
    assert params_in({"x": {"low": 0, "high": 10}}, {"x": 2.5}) == {"x": 2.5}


def test_values_on_steps_are_those_of_decimal_digits():
    space = space_of({"x": {"low": 0.1, "high": 1.0, "step": 0.3}}, SCRIPT)
    study, seen = optuna.create_study(), []
    for params in combinations(space):
        study.enqueue_trial(params)
        seen.append(suggest(space, study.ask())["x"])
    assert seen == [0.1, 0.4, 0.7, 1.0]
    assert {suggest(space, study.ask())["x"] for _ in range(30)} == {*seen}


def test_values_that_are_equal_for_python_are_different_options():
    for values in ([True, 1, 1.0, "1"], [0, False], [None, "null"], [[1], [1.0], [True], "[1]"]):
        space = space_of({"any": values}, SCRIPT)
        seen = []
        for params in combinations(space):
            study = optuna.create_study()
            study.enqueue_trial(params)
            seen.append(suggest(space, study.ask())["any"])
            assert study.trials[0].params == params
            assert params_of(space, {"any": seen[-1]}) == params
        assert list(map(repr, seen)) == list(map(repr, values))


def test_an_equal_value_fits_where_its_type_is_not_listed_but_true_is_no_number():
    (numbers, flags) = ({"any": [1.0, "a"]}, {"any": [True, "a"]})
    assert params_in(numbers, {"any": 1}) == {"any": 1.0}
    assert params_in(numbers, {"any": True}) is None
    assert params_in(flags, {"any": 1}) is None
