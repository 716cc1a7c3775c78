"""The script of `zoerefine measure`: calibrate a room by a few distances."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # use this tree, installed or not

from zoerefine.cli import main

if __name__ == "__main__":
    sys.exit(main(["measure", *sys.argv[1:]]))
