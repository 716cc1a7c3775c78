"""zoerefine runs --remove: a run stays that a text of another run names, however it is written."""

import json
import sys
import tomllib

import pytest
import yaml

ALL = ("--remove", "--older-than", "0", "--yes")
NAMES = ("a", "my net", "k=v", "x,y", "it's", "net[1]", "(2)", "über", 'say "hi"', "back\\slash")


def left(runs):
    """The runs that are left, except for the one that uses others."""
    found = {
        str(path.parent.relative_to(runs.folder)) for path in runs.folder.glob("*/*/status.json")
    }
    return sorted(found - {"user/x"})


def user(runs, folder="user/x", **recorded):
    """A run that cannot be removed itself."""
    path = runs.add(folder, module="job.py", **recorded)
    runs.run(path, "--tag", "keep")
    return path


def as_json(value):
    return json.dumps(value)


def as_toml(value):
    text = f"init = {json.dumps(value['init'], ensure_ascii=False)}"
    assert tomllib.loads(text) == value
    return text


def as_yaml(value):
    return yaml.safe_dump(value, width=20)


def as_plain_yaml(value):
    return yaml.safe_dump(value, allow_unicode=True)


def as_quoted_yaml(value):
    return yaml.safe_dump(value, default_style='"', width=20)


CONFIGS = [
    ("input.json", as_json),
    ("input.toml", as_toml),
    ("input.cfg", as_toml),
    ("input.yaml", as_yaml),
    ("config.yaml", as_plain_yaml),
    ("input.yaml", as_quoted_yaml),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("file", "written"), CONFIGS)
def test_a_config_of_any_kind_protects_a_run_of_any_name(runs, file, written, name):
    for path in (f"{name}/one", f"{name}/two", f"unet/{name}", "unet/other"):
        runs.add(path)
    folder = user(runs)
    (folder / file).write_text(written({"init": f"runs/{name}/one/checkpoints/best.pt"}))
    (folder / "config.yml").write_text(written({"init": f"{runs.folder}/unet/{name}"}))
    runs.run(*ALL)
    assert left(runs) == sorted([f"{name}/one", f"unet/{name}"])


@pytest.mark.parametrize(
    "words",
    [
        {"arguments": ["--teachers", "runs/unet/a,runs/unet/b"]},
        {"arguments": ["--teachers=runs/unet/a:runs/unet/b"]},
        {"arguments": ["sh", "-c", "cat 'runs/unet/a'>x; cat runs/unet/b;"]},
        {"arguments": ["--init", "runs//unet/./a/x.pt", "runs/other/../unet/gone/../b"]},
        {"overrides": ["FROM", "[runs/unet/a, runs/unet/b]"]},
        {"overrides": ["FROM", "['runs/unet/a']", "TO", "{w: runs/unet/b}"]},
        {"overrides": ["FROM", "runs/unet/a:0.5", "TO", "unet/b:0.5"]},
    ],
)
def test_a_path_anywhere_in_a_command_line_protects_its_run(runs, words):
    for name in ("a", "b", "a2", "2a", "b-run2", "c"):
        runs.add(f"unet/{name}")
    user(runs, **words)
    runs.run(*ALL)
    assert left(runs) == ["unet/a", "unet/b"]


@pytest.mark.parametrize(
    ("caller", "word"),
    [
        (".", "../rel/left/model.txt"),  # in the run's own folder
        (".", "./.././rel"),
        ("left", "x/../../../rel/model.txt"),
        ("..", "rel/left/model.txt"),
        ("..", "./rel"),
        ("..", "--init=rel"),
    ],
)
def test_a_relative_path_leads_from_where_the_run_was_started(runs, caller, word):
    for name in ("rel", "relic", "other"):
        runs.add(f"unet/{name}")
    folder = runs.folder / "unet/x"
    (folder / "left").mkdir(parents=True)
    caller = str((folder / caller).resolve())
    user(runs, "unet/x", arguments=["--init", word], caller=caller)
    runs.run(*ALL)
    assert left(runs) == ["unet/rel", "unet/x"]


@pytest.mark.parametrize("name", ["status.json", "provenance.json"])
def test_a_damaged_run_protects_what_it_uses(runs, name):
    for one in ("a", "b"):
        runs.add(f"unet/{one}")
    folder = user(runs, started_from={"path": f"{runs.folder}/unet/a/best.pt", "sha256": "0"})
    (folder / name).write_text((folder / name).read_text()[:-1])
    runs.run(*ALL)
    assert left(runs) == ["unet/a"]


def test_a_run_that_may_not_be_read_is_named_since_it_may_use_others(runs, other_user):
    runs.add("unet/a")
    folder = other_user.copy(runs.folder)
    closed = other_user.copy(runs.add("user/x"), "runs/unet/closed")
    closed.chmod(0)
    words = ["-m", "zoerefine", "runs", folder, *ALL[:-1]]
    done = other_user.run([sys.executable, *words])
    closed.chmod(0o755)
    assert "closed: it may not be read, so what it uses is not known" in done.stderr
    assert "would remove" in done.stdout
