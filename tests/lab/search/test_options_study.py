"""A study of a script that takes no config: its values are options."""

import json
import shlex
import shutil

import pytest

from tests.foreign import commit_files
from tests.processes import run_zoerefine
from zoerefine.base.yaml.read import read_yaml

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--net.name", dest="name", choices=["a", "b"], default="a")
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
for epoch in range(args.epochs):
    print(f"epoch {epoch} val_acc={1 - args.lr - (args.name == 'b') + epoch / 100!r}")
"""

JOB = ("--repo", ".", "--commit", "HEAD", "--module", "fit.py")
VAL_ACC = ("--metric", "val_acc", r"--metric-pattern=val_acc=(\S+)")


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A folder with a repository: user(command, *words) -> standard error."""
    monkeypatch.setenv("ZOEREFINE_HOME", str(tmp_path / "home"))
    repository = tmp_path / "repository"
    commit_files(repository, {"fit.py": SCRIPT})

    def call(*words, code=0):
        return run_zoerefine(repository, *words, code=code).stderr

    call.folder, call.runs = repository, repository / "runs" / "fit"
    call.study = call.runs / "study"
    return call


def best_again(printed):
    """The words of the command that runs the best trial again."""
    return shlex.split(printed.split("best again: zoerefine ")[1].splitlines()[0])


def test_searched_values_are_options_and_the_best_runs_again(user, here):
    space = ["--search", "lr=[0.5, 0.25]", "--search", "net.name=[a, b]"]
    command = ["search", *JOB, *VAL_ACC, "--maximize", "--grid", *space, "epochs", "2"]
    printed = user(*command)
    assert "best val_acc 0.76" in printed and "counts as the best" not in printed
    study = user.study
    assert read_yaml(study / "best.yaml").tree == {"lr": 0.25, "net": {"name": "a"}}
    user(*best_again(printed))
    log = (user.runs / "latest" / "log.txt").read_text()
    assert log.splitlines()[-1] == "epoch 1 val_acc=0.76"
    assert "4 of 4 trials ended" in user(*command)  # and trains none of them again
    assert len(list((study / "trials").iterdir())) == 4
    page = here("show", study).out
    assert "kept as" not in page
    assert page.endswith(
        "its study, maximize val_acc:\n  trials    4: 4 completed\n"
        f"  best      trial 2, val_acc 0.76; lr 0.25, net.name a\n            {study}/best.yaml\n"
    )


def test_branches_are_refused_where_values_are_options(user):
    space = "opt=[{name: adam, lr: {low: 0.1, high: 0.2}}, {name: sgd, lr: [1.0, 2.0]}]"
    words = ("--trials", "2", "--search", space)
    said = user("search", *JOB, *VAL_ACC, "--maximize", *words, code=2)
    assert "SEARCH.opt lists mappings, and the script's options are single values" in said


def test_halving_counts_a_scripts_values_not_its_steps(user):
    """Steps of 100: the second value is at the first rung, the fifth at the next."""
    rows = "for k in range(6): print(f'step={100 * (k + 1)} loss={args.i - k / 10}')"
    parsing = "import argparse\nparser = argparse.ArgumentParser()\n"
    parsing += "parser.add_argument('--i', type=float)\nargs = parser.parse_args()\n"
    waits = "import time; time.sleep(0.7)\n"  # the search looks twice a second
    body = rows.replace("print", "time.sleep(0.6); print").replace("}')", "}', flush=True)")
    commit_files(user.folder, {"fit.py": parsing + waits + body + "\n"})
    pattern = r"--metric-pattern=step=(?P<step>\d+) loss=(\S+)"
    words = ("--grid", "--search", "i=[0, 1, 2]", "STUDY.PRUNER", "halving")
    user("search", *JOB, "--metric", "loss", pattern, *words)
    reasons = [
        json.loads((user.study / "trials" / f"000{n}" / "status.json").read_text())["reason"]
        for n in range(3)
    ]
    assert sorted(one.partition(",")[0] for one in reasons)[-1] == "pruned at step 200"


def test_ended_trials_without_a_run_in_the_studys_folder_are_counted(user):
    """As those that a colleague's search in the same database has run."""
    words = ("search", *JOB, *VAL_ACC, "--maximize", "--grid", "--search", "lr=[0.5, 0.25]")
    assert "have no run in" not in user(*words)
    shutil.rmtree(user.study / "trials" / "0001")
    assert f"1 of 2 ended trials of study fit in sqlite:///{user.study}" in (said := user(*words))
    assert f"have no run in {user.study}: they ran in another folder, or it was removed" in said


