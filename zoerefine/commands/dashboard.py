"""zoerefine dashboard: a study's trials, Pareto front and curves in a browser."""

import argparse
import threading
from collections.abc import Sequence
from pathlib import Path

from zoerefine.run_dir import RunDir


def main(argv: Sequence[str]) -> int:
    """Serve a study until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="dashboard",
        description="Show a study in the browser: optuna-dashboard for its trials, Pareto front "
        "and importances, TensorBoard for their curves. Ctrl-C stops both.",
        epilog="Example: dashboard runs/demo/latest",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a study's directory")
    parser.add_argument(
        "--port", type=int, default=8080, help="the dashboard's; TensorBoard takes the next one"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to serve on; nobody is asked who they are"
    )
    parser.add_argument(
        "--storage",
        default="",
        metavar="URL",
        help="the study's database where its config does not name it (STUDY.STORAGE); passwords "
        "come from PGPASSWORD or ~/.pgpass",
    )
    args = parser.parse_args(argv)

    from zoerefine.search.dashboard import start_dashboard

    study, tensorboard = start_dashboard(
        RunDir(args.run.resolve()), args.storage, args.host, args.port
    )
    try:  # whoever has read the addresses may stop it
        print(f"study        {study}")
        print(f"TensorBoard  {tensorboard}", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        print()
    return 0
