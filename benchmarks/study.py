"""The overhead of a study: SQLite, PostgreSQL and Optuna's journal file.

Time to begin and end a trial that does nothing, by the number of trials in the study and by the
number of workers at the same time. SQLite and PostgreSQL are used as zoerefine does, with a lock
around each claim, heartbeats and a check for duplicates; the journal file with Optuna's own ask
and tell. The benchmark starts its own PostgreSQL server on loopback.
"""

import getpass
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from common.report import Row, options, report, row
from optuna.storages.journal import JournalFileBackend

from zoerefine.base.config import defaults, merge
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.study.trials import OwnTraining
from zoerefine.lab.search.space.space import suggest
from zoerefine.lab.search.study.claims import claim_trial, complete
from zoerefine.lab.search.study.samplers import tpe
from zoerefine.lab.search.study.storage import silence_optuna
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.subject import TrialOutcome

TREE = {
    "TRAIN": {"LR": {"low": 1e-4, "high": 1e-2, "log": True}},
    "LOSS": {"OBJECT_WEIGHT": {"low": 0.2, "high": 0.8}},
    "MODEL": {"MAX_LOG": {"low": 0.5, "high": 2.0}},
}
TIMED_TRIALS = 12
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))

OneTrial = Callable[[], None]


def main() -> None:
    """Print the table, and write it to the file of --json."""
    args = options(__doc__).parse_args()
    sizes = (10, 100) if args.quick else (10, 100, 1000, 10_000)
    crowds = (1, 4) if args.quick else (1, 2, 4, 8, 16)
    silence_optuna()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="study-") as folder, postgres() as url:
        kinds = ["sqlite", "journal", *(["postgresql"] if url else [])]
        for number, kind in enumerate(track(kinds, len(kinds), "measuring", "storage")):
            place = Path(folder) / str(number)
            for size in sizes:
                opened = opener(kind, url, place / f"size{size}", f"size{size}")
                fill(opened(), size)
                seconds = statistics.median(timed(trial_of(opened())))
                rows.append(row(f"{kind}: a trial, after {size}", 1000 * seconds, "ms"))
            for crowd in crowds:
                opened = opener(kind, url, place / f"crowd{crowd}", f"crowd{crowd}")
                seconds = together(opened, crowd)
                rows.append(row(f"{kind}: a trial, {crowd} workers", 1000 * seconds, "ms"))
    report(rows, args)


def opener(kind: str, url: str, folder: Path, name: str) -> Callable[[], Any]:
    """A function that opens the study of a name: ours, or Optuna's on a journal file."""
    if kind == "journal":
        path = folder.with_suffix(".log")
        path.parent.mkdir(parents=True, exist_ok=True)

        def open_journal() -> optuna.Study:
            backend = JournalFileBackend(str(path))
            storage = optuna.storages.JournalStorage(backend)
            return optuna.create_study(study_name=name, storage=storage, load_if_exists=True)

        return open_journal
    cfg = defaults()
    study = {"STORAGE": url if kind == "postgresql" else "", "TRIALS": 10**6}
    merge(
        cfg,
        {"RUN": {"NAME": name}, "DATA": {"ROOT": "/"}, "STUDY": study, "SEARCH": TREE},
        "benchmark",
    )
    cfg.freeze()
    return lambda: Study(OwnTraining(cfg), RunDir(folder))


def fill(study: Any, size: int) -> None:
    """Add ended trials to a study."""
    ours = study.optuna if isinstance(study, Study) else study
    random = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    space = space_of()
    trials = []
    for number in range(size):
        trial = random.ask()
        suggest(space, trial)
        done = random.tell(trial, float(number % 97))
        trials.append(
            optuna.create_trial(
                params=done.params, distributions=done.distributions, value=done.value,
                user_attrs={"worker": "filled", "claim": str(number)},
            )
        )  # fmt: skip
    ours.add_trials(trials)


def space_of() -> Any:
    """The space that is searched."""
    from zoerefine.lab.search.space.reader import read_space

    cfg = defaults()
    merge(cfg, {"SEARCH": TREE}, "benchmark")
    return read_space(cfg.SEARCH)


def trial_of(study: Any) -> OneTrial:
    """A function that begins and ends a trial that does nothing."""
    if isinstance(study, Study):

        def ours() -> None:
            claim = claim_trial(study, f"worker{os.getpid()}")
            assert claim is not None
            complete(study, claim, TrialOutcome({"abs_rel": 0.1, "parameters": 1.0}))

        return ours
    space = space_of()

    def plain() -> None:
        study.sampler = tpe(len(study.get_trials(deepcopy=False)))
        trial = study.ask()
        suggest(space, trial)
        study.tell(trial, 0.1)

    return plain


def timed(one: OneTrial) -> list[float]:
    """Seconds of each of a few trials."""
    one()
    seconds = []
    for _ in range(TIMED_TRIALS):
        start = time.perf_counter()
        one()
        seconds.append(time.perf_counter() - start)
    return seconds


def together(opened: Callable[[], Any], crowd: int) -> float:
    """Seconds a trial where many workers run trials at once: the median over all trials."""
    opened()  # create the database first
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(crowd), context.Queue()

    def work() -> None:
        one = trial_of(opened())
        barrier.wait()
        results.put(timed(one))

    workers = [context.Process(target=work) for _ in range(crowd)]
    for worker in workers:
        worker.start()
    seconds = [value for _ in workers for value in results.get()]
    for worker in workers:
        worker.join()
    return statistics.median(seconds)


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a new PostgreSQL server; empty where PostgreSQL is not installed."""
    if not PROGRAMS:
        say("no PostgreSQL here (apt install postgresql): measured without it")
        yield ""
        return
    programs = PROGRAMS[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    user = "postgres" if os.getuid() == 0 else getpass.getuser()
    shutil.chown(folder, user)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(*words: object) -> None:
        subprocess.run([str(word) for word in words], user=user, cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip

    run(programs / "initdb", "-D", folder / "data", "-U", "bench", "-A", "trust")
    control = (programs / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log")
    run(*control, "-o", f"-h 127.0.0.1 -p {port} -k {folder} -c max_connections=200", "start")
    try:
        yield f"postgresql://bench@127.0.0.1:{port}/postgres"
    finally:
        run(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
