"""zoerefine show: what a run, or an engine bundle, is, for people."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from zoerefine.launch.show import open_run, show_run


def main(argv: Sequence[str]) -> int:
    """Print where a run or a bundle came from, its results, and the command that makes it again."""
    parser = argparse.ArgumentParser(
        prog="show",
        description="Say what a run was (commit, config, machine, data, results), or what an "
        "engine bundle is (where it came from, what it needs, how far it is from the refiner).",
    )
    parser.add_argument(
        "what", type=Path, metavar="RUN|BUNDLE", help="a run's directory, or an engine bundle"
    )
    path = parser.parse_args(argv).what
    if path.is_dir():
        print(show_run(open_run(path)))
        return 0

    from zoerefine.export.show import show_bundle

    print(show_bundle(path))
    return 0
