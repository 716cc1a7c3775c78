"""A script's search space: in its config, in the older form, in a file, or as words."""

from pathlib import Path

import pytest
import yaml

from zoerefine.base.config.searched_keys import TreeKeys
from zoerefine.base.errors import UserError
from zoerefine.base.yaml.read import parse_mapping
from zoerefine.base.yaml.script_overrides import merge_overrides
from zoerefine.lab.search.script.study import as_word, override_words
from zoerefine.lab.search.space import script_section
from zoerefine.lab.search.space.reader import read_space

CONFIG = """\
# the paper's settings
TRAIN:
  LR: 0.1  # tuned by hand
  CLIP: 1.0
  EPOCHS: 4
  STEPS: [1, 2]
MODEL: {NAME: mlp, SIZE: [28, 28], NORM: true, HEAD: null}
LOSS:
- {name: l1, weight: 1.0}
- {name: mse, weight: 0.5}
"""
TREE = parse_mapping(CONFIG, "c.yaml").tree
KEYS = TreeKeys(TREE)
KEYS_FILE = Path("c.yaml")


def searched(text, name="c.yaml"):
    """The SEARCH tree of a config."""
    return script_section.space_in_config(parse_mapping(text, name)).read(KEYS)


def test_values_have_the_types_of_the_configs_own_values():
    found = searched(
        CONFIG
        + "SEARCH:\n"
        + "  TRAIN: {LR: [1, 1e-2], EPOCHS: {low: 1, high: 9}, CLIP: {low: 1, high: 2}}\n"
        + "  MODEL: {NAME: [051, mlp], NORM: [true, false], HEAD: [null, 3]}\n"
    )
    assert found["TRAIN"]["LR"] == [1.0, 0.01]
    assert all(isinstance(rate, float) for rate in found["TRAIN"]["LR"])
    assert isinstance(found["TRAIN"]["EPOCHS"]["low"], int)
    assert isinstance(found["TRAIN"]["CLIP"]["low"], float)
    assert found["MODEL"] == {"NAME": ["051", "mlp"], "NORM": [True, False], "HEAD": [None, 3]}


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("TRAIN: {LRR: [1.0]}", "c.yaml:12: SEARCH.TRAIN.LRR cannot be searched: the config has no "
         "key TRAIN.LRR; did you mean TRAIN.LR?"),
        ("LR: [1.0]", "the config has no key LR; did you mean TRAIN.LR?"),
        ("MODEL: {NAME: {low: 1, high: 2}}", "a range needs a number, not a text"),
        ("MODEL: {NORM: [1]}", "must be true or false, got 1"),
        ("MODEL: [mlp, cnn]", "must be a group of keys"),
        ("TRAIN: {LR: {EPOCHS: {low: 0, high: 1}}}", "SEARCH.TRAIN.LR.EPOCHS cannot be searched: "
         "the config has no key TRAIN.LR.EPOCHS; did you mean TRAIN.EPOCHS?"),
        ("TRAIN: {LR: {X: {Y: [1, 2]}}}", "the config has no key TRAIN.LR.X.Y; did you mean"),
        ("TRAIN: {LR: {lo: 1, hi: 2}}", "SEARCH.TRAIN.LR must be a list of values to try, or {low"),
    ],
)  # fmt: skip
def test_a_wrong_space_is_refused_with_its_place(search, message):
    with pytest.raises(UserError) as caught:
        searched(f"{CONFIG}SEARCH:\n  {search}\n")
    assert message in str(caught.value)


def test_the_older_form_is_read_and_taken_out():
    text = CONFIG + (
        "HPO:\n  USE_HPO: True\n  TRAIN:\n    LR: [0.1, 0.01]\n    EPOCHS: 3\n"
        "  MODEL: {USE_HPO: False, NAME: [a, b]}\n"
    )
    assert searched(text) == {"TRAIN": {"LR": [0.1, 0.01], "EPOCHS": [3]}}
    assert script_section.without_space(parse_mapping(text, "c.yaml")) == CONFIG
    switched_off = text.replace("USE_HPO: True", "USE_HPO: False")
    assert script_section.space_in_config(parse_mapping(switched_off, "c.yaml")) is None
    assert script_section.without_space(parse_mapping(switched_off, "c.yaml")) == switched_off
    with pytest.raises(UserError, match="has both SEARCH and HPO: keep one"):
        searched(f"{text}SEARCH: {{TRAIN: {{LR: [1.0]}}}}\n")


@pytest.mark.parametrize(
    "section",
    [
        "SEARCH:\n  TRAIN:\n\n    # both\n    LR: [1.0]\n",
        "SEARCH: {TRAIN: {LR: [1.0]}}\n",
        '"SEARCH": {TRAIN:\n  {LR: [1.0]}}\n',
    ],
)
def test_the_rest_of_the_config_stays_as_it_is_written(section):
    for text in (CONFIG + section, section + CONFIG, CONFIG + section + "LAST: on\n"):
        document = parse_mapping(text, "c.yaml")
        assert script_section.without_space(document) == text.replace(section, "")


