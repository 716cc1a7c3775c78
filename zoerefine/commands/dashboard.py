"""zoerefine dashboard: a study, or the curves of any runs, in a browser."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack

from zoerefine.base.run_dir import RunDir
from zoerefine.base.threads import wait_for_ctrl_c
from zoerefine.commands.options import Parser, add_shared, as_path

EPILOG = """\
examples, after `make demo`:
  zoerefine dashboard runs/demo/latest
  zoerefine dashboard runs/demo/latest --port 9000
  zoerefine dashboard runs/demo/latest/best

to see it from another machine (HOST is this one's name), run there:
  ssh -L 8080:localhost:8080 -L 8081:localhost:8081 HOST
"""


def main(argv: Sequence[str]) -> int:
    """Serve a study, or runs, until Ctrl-C."""
    args = parser().parse_args(argv)

    with ExitStack() as stack:
        addresses = start(args, stack)
        try:  # Ctrl-C may come as soon as the addresses are printed
            for name, address in addresses.items():
                print(f"{name:<11}  {address}", flush=True)
            wait_for_ctrl_c()
        except KeyboardInterrupt:
            print()
    return 0


def start(args: argparse.Namespace, stack: ExitStack) -> dict[str, str]:
    """Start the servers of a study, or of runs; returns their addresses by name."""
    from zoerefine.lab.search.dashboard import (
        runs_without_study,
        start_dashboard,
        start_run_dashboard,
    )

    folder = args.run.resolve()
    runs = [] if args.storage else runs_without_study(folder)
    if runs:
        address = start_run_dashboard(folder, runs, args.host, args.port, stack)
        return {"TensorBoard": address}
    study, tensorboard = start_dashboard(RunDir(folder), args.storage, args.host, args.port)
    return {"study": study, "TensorBoard": tensorboard}


def parser() -> argparse.ArgumentParser:
    """All options."""
    made = Parser(
        "zoerefine dashboard",
        "Show a study in the browser: its trials, Pareto front and parameter "
        "importances in optuna-dashboard, its learning curves in TensorBoard. Or show the curves "
        "of any runs in TensorBoard. Ctrl-C stops it.",
        EPILOG,
    )
    add = made.add_argument
    add(
        "run",
        type=as_path,
        metavar="RUN",
        help="a study's run, e.g. runs/search/study; a run, or a folder of runs",
    )
    add("--port", type=int, default=8080, metavar="N",
        help="port of the dashboard (default: 8080), or of TensorBoard where there is no study; "
        "a study's TensorBoard uses N + 1; 0: any free ports")  # fmt: skip
    add_shared(made, "--host")
    add("--storage", default="", metavar="URL",
        help="the study's database, if its config does not name it (STUDY.STORAGE); the password "
        "is read from PGPASSWORD, ~/.pgpass or the variable that the URL names")  # fmt: skip
    return made
