"""`zoerefine search --plan` says how many trials there can be at most."""

import json

import pytest

from zoerefine.commands import search


@pytest.mark.parametrize(
    ("words", "space", "line"),
    [
        (["--trials", "20"], "[0.1]", "1 of 20 trials by tpe (the space has 1 combination), "),
        (["--trials", "1"], "[0.1, 0.2]", "\n1 trial by tpe, "),
        (["--trials", "1", "--grid"], "[0.1, 0.2]", "\n2 trials by grid, "),
        (["--trials", "3", "--enqueue", "first.yaml"], "[0.1, 0.2]",
         "tried first (--enqueue): 1\n"),
        (["--trials", "1", "--enqueue", "first.yaml", "second.yaml"], "[0.1, 0.2]",
         "tried first (--enqueue): 1 of 2, as many as there are trials\n"),
        (["--timeout", "60"], "[0.1, 0.2]", ", none started after 60 s\n"),
    ],
)  # fmt: skip
def test_a_plan_says_how_many_trials_there_can_be(
    words, space, line, tiny, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name, rate in (("first", 0.1), ("second", 0.2)):
        (tmp_path / f"{name}.yaml").write_text(f"TRAIN: {{LR: {rate}}}\n")
    searched = ["--search", f"TRAIN.LR={space}"]
    assert search.main(["--config", str(tiny), "--plan", *searched, *words]) == 0
    assert line in capsys.readouterr().out


@pytest.mark.depth  # it reads the config of our training
def test_a_plan_needs_no_data(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("SEARCH: {TRAIN: {LR: [0.1, 0.2]}}\n")
    assert search.main(["--config", str(tmp_path / "config.yaml"), "--plan", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["combinations"], found["estimate"], found["limits"]) == (2, None, {})
