"""The script of `zoerefine reproduce`: run a recorded job again and compare the results."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # use this tree, installed or not

from zoerefine.cli import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
