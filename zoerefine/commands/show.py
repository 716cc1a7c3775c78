"""zoerefine show: what a run was, for people."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from zoerefine.launch.show import open_run, show_run


def main(argv: Sequence[str]) -> int:
    """Print a run's provenance, results, and the command that runs it again."""
    parser = argparse.ArgumentParser(
        prog="show", description="Say what a run was: commit, config, machine, data, results."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's directory")
    print(show_run(open_run(parser.parse_args(argv).run)))
    return 0
