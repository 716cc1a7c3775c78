"""The dashboard in a real browser: trials, front, importances, notes and pictures."""

import http.client
import json
import os
import shutil
import signal
import socket
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import optuna
import pytest
from optuna.trial import TrialState
from torch.utils.tensorboard.writer import SummaryWriter

from tests.processes import children, end_of, is_alive
from zoerefine.base.config import defaults, save_config
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.study.trials import training_note
from zoerefine.lab.search.dashboard import start_dashboard
from zoerefine.lab.search.study.claims import describe

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FAULT = "the loss is *not* finite: <b>nan</b>"


class HandMadeStudy:
    """A study of two objectives whose trials are copies of a real run."""

    def __init__(self, folder, source):
        cfg = defaults()
        cfg.RUN.NAME = "made"
        folder.mkdir()
        self.run, self.source = RunDir(folder), source
        save_config(cfg, self.run.config_file)
        self.study = optuna.create_study(
            study_name="made",
            storage=f"sqlite:///{folder / 'study.db'}",
            directions=["minimize"] * 2,
            sampler=optuna.samplers.RandomSampler(seed=0),
        )
        self.study.set_user_attr("identity", {"commit": COMMIT})

    def ask(self):
        """A trial with its own copy of the run."""
        trial = self.study.ask()
        self.lr = trial.suggest_float("TRAIN.LR", 1e-4, 1e-2, log=True)
        self.base = trial.suggest_int("MODEL.BASE", 4, 64)
        run = RunDir(self.run.path / "trials" / f"{trial.number:04d}")
        shutil.copytree(self.source, run.path)
        return trial, run

    def describe(self, trial, run):
        details = training_note(run.results()) if run.results_file.exists() else ""
        describe(self.study, trial, run, details, self.run.path / "artifacts")

    def note(self, trial):
        from optuna_dashboard import get_note

        return get_note(trial)

    def pictures(self, trial):
        """Bytes of the trial's artifacts."""
        found = optuna.artifacts.get_all_artifact_meta(trial)
        return [(self.run.path / "artifacts" / one.artifact_id).read_bytes() for one in found]


@pytest.fixture
def made(tmp_path, study):
    """A study without trials."""
    return HandMadeStudy(tmp_path / "made", study.path / "trials" / "0000")


@pytest.fixture(scope="module")
def filled(tmp_path_factory, study):
    """Eight trials, the last of which failed. Tests must not change it."""
    folder = tmp_path_factory.mktemp("dashboard") / "made"
    made = HandMadeStudy(folder, study.path / "trials" / "0000")
    for _ in range(7):
        trial, run = made.ask()
        made.describe(trial, run)
        made.study.tell(trial, [made.lr + 1 / made.base, made.base])
    trial, run = made.ask()
    fail(run)
    made.describe(trial, run)
    made.study.tell(trial, state=TrialState.FAIL)
    return made


def fail(run):
    """Leave a run as a training that failed in its first epoch does."""
    run.results_file.unlink()
    run.validation_picture.unlink()
    with pytest.raises(RuntimeError), run.writing():
        raise RuntimeError(FAULT)


@pytest.fixture(scope="module")
def served(filled):
    """Addresses of the filled study's page and of TensorBoard, served by this process."""
    return start_dashboard(filled.run, "", "127.0.0.1", 0)


@pytest.fixture(params=[0, 1], ids=["study", "TensorBoard"])
def url(request, served):
    """Each of both addresses."""
    return served[request.param]


@pytest.fixture
def serve(start_script):
    """Start the command: serve(folder, "--port", 0) -> process, study's page, TensorBoard's."""

    def start(*words):
        process = start_script("dashboard", *words)
        lines = [process.stdout.readline() for _ in range(2)]
        assert all(lines), process.communicate()[1]
        return process, *(line.split()[1] for line in lines)

    return start


def until(condition):
    """Wait for a condition and return its value: pages are drawn step by step."""
    end = time.monotonic() + 180
    while not (found := condition()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)
    return found


def graph(browser, name):
    """The traces of a graph on the page, once it is drawn."""
    return until(lambda: browser.execute_script(f"return document.getElementById('{name}')?.data"))


def inside(url, path, query=""):
    """An address below a printed one, with its token."""
    base, _, token = url.partition("?")
    return f"{base}{path}?{token}&{query}".rstrip("&")