@pytest.mark.parametrize("metric", ["val_acc", "val.refined.delta1"])
def test_a_direction_that_the_name_contradicts_is_named_before_any_trial(user, metric):
    words = ("--metric", metric, "--trials", "0", "--search", "lr=0..1")
    printed = user("search", *JOB, *words, code=2)
    assert f"the lowest {metric} counts as the best: give --maximize" in printed


ECHO = """
import json, sys
print("words", json.dumps(sys.argv[1:]), flush=True)
print("val_acc", 0.4 if "--opt=1e-3" in sys.argv else 0.5, sep="=")
"""


def called_with(user):
    """The words that the script got, by trial."""
    logs = sorted(user.study.glob("trials/*/log.txt"))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [json.loads(line.removeprefix("words ")) for line in lines if line.startswith("words ")]


@pytest.fixture
def echo(user):
    """The words that the script gets in each trial of a grid: echo(values) -> [word, ...]."""
    commit_files(user.folder, {"fit.py": ECHO})
    job = [*JOB, *VAL_ACC, "--grid"]

    def call(values, *words):
        call.printed = printed = user("search", *job, "--search", f"opt={values}", *words)
        found = [word for (word,) in called_with(user)]
        assert f"{len(found)} of {len(found)} trials ended" in printed
        return found

    call.job = job
    return call


def test_a_script_gets_texts_as_options_without_quotes_and_the_best_again_too(user, echo):
    """Every value of the grid is tried, though Python calls True, 1 and 1.0 equal."""
    texts = ["adam", "1e-3", "null", "true", "a: b", "it's", "", "a b", "1"]
    shown = [*texts, True, 1, 1.0, "null", "[1, 'a']"]
    found = echo(json.dumps([*texts, True, 1, 1.0, None, [1, "a"]]), "--workers", "2")
    assert sorted(found) == sorted(f"--opt={text}" for text in shown)
    user(*best_again(echo.printed))
    log = (user.runs / "latest" / "log.txt").read_text()
    assert 'words ["--opt=1e-3"]' in log


def test_a_script_with_a_config_gets_texts_as_options_too(user, echo):
    (user.folder / "fit.yaml").write_text("A: {S: text}\n")
    printed = user("search", *echo.job, "--config", "fit.yaml", "--overrides", "options",
                   "--search", "A.S=['a: b', 'null', '1e-3']")  # fmt: skip
    assert "3 of 3 trials ended" in printed
    words = {word for trial in called_with(user) for word in trial if word.startswith("--A")}
    assert words == {"--A.S=a: b", "--A.S=null", "--A.S=1e-3"}


def test_patience_ends_a_study_whose_script_no_longer_improves(user):
    words = ["--search", "epochs=1..50", "--trials", "9", "lr", "0.5", "STUDY.PATIENCE", "2"]
    printed = user("search", *JOB, *VAL_ACC, *words)
    assert "no better trial among the last 2 (STUDY.PATIENCE)" in printed
    assert 3 <= len(list((user.study / "trials").iterdir())) < 9


def test_a_range_ends_at_its_last_step(user):
    space = ["--search", "lr=0.1..0.4 step 0.2", "--search", "epochs=1..4 step 2", "--grid"]
    job = [*JOB, *VAL_ACC, *space]
    plan = run_zoerefine(user.folder, "search", *job, "--plan").stdout
    assert "lr: 0.1 to 0.3 in steps of 0.2" in plan
    assert "epochs: 1 to 3 in steps of 2" in plan
    printed = user("search", *job)
    logs = [path.read_text() for path in user.study.glob("workers/*.log")]
    assert "Warning" not in "".join([printed, *logs])
    assert "4 of 4 trials ended" in printed
    assert read_yaml(user.study / "best.yaml").tree == {"lr": 0.3, "epochs": 1}  # it is minimized


THREADS = """
import os
print(f"threads={os.environ.get('OMP_NUM_THREADS', 0)}")
"""


