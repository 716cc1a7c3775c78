"""`zoerefine config`: the tree with meanings and origins, keys in detail, the table in the docs."""

from pathlib import Path

import pytest

from tests.processes import run_new_python
from zoerefine.base.config import load_config
from zoerefine.base.config.schema import KEYS
from zoerefine.base.config_roles import ROLES
from zoerefine.base.errors import UserError
from zoerefine.commands.config import main

CHECKOUT = Path(__file__).resolve().parents[3]
DOCS = CHECKOUT / "docs" / "configuration.md"
CONFIGS = sorted((CHECKOUT / "configs").glob("*.yaml"))


@pytest.fixture
def shown(here):
    """Run the command in this process: shown("TRAIN.LR") -> what it prints."""
    return lambda *words: here("config", *words).out


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_the_printed_tree_loads_to_the_same_configuration(path, shown, tmp_path):
    (tmp_path / "printed.yaml").write_text(shown("--config", path, "TRAIN.STEP_AT", "[0.5]"))
    assert load_config(tmp_path / "printed.yaml") == load_config(path, ["TRAIN.STEP_AT", "[0.5]"])


def test_every_value_is_shown_with_its_meaning_and_origin(shown, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("TRAIN:\n  LR: 0.25\nSEARCH: {SEED: [1, 2]}\n")
    text = shown("--config", path, "TRAIN.EPOCHS", "3")
    assert f"  LR: 0.25  # {path}:2\n" in text
    assert "  EPOCHS: 3  # command line\n" in text
    assert f"SEARCH:  # {path}:3\n" in text
    joined = " ".join(text.replace("#", " ").split())
    for key in KEYS.values():
        assert key.meaning[1:] in joined, key.name
    assert "Default 0.001." in joined


def test_one_key_is_explained_with_its_choices(shown):
    text = shown("CACHE.MODE")
    for part in ("CACHE.MODE: build", "when frames are decoded", "the default",
                 "rebuild  pack again", "the result of a training"):  # fmt: skip
        assert part in text
    assert "guided" in shown("MODEL.NAME")
    assert "unit: steps" in shown("TRAIN.LOG_EVERY")


def test_a_group_a_key_and_a_value_can_be_given_together(shown):
    text = shown("TRAIN.LR", "0.5", "AUGMENT", "TRAIN.LR", "TRAIN.EPOCHS")
    assert "TRAIN.LR: 0.5" in text
    assert "command line" in text
    assert "TRAIN.EPOCHS: 50" in text
    assert "AUGMENT:" in text
    assert "LOADER:" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["TRAIN.LRR"], r"did you mean TRAIN\.LR"),
        (["TRAIN.LR", "-1"], r"TRAIN\.LR must be a number from 0 to 1e\+30"),
        (["TRAIN", "3"], r"TRAIN is a group of keys"),
    ],
)
def test_a_wrong_key_or_value_is_refused(words, message):
    with pytest.raises(UserError, match=message):
        main(words)


def test_it_needs_no_heavy_package():
    code = (
        "import sys\n"
        "from zoerefine.cli import main\n"
        "assert main(['config', 'TRAIN.LR']) == 0\n"
        "assert not {'torch', 'numpy', 'optuna', 'rich', 'cv2'} & set(sys.modules)\n"
    )
    run_new_python(code)


def test_the_identity_table_in_the_docs_names_every_key_of_the_table():
    section = DOCS.read_text().split("## Which runs are the same")[1].split("## All keys")[0]
    for name in ROLES:
        assert f"`{name}`" in section or f"`{name}.*`" in section, name