def text(browser):
    return browser.execute_script("return document.body.innerText")


def test_the_page_shows_trials_front_and_importances(browser, filled, served):
    page, _ = served
    browser.set_window_size(1400, 1600)
    browser.get(page)
    until(lambda: "made" in text(browser))
    front = graph(browser, "graph-pareto-front")
    points = [set(zip(trace["x"], trace["y"], strict=True)) for trace in front]
    best = {tuple(trial.values) for trial in filled.study.best_trials}
    assert 1 < len(best) < 7
    assert best in points
    failed = {(None, None)}  # drawn as placeholders
    drawn = set.union(*points) - failed
    assert drawn == {tuple(t.values) for t in filled.study.trials if t.values}
    bars = graph(browser, "graph-hyperparameter-importances")
    assert all(set(bar["y"]) == {"TRAIN.LR", "MODEL.BASE"} for bar in bars)
    assert len(bars) == 2
    browser.get(inside(page, "/trials"))
    until(lambda: "8 Trials" in text(browser))
    assert text(browser).count("Complete") >= 7
    assert browser.get_log("browser") == []


def test_a_trials_note_and_picture_are_shown(browser, filled, served):
    page, _ = served
    browser.get(inside(page, "/trials", "numbers=2"))
    until(lambda: "finished after" in text(browser))
    assert str(filled.run.path / "trials" / "0002") in text(browser)
    assert COMMIT in text(browser)
    rows = [row.text.split() for row in browser.find_elements("css selector", "table tr")]
    val = json.loads((filled.source / "results.json").read_text())["val"]
    pseudo, refined = val["pseudo"]["abs_rel"], val["refined"]["abs_rel"]
    expected = ["abs_rel", "↓", f"{pseudo:.4f}", f"{refined:.4f}", f"{refined / pseudo:.3f}"]
    assert expected in rows
    picture = browser.find_element("css selector", "img[alt='validation.png']")
    until(lambda: browser.execute_script("return arguments[0].naturalWidth", picture) > 0)

    browser.get(inside(page, "/trials", "numbers=7"))
    until(lambda: "failed" in text(browser))
    assert FAULT in text(browser)  # as text: its stars and tags are not interpreted
    assert not browser.find_elements("css selector", "img[alt='validation.png']")


def test_tensorboard_shows_the_curves_of_every_trial(browser, served):
    _, tensorboard = served
    names = {f"trials/{number:04d}/tb" for number in range(8)}
    runs = inside(tensorboard, "data/runs")
    until(lambda: set(json.load(urllib.request.urlopen(runs))) == names)
    browser.get(tensorboard)
    until(lambda: browser.title == "TensorBoard")


OWNED = "document.title='owned'"
HOSTILE = (
    f"</script><script>{OWNED}</script>",
    f'<img src=x onerror="{OWNED}">',
    f"' onmouseover={OWNED} autofocus onfocus={OWNED} x='",
    f"</style></title><svg onload={OWNED}>",
    f"`<b onclick={OWNED}>` [link](javascript:{OWNED}) ${{{OWNED}}} {{{{7*7}}}}",
    "left \u202eright\u2066 mark",
    "two\nlines\r\tand a tab",
    "x" * 240,
)


def shows_text_only(browser):
    """Whether nothing of `HOSTILE` has become a part of the page, or was run."""
    tags = "[onerror], [onload], [onclick], [onmouseover], [href^=javascript]"
    return browser.title != "owned" and not browser.find_elements("css selector", tags)


def test_hostile_names_are_text_on_every_page(browser, tmp_path, study):
    folder = tmp_path / f"made`<img src=x onerror={OWNED}>"
    made = HandMadeStudy(folder, study.path / "trials" / "0000")
    made.study.set_metric_names(list(HOSTILE[:2]))
    for name in HOSTILE:
        trial, run = made.ask()
        for key in HOSTILE:
            trial.suggest_categorical(key, list(HOSTILE))
        with SummaryWriter(str(run.path / name.replace("/", "_"))) as writer:
            writer.add_scalar(name, 0.5, 1)
        trial.set_user_attr("reason", name)
        made.describe(trial, run)
        made.study.tell(trial, [made.lr, made.base])
    page, tensorboard = start_dashboard(made.run, "", "127.0.0.1", 0)
    browser.get(page)
    assert graph(browser, "graph-hyperparameter-importances") and shows_text_only(browser)
    browser.get(inside(page, "/trials"))
    until(lambda: f"{len(HOSTILE)} Trials" in text(browser))
    assert shows_text_only(browser)
    for number, name in enumerate(HOSTILE):
        browser.get(inside(page, "/trials", f"numbers={number}"))
        until(lambda: "finished after" in text(browser))
        assert shows_text_only(browser), name
        assert " ".join(name.split()) in " ".join(text(browser).split())
    assert browser.get_log("browser") == []
    browser.get(tensorboard)
    until(lambda: browser.title == "TensorBoard")
    tags = inside(tensorboard, "data/plugin/scalars/tags")
    until(lambda: set(HOSTILE) <= {*flat_tags(tags)})
    assert shows_text_only(browser)