def test_a_trial_and_the_best_again_have_the_threads_of_the_worker(user, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("ZOEREFINE_CORES", "3")
    commit_files(user.folder, {"fit.py": THREADS})
    metric = ["--metric", "threads", r"--metric-pattern=threads=(\S+)"]
    space = ["--search", "lr=[0.5, 0.25]", "--workers", "3", "--grid"]
    printed = user("search", *JOB, *metric, *space)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    user("reproduce", user.study / "trials" / "0001")
    user(*best_again(printed))
    assert (user.runs / "latest" / "log.txt").read_text() == "threads=1\n"


@pytest.mark.parametrize(
    ("script", "space", "question"),
    [
        ("print('val_acc=0.5')\n", ["lr=[0.5, 0.25]"], "2 of 2 {same} read lr?"),
        (SCRIPT.replace("(args.name == 'b')", "0"), ["lr=[0.5, 0.25]", "net.name=[a, b]"],
         "4 of 4 {same} read net.name?"),
        (SCRIPT, ["lr=[0.5, 0.25]", "net.name=[a, b]"], ""),
        ("import os\nfor k in range(3): print(f'val_acc={0.5 + k / 7}')\n"
         "print(f'load={int.from_bytes(os.urandom(4))}')", ["lr=[0.5, 0.25]"],
         "2 of 2 {same} read lr?"),
    ],
    ids=["one key", "one of two", "none", "beside a load"],
)  # fmt: skip
def test_a_key_whose_values_change_nothing_is_named(user, script, space, question):
    commit_files(user.folder, {"fit.py": script + "\n"})
    words = (word for one in space for word in ("--search", one))
    load = r"--metric-pattern=load=(\S+)"
    printed = user("search", *JOB, *VAL_ACC, load, "--grid", *words)
    same = "finished trials have exactly the same metrics as another; does the script"
    assert question.format(same=same) in printed
    assert (same in printed) == bool(question)


def test_a_time_that_the_search_compares_says_which_values_are_read(user):
    commit_files(user.folder, {"fit.py": SCRIPT + "print(f'total_s={args.lr} acc=0.5')\n"})
    metric = ["--metric", "total_s", r"--metric-pattern=total_s=(\S+) acc=(\S+)"]
    printed = user("search", *JOB, *metric, "--grid", "--search", "lr=[0.5, 0.25]")
    assert "best total_s 0.25" in printed and "exactly the same metrics" not in printed


def test_a_misspelled_metric_ends_the_search_and_the_right_one_continues_it(user):
    job = [*JOB, "--maximize", "--search", "lr=[0.5, 0.25, 0.125]", "--grid"]
    assert "it has none; --metric-pattern" in user("search", *job, "--metric", "val_ac", code=2)
    job += [r"--metric-pattern=val_acc=(\S+)"]
    message = user("search", *job, "--metric", "val_ac", code=2)
    assert "no metric val_ac: it has val_acc" in message.splitlines()[-1], message
    (first,) = (user.study / "trials").iterdir()
    started = (first / "status.json").read_text()
    printed = user("search", *job, "--metric", "val_acc")
    assert "3 of 3 trials ended" in printed and "val_acc 0.875" in printed
    assert (first / "status.json").read_text() == started  # it was not run again
    assert "other settings" in user("search", *job, "--metric", "loss", code=2)


def test_a_searched_key_among_the_words_of_all_trials_is_refused(user):
    words = ["search", *JOB, *VAL_ACC, "--search", "lr=[0.5, 0.25]", "epochs", "2", "lr", "0.1"]
    assert "lr: searched, and set by KEY VALUE words for all trials" in user(*words, code=2)


def test_a_range_of_whole_numbers_says_so_before_the_first_trial(user):
    """Where no config shows which numbers the script takes, `0..1` is 0 and 1."""
    job = [*JOB, *VAL_ACC, "--maximize", "--trials", "2"]
    note = "lr tries whole numbers only: write 0.0..1 for fractions, too\n"
    printed = user("search", *job, "--search", "lr=0..1")
    before = printed[: printed.index("best:")]
    assert "searching lr: 0 to 1, whole numbers\n" in before and note in before
    plan = run_zoerefine(user.folder, "search", *job, "--search", "lr=0..1", "--plan").stdout
    assert "  lr: 0 to 1, whole numbers\n" in plan and note in plan
    printed = user("search", *job, "--search", "lr=0.0..1", "--name", "fractions")
    assert "searching lr: 0 to 1\n" in printed and "whole numbers" not in printed
    best = read_yaml(user.folder / "runs" / "fractions" / "study" / "best.yaml").tree
    assert 0 < best["lr"] < 1


def test_a_number_in_the_config_says_which_numbers_a_range_tries(user):
    (user.folder / "fit.yaml").write_text("lr: 0.1\nepochs: 1\n")
    job = [*JOB, *VAL_ACC, "--config", "fit.yaml", "--overrides", "options"]
    job += ["--search", "lr=0..1", "--search", "epochs=1..3"]
    plan = run_zoerefine(user.folder, "search", *job, "--plan").stdout
    assert "  lr: 0 to 1\n  epochs: 1 to 3, whole numbers\n" in plan
    assert "whole numbers only" not in plan
