"""Where a pulled run may appear: not inside another run, not through a link, not over a file."""

import functools
import json
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.lab.archive.conftest import contents, make_run

RUN = "demo/b77d9226"


@pytest.fixture
def named(folder, run, command):
    """An archive whose place and manifest have another name: named(name) -> its address."""

    def rename(name, place=None):
        command("push", run, folder.url)
        target = folder.path / (place or name)
        target.parent.mkdir(parents=True, exist_ok=True)
        (folder.path / RUN).rename(target)
        manifest = target / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"name": name}))
        return str(target)

    return rename


@pytest.fixture
def other(tmp_path):
    """Another run that is no study, in the folder that is pulled into."""
    return make_run(tmp_path / "back" / "demo" / "mine", commit="beef")


@pytest.mark.parametrize(
    "part",
    ["engine", "checkpoints", "left", "report", "trials", "trials/x", "trials/3/engine", "node-1",
     "best/engine", "bests", "best-seed", "pareto", "trials/\u0663"],
)  # fmt: skip
def test_an_archive_is_never_a_part_of_a_run(part, named, other, refused):
    before = contents(other)
    assert "its run's name" in refused("pull", "--runs", "back", named(f"demo/mine/{part}"))
    assert contents(other) == before


@pytest.mark.parametrize("part", ["trials/0007", "best", "pareto-0003-seed1"])
def test_a_trial_is_pulled_into_no_run_but_a_study(part, named, other, command, refused):
    before = contents(other)
    url = named(f"demo/mine/{part}")
    fault = "would be a part of back/demo/mine, which is a run"
    assert fault in refused("pull", "--runs", "back", url)
    assert contents(other) == before

    facts = json.loads((other / "provenance.json").read_text())
    (other / "provenance.json").write_text(json.dumps(facts | {"study_id": "5"}))
    command("pull", "--runs", "back", url)
    assert (other / part / "config.yaml").exists()


def test_a_run_is_not_pulled_into_a_run_of_which_it_has_the_name(named, other, command):
    before = contents(other)
    err = command("pull", "--runs", other.parent, named("mine/engine"), code=2).err
    assert "would be a part of" in err
    assert contents(other) == before


def test_an_archive_has_the_name_that_its_address_ends_with(named, refused, tmp_path):
    url = named("demo/mine", place="demo/b77d9226")
    fault = f"{url} holds the run demo/mine: its address must end with that"
    assert fault in refused("pull", "--runs", "back", url)
    assert not (tmp_path / "back").exists()


def test_an_address_of_http_is_encoded(folder, command, tmp_path):
    pytest.importorskip("aiohttp", reason="pip install -r requirements-archive.lock")
    run = make_run(tmp_path / "runs" / "my demo" / "b77d9226")
    command("push", run, folder.url)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=folder.url)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/my%20demo/b77d9226"
        command("pull", "--runs", "back", url)
        server.shutdown()
    assert contents(tmp_path / "back" / "my demo" / "b77d9226") == contents(run)


@pytest.mark.parametrize("link", [".b77d9226.pulling", ".b77d9226.pulling/run"])
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "there"])
def test_a_link_in_the_place_of_an_unfinished_pull_is_not_followed(
    link, is_there, folder, run, command, tmp_path
):
    """Somebody else may have written into the runs folder."""
    command("push", run, folder.url)
    outside = tmp_path / "home"
    (outside / "run").mkdir(parents=True)
    for path in (outside, outside / "run"):
        (path / "mine").write_text("mine")
    if is_there:
        command("pull", "--runs", "back", f"{folder.url}/{RUN}")
    place = tmp_path / "back" / "demo" / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside)
    command("pull", "--runs", "back", f"{folder.url}/{RUN}")
    assert contents(outside) == {b"mine": b"mine", b"run/mine": b"mine"}
    assert contents(tmp_path / "back" / RUN) == contents(run)
    assert [path.name for path in (tmp_path / "back" / "demo").iterdir()] == ["b77d9226"]


def test_a_linked_lock_makes_no_file_elsewhere(folder, run, command, tmp_path):
    command("push", run, folder.url)
    lock = tmp_path / "back" / "demo" / ".b77d9226.pulling" / ".lock"
    lock.parent.mkdir(parents=True)
    lock.symlink_to(tmp_path / "made")
    command("pull", "--runs", "back", f"{folder.url}/{RUN}")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("file", ["back", "back/demo", "back/demo/.b77d9226.pulling",
                                  "back/demo/.b77d9226.pulling/run"])  # fmt: skip
def test_a_file_in_the_place_of_a_folder_is_one_line(file, folder, run, command, refused, tmp_path):
    command("push", run, folder.url)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("mine")
    assert file in refused("pull", "--runs", "back", f"{folder.url}/{RUN}")
    assert (tmp_path / file).read_text() == "mine"


def test_a_place_that_does_not_exist_is_called_so(place, run, command):
    command("push", run, place.url)
    err = command("pull", f"{place.url}/demo", code=2).err
    assert "is not an archive of a run; below it: b77d9226" in err
    err = command("pull", f"{place.url}/no-such/run", code=2).err
    assert "no-such/run does not exist, or cannot be listed" in err


def test_a_missing_bucket_is_called_so(bucket, refused):
    fault = f"s3://no-such-bucket/{RUN} does not exist, or cannot be listed"
    assert fault in refused("pull", f"s3://no-such-bucket/{RUN}")
