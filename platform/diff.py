"""What differs between two runs. The command is zoerefine/commands/diff.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this tree, installed or not

from zoerefine.cli import main

if __name__ == "__main__":
    sys.exit(main(["diff", *sys.argv[1:]]))