def flat_tags(address):
    """The names of all metrics that TensorBoard has read."""
    found = json.load(urllib.request.urlopen(address))
    return [tag for of_run in found.values() for tag in of_run]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_or_port_is_left_when_it_ends(filled, serve, number):
    process, page, tensorboard = serve(filled.run.path, "--port", 0)
    inner = children(process.pid)
    process.send_signal(number)
    _, errors = end_of(process, 0 if number == signal.SIGINT else -number)
    assert errors == ""
    until(lambda: not any(map(is_alive, inner)))
    for url in (page, tensorboard):
        assert not answers(*address(url))


def test_only_the_given_address_is_served(filled, served):
    elsewhere = [("127.0.0.2", address(url)[1]) for url in served]
    assert not any(answers(*one) for one in elsewhere)
    other = start_dashboard(filled.run, "", "127.0.0.2", 0)
    assert all(url.startswith("http://127.0.0.2:") for url in other)
    assert not any(answers("127.0.0.1", address(url)[1]) for url in other)


def address(url):
    host, port = url.split("/")[2].split(":")
    return host, int(port)


def request(url, method="GET", token=True, **headers):
    """The status and the headers of an answer; redirects are not followed."""
    client = http.client.HTTPConnection(*address(url), timeout=180)
    place = urlsplit(url)
    client.putrequest(method, place.path + (f"?{place.query}" if token else ""), skip_host=True)
    for name, value in ({"Host": place.netloc} | headers).items():
        if value is not None:
            client.putheader(name.replace("_", "-"), value)
    client.endheaders()
    answer = client.getresponse()
    answer.read()
    return answer.status, answer.headers


OWN = {"Accept": "text/html"}
FOREIGN = [
    {"Host": "evil.example"},
    {"Host": "localhost.evil.example"},
    {"Host": "127.0.0.1.evil.example"},
    {"Host": "a@localhost"},
    {"Host": "localhost:x"},
    {"Host": ""},
    {"Host": None},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_request_of_another_site_is_refused_even_with_the_token(url, headers):
    assert request(url)[0] == 200
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        assert request(url, method, **headers)[0] == 403


def test_nothing_is_shown_without_the_printed_token(url):
    wrong = url[:-1] + ("A" if url[-1] != "A" else "B")
    assert request(url, token=False)[0] == 403
    assert request(wrong)[0] == 403
    assert request(f"{url}x")[0] == 403
    assert request(url.replace("token=", "token=%FF"))[0] == 403
    for cookie in ("zoerefine=1", f"zoerefine-{address(url)[1]}=", "=;=;\x01", "a" * 5000):
        assert request(url, token=False, Cookie=cookie)[0] == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(url):
    status, headers = request(url, **OWN)
    assert (status, headers["Location"]) == (303, urlsplit(url).path)
    assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert request(url, token=False, Cookie=cookie)[0] == 200
    origin, token = f"http://{urlsplit(url).netloc}", urlsplit(url).query
    assert request(url, token=False, Cookie=cookie, Origin=origin)[0] == 200
    for host in ("localhost:9999", "[::1]:8080", socket.gethostname(), "10.0.0.1"):  # a tunnel
        assert request(url, token=False, Cookie=cookie, Host=host)[0] == 200
    elsewhere = request(f"{origin}//evil.example/?{token}", **OWN)[1]["Location"]
    assert elsewhere == "/evil.example/"


def test_a_page_of_another_name_cannot_delete_a_study(filled, served):
    page, _ = served
    cookie = request(page, **OWN)[1]["Set-Cookie"].partition(";")[0]
    api = page.replace("/dashboard/studies", "/api/studies").partition("?")[0]
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert request(api, "DELETE", Cookie=cookie, **headers)[0] == 403
    assert request(api, "DELETE")[0] == 403
    assert len(optuna.load_study(study_name="made", storage=filled.study._storage).trials) == 8


def answers(host, port):
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0


@pytest.mark.parametrize("which", [0, 1])
def test_a_port_in_use_is_named(made, which):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1 port {port}: Address already in use"):
            start_dashboard(made.run, "", "127.0.0.1", port - which)


def test_a_folder_that_is_not_a_study_is_one_line(tmp_path, script):
    done = script("dashboard", tmp_path, code=2)
    assert "is not a study: give the folder that a search wrote" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "study.db").unlink(), "is not a study: there is no database"),
        (lambda path: (path / "study.db").write_text("not a database" * 99), "cannot be used"),
        (lambda path: (path / "study.db").write_bytes(b""), "has no study made"),
    ],
)
def test_a_damaged_study_is_named(made, damage, message):
    damage(made.run.path)
    with pytest.raises(UserError, match=message):
        start_dashboard(made.run, "", "127.0.0.1", 0)


