"""`python -m zoerefine.search` is `zoerefine search`."""

import sys

from zoerefine.cli import main

if __name__ == "__main__":
    sys.exit(main(["search", *sys.argv[1:]]))
