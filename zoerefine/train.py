"""`python -m zoerefine.train` is `zoerefine train`."""

import sys

from zoerefine.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