def test_a_study_that_its_database_does_not_have_is_named(made):
    cfg = defaults()
    cfg.RUN.NAME = "another"
    save_config(cfg, made.run.config_file)
    with pytest.raises(UserError, match="has no study another"):
        start_dashboard(made.run, "", "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("storage", "host", "port", "message"),
    [
        ("postgresql://me@127.0.0.1:1/d", "127.0.0.1", 0, "psycopg|cannot be used"),
        ("postgresql://me:hunter2@127.0.0.1/d", "127.0.0.1", 0, "set PGPASSWORD"),
        ("sqlite:////nowhere/study.db", "127.0.0.1", 0, "no database /nowhere/study.db"),
        ("nonsense", "127.0.0.1", 0, "its kind of database is not supported"),
        ("", "127.0.0.1", 70000, "cannot listen on 127.0.0.1 port 70000"),
        ("", "192.0.2.1", 8080, "cannot listen on 192.0.2.1 port 8080"),
    ],
)
def test_a_wrong_database_or_address_is_named(made, storage, host, port, message):
    with pytest.raises(UserError, match=message) as caught:
        start_dashboard(made.run, storage, host, port)
    assert "hunter2" not in str(caught.value)
    assert not Path("/nowhere").exists()


def test_describing_twice_attaches_once_and_takes_the_last_picture(made):
    trial, run = made.ask()
    made.describe(trial, run)
    first = run.validation_picture.read_bytes()
    assert made.pictures(trial) == [first]
    run.validation_picture.write_bytes(first + b"changed")
    made.describe(trial, run)
    assert made.pictures(trial) == [first + b"changed"]


def test_an_artifact_that_a_kill_left_without_its_file_is_written(made):
    trial, run = made.ask()
    made.describe(trial, run)
    (written,) = (made.run.path / "artifacts").iterdir()
    os.truncate(written, 10)
    made.describe(trial, run)
    assert made.pictures(trial) == [run.validation_picture.read_bytes()]
    written.unlink()
    made.describe(trial, run)
    assert made.pictures(trial) == [run.validation_picture.read_bytes()]


def test_a_note_says_why_a_trial_ended(made):
    trial, run = made.ask()
    shutil.rmtree(run.path)
    trial.set_user_attr("reason", "too many parameters")
    trial.set_user_attr("lost_claims", ["a", "b"])
    made.describe(trial, run)
    note = made.note(trial)
    assert "**not started**" in note
    assert "    too many parameters\n" in note
    assert "continued by another worker after 2 of its workers died" in note
    assert made.pictures(trial) == []

    trial, run = made.ask()
    results = json.loads(run.results_file.read_text())
    run.results_file.write_text(json.dumps(results | {"pruned": True, "epochs": 3}))
    made.describe(trial, run)
    assert "**pruned** after epoch 3" in made.note(trial)


def test_a_note_holds_no_secret(made, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "hunter2hunter2")
    trial, run = made.ask()
    trial.set_user_attr("reason", "no connection to me:hunter2hunter2 at host")
    made.describe(trial, run)
    assert "no connection" in made.note(trial)
    assert "hunter2" not in made.note(trial)
