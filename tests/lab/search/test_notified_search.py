"""--notify of a search: the message says which study it was, however the search ended."""

import json
import signal
from types import SimpleNamespace

import pytest

from tests.lab.search.conftest import training_runs
from tests.processes import end_of
from zoerefine.base.errors import UserError
from zoerefine.commands import search


@pytest.fixture
def notified(tmp_path):
    """The option's words, the folder of `tiny`'s study, and notified.message(), which came."""
    file = tmp_path / "ended.json"
    words, study = ["--notify", f"tee {file}"], str(tmp_path / "runs" / "tiny" / "study")
    return SimpleNamespace(words=words, study=study, message=lambda: json.loads(file.read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_search_that_is_stopped_names_its_study(
    number, tmp_path, gated, notified, start_script, wait_until
):
    driver = start_script("search", *gated.words, *notified.words)
    wait_until(lambda: training_runs(tmp_path), driver)
    driver.send_signal(number)
    end_of(driver, 130)
    told = notified.message()
    assert (told["what"], told["state"]) == ("search", "interrupted")
    assert told["run"] == notified.study
    assert told["text"].endswith(f", {notified.study}")


def test_a_search_that_fails_before_it_begins_names_its_study(tiny, notified):
    words = ["--config", str(tiny), *notified.words, "DATA.ROOT", "missing"]
    with pytest.raises(UserError, match="missing"):
        search.main([*words, "SEARCH", "{TRAIN: {LR: [0.1]}}"])
    told = notified.message()
    assert (told["what"], told["state"], told["code"]) == ("search", "failed", 2)
    assert told["run"] == notified.study
    assert f", {notified.study}, " in told["text"] and "missing" in told["text"]


def test_a_search_of_a_script_that_fails_names_its_study(
    foreign_repository, tmp_path, monkeypatch, notified
):
    monkeypatch.setenv("ZOEREFINE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    repository = foreign_repository("plain_prints")
    searched = ["--search", f"{repository.keys['lr']}=0.1..1", "--metric", "val_acc"]
    words = [*repository.job(), *searched, *notified.words, "--enqueue", "nowhere.yaml"]
    with pytest.raises(UserError, match="nowhere"):
        search.main(words)
    told = notified.message()
    assert told["state"] == "failed"
    assert told["run"] == str(tmp_path / "runs" / "main" / "study")
    assert told["run"] in told["text"]
