"""`--json`: one document of strict JSON on standard output, with the keys that the docs list."""

import json
import math
import re
from pathlib import Path

import pytest

from zoerefine.cli import main
from zoerefine.commands.options import print_json

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"


@pytest.fixture
def document(capfd):
    """What a command prints with --json: document("runs", folder)."""

    def run(*words, code=0):
        capfd.readouterr()
        assert main([*map(str, words), "--json"]) == code
        return json.loads(capfd.readouterr().out, parse_constant=pytest.fail)

    return run


def documented(what):
    """The keys that the page lists for a document, in its order."""
    section = PAGE.read_text().partition("## JSON\n")[2].partition("\n## ")[0]
    (row,) = re.findall(rf"^\| {re.escape(what)} \| (.*) \|$", section, re.MULTILINE)
    return re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row))


def test_runs(document, study):
    found = document("runs", study.path.parent)
    assert list(found) == documented("`runs`")
    assert len(found["runs"]) == 4  # three trials and the best
    for row in found["runs"]:
        assert set(row) == set(documented("a run of `runs`"))
    best = next(row for row in found["runs"] if row["path"].endswith("/best"))
    assert best["state"] == "finished" and best["metrics"]["test.refined.abs_rel"] > 0
    assert len(document("runs", study.path.parent, "--limit", 2)["runs"]) == 2


def test_show_of_a_run_of_a_study_and_of_a_bundle(document, study):
    run = document("show", study.path / "best")
    assert list(run) == documented("`show RUN`") and run["study"] is None
    assert set(run["run"]) == set(documented("`run` of `show`"))
    assert run["run"]["weights"] and run["run"]["launched_with"] is None
    shown = document("show", study.path)["study"]
    assert set(shown) == set(documented("`study` of `show`"))
    assert shown["trials"] == {"completed": 3}
    assert set(shown["best"][0]) == set(documented("a trial of `best`"))
    bundle = document("show", study.path / "best" / "engine")
    assert list(bundle) == documented("`show BUNDLE`")
    assert set(bundle["bundle"]) == set(documented("`bundle` of `show`"))
    assert bundle["bundle"]["runs_here"] and bundle["bundle"]["manifest"]["precision"] == "fp32"


def test_diff(document, study):
    trials = study.path / "trials"
    found = document("diff", trials / "0000", trials / "0001")
    assert list(found) == documented("`diff`")
    assert [run["path"] for run in found["runs"]] == [f"{trials}/0000", f"{trials}/0001"]
    one, other = found["settings"]["TRAIN.LR"]
    assert one != other
    assert all(len(pair) == 2 for pair in found["metrics"].values())


def test_plan_of_a_search(document, tiny):
    space = ("--search", "TRAIN.LR=1e-4..1e-2 log", "--search", "MODEL.BASE=[4, 8]")
    found = document("search", "--config", tiny, "--plan", *space)
    assert list(found) == documented("`search --plan`")
    assert found["combinations"] is None and found["estimate"]["total_s"] > 0
    by_kind = {next(iter(one)): one for one in found["space"]}
    assert by_kind["range"] == {
        "range": "TRAIN.LR", "low": 1e-4, "high": 1e-2, "log": True, "step": None
    }  # fmt: skip
    assert [one["label"] for one in by_kind["choice"]["options"]] == [4, 8]


def test_a_search_without_a_plan_has_no_document(tiny, here):
    shown = here("search", "--config", tiny, "--json", code=2)
    assert (shown.out, shown.err.startswith("error: --json is for --plan")) == ("", True)


def test_plan_of_a_script_and_reproduction(document, foreign_repository, tmp_path, monkeypatch):
    """What the job prints is not in the document."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZOEREFINE_HOME", str(tmp_path / "home"))
    repository = foreign_repository("plain_prints")
    job = repository.job()
    space = ("--metric", "val_acc", "--search", f"{repository.keys['lr']}=[1, 2]")
    found = document("search", *job, *space, "--plan")
    assert list(found) == documented("`search --plan`")
    assert found["objectives"] == {"val_acc": "minimize"} and found["combinations"] == 2
    assert main([*map(str, ("run", *job, "--name", "script"))]) == 0
    run = (tmp_path / "runs" / "script" / "latest").resolve()
    checked = document("reproduce", run, "--check")
    assert list(checked) == documented("`reproduce`")
    assert (checked["verdict"], checked["again"], checked["results"]) == ("reproducible", None, [])
    again = document("reproduce", run)
    assert again["verdict"] == "reproduced" and Path(again["again"]).is_dir()
    for one in [*again["facts"], *again["results"]]:
        assert set(one) == set(documented("a fact or result"))
    assert document("show", run)["run"]["launched_with"].startswith("zoerefine run --repo ")


def test_doctor(document, tmp_path):
    found = document("doctor", "--folder", tmp_path)
    assert list(found) == documented("`doctor`")
    assert "git" in [check["part"] for check in found["checks"]]
    assert set(found["checks"][0]) == set(documented("a check"))


def test_a_bad_path_prints_no_document(here, tmp_path):
    for command in ("show", "reproduce"):
        shown = here(command, tmp_path / "none", "--json", code=2)
        assert (shown.out, len(shown.err.splitlines())) == ("", 1)


def test_documents_are_strict_json_of_whatever_is_in_them(capsys):
    print_json({"a": [math.nan, -math.inf, 1.5], "path": Path("x"), "odd": "\udcff\x1b[31m"})
    text = capsys.readouterr().out
    assert text.isascii() and "\x1b" not in text
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": [None, None, 1.5], "path": "x", "odd": "\udcff\x1b[31m"
    }  # fmt: skip
