"""zoerefine dashboard: a study's trials, Pareto front and curves in a browser."""

import argparse
import threading
from collections.abc import Sequence
from pathlib import Path

from zoerefine.commands.help_format import HelpFormat
from zoerefine.run_dir import RunDir

EPILOG = """\
examples, after `make demo`:
  zoerefine dashboard runs/demo/latest
  zoerefine dashboard runs/demo/latest --port 9000

to see it from another machine (HOST is this one's name), run there:
  ssh -L 8080:localhost:8080 -L 8081:localhost:8081 HOST
"""


def main(argv: Sequence[str]) -> int:
    """Serve a study until Ctrl-C."""
    args = parser().parse_args(argv)

    from zoerefine.searching.dashboard import start_dashboard

    study, tensorboard = start_dashboard(
        RunDir(args.run.resolve()), args.storage, args.host, args.port
    )
    try:  # Ctrl-C may come as soon as the addresses are printed
        print(f"study        {study}")
        print(f"TensorBoard  {tensorboard}", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        print()
    return 0


def parser() -> argparse.ArgumentParser:
    """All options."""
    made = argparse.ArgumentParser(
        prog="zoerefine dashboard",
        description="Show a study in the browser: its trials, Pareto front and parameter "
        "importances in optuna-dashboard, its learning curves in TensorBoard. Ctrl-C stops both.",
        epilog=EPILOG,
        formatter_class=HelpFormat,
    )
    add = made.add_argument
    add("run", type=Path, metavar="RUN", help="a study's run, e.g. runs/search/study")
    add("--port", type=int, default=8080, metavar="N",
        help="port of the dashboard (default: 8080); TensorBoard uses N + 1; 0: any free "
        "ports")  # fmt: skip
    add("--host", default="127.0.0.1", metavar="ADDRESS",
        help="address to serve on (default: 127.0.0.1, this machine only); there is no "
        "authentication")  # fmt: skip
    add("--storage", default="", metavar="URL",
        help="the study's database, if its config does not name it (STUDY.STORAGE); the password "
        "is read from PGPASSWORD or ~/.pgpass")  # fmt: skip
    return made
