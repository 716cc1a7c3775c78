"""`python -m zoerefine COMMAND ...` is the console script."""

import sys

from zoerefine.cli import main

if __name__ == "__main__":
    sys.exit(main())