def test_a_space_that_shares_lines_with_other_keys_is_taken_out_by_its_meaning():
    text = "{TRAIN: {LR: 0.1},\nSEARCH: {TRAIN: {LR: [1.0]}}}\n"
    assert yaml.safe_load(script_section.without_space(parse_mapping(text, "c.yaml"))) == {
        "TRAIN": {"LR": 0.1}
    }
    text = '{"a": 1, "SEARCH": {"a": [1, 2]}}'
    assert script_section.without_space(parse_mapping(text, "c.json")) == '{\n  "a": 1\n}\n'


@pytest.mark.parametrize(
    ("word", "tree"),
    [
        ("TRAIN.LR=1e-4..1e-2 log", {"low": 1e-4, "high": 1e-2, "log": True}),
        ("TRAIN.LR = .5 .. 2", {"low": 0.5, "high": 2.0}),
        ("TRAIN.LR=1..9 step 2", {"low": 1.0, "high": 9.0, "step": 2.0}),
        ("TRAIN.LR=1..2 step 0.1", {"low": 1.0, "high": 2.0, "step": 0.1}),
        ("TRAIN.LR=[0.1, 1]", [0.1, 1.0]),
        ("TRAIN.LR={low: 1, high: 2}", {"low": 1.0, "high": 2.0}),
    ],
)
def test_a_word_gives_a_range_or_a_list(word, tree):
    assert script_section.space_of_word(word).read(KEYS) == {"TRAIN": {"LR": tree}}


@pytest.mark.parametrize("word", ["TRAIN.LR", "=1..2", "TRAIN.LR=0.1", "TRAIN.LR=1..2 fast",
                                  "TRAIN.LR=[1", "TRAIN.LR=", "TRAIN.LR=0...5"])  # fmt: skip
def test_a_word_of_another_form_is_refused_with_the_forms(word):
    with pytest.raises(UserError, match=r"is neither KEY=LOW\.\.HIGH"):
        script_section.space_of_word(word).read(KEYS)


def test_a_number_with_leading_zeros_is_refused_since_it_would_lose_them():
    with pytest.raises(UserError, match=r'001 would be the number 1; write "001" for the word'):
        script_section.space_of_words(["subject=[a, 001]"])
    words = ['subject=["001", 10, 0, 0.1, run 01, "a, 01, b"]']
    values = ["001", 10, 0, 0.1, "run 01", "a, 01, b"]
    assert script_section.space_of_words(words)[0].tree == {"subject": values}


def test_a_key_that_is_given_twice_or_inside_a_searched_group_is_refused():
    with pytest.raises(UserError, match="--search: lr is given twice: keep one"):
        script_section.space_of_words(["lr=[0.1, 0.2]", " lr =0.3..0.4"])
    with pytest.raises(UserError, match=r"optim and optim\.lr cannot both.*'optim=\{choice}'"):
        script_section.space_of_words(["optim.lr=1..2", "optim=[adam, sgd]"])


def test_a_file_holds_the_tree_with_or_without_its_name(tmp_path):
    file = tmp_path / "space.yaml"
    for text in ("SEARCH: {TRAIN: {LR: [1.0]}}\n", "TRAIN: {LR: [1.0]}\n"):
        file.write_text(text)
        assert script_section.space_in_file(file).read(KEYS) == {"TRAIN": {"LR": [1.0]}}
    file.write_text("TRAIN:\n  LRR: [1.0]\n")
    with pytest.raises(UserError, match=r"space\.yaml:2: SEARCH\.TRAIN\.LRR cannot be searched"):
        script_section.space_in_file(file).read(KEYS)


def test_later_spaces_replace_single_keys():
    first = {"TRAIN": {"LR": {"low": 1, "high": 2}, "EPOCHS": [1]}}
    later = {"TRAIN": {"LR": {"low": 3, "high": 4, "log": True}}, "MODEL": {"NAME": ["a"]}}
    assert script_section.combined([first, later]) == {
        "TRAIN": {"LR": {"low": 3, "high": 4, "log": True}, "EPOCHS": [1]},
        "MODEL": {"NAME": ["a"]},
    }


def test_values_are_merged_so_that_yacs_and_yaml_read_them():
    values = {"TRAIN.LR": 1e-5, "TRAIN.STEPS": [3, 4], "MODEL.NORM": False, "MODEL.HEAD": None}
    values["LOSS.1.weight"] = 0.25
    words = override_words(TREE, values, as_word)
    assert words[:6] == ["TRAIN.LR", "1e-05", "TRAIN.STEPS", "[3, 4]", "MODEL.NORM", "False"]
    merged = yaml.safe_load(merge_overrides(KEYS_FILE, CONFIG.encode(), words))
    assert merged["TRAIN"] == {"LR": 1e-5, "CLIP": 1.0, "EPOCHS": 4, "STEPS": [3, 4]}
    assert merged["MODEL"] == {"NAME": "mlp", "SIZE": [28, 28], "NORM": False, "HEAD": None}
    assert merged["LOSS"] == [{"name": "l1", "weight": 1.0}, {"name": "mse", "weight": 0.25}]


def test_a_list_of_groups_chooses_a_branch():
    tree = {"TRAIN": [{"LR": 0.5, "EPOCHS": [1, 2]}, {"LR": {"low": 0.1, "high": 0.2}}]}
    (choice,) = read_space(tree, KEYS)
    assert [option.label for option in choice.options] == ["LR 0.5", "branch 2"]
