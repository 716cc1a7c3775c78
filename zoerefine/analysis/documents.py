"""The documents of a run: JSON objects and its config, with limits of size and kind."""

import json
import os
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir, require_file
from zoerefine.yaml_text import parse_yaml


def read_document(run: RunDir, path: Path) -> dict[str, Any]:
    """A JSON object of the run; empty where the file does not exist."""
    return run.read_json(path) if os.path.lexists(path) else {}


def read_tree(path: Path) -> dict[str, Any]:
    """The config of a run, with values as JSON can hold them.

    The file is read as it is, not merged into today's defaults: it may be an older version's.
    """
    try:
        require_file(path)
        tree = parse_yaml(path.read_text(encoding="utf-8")).tree
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from None
    if tree is None:  # an empty config
        return {}
    if not isinstance(tree, dict):
        raise UserError(f"{path} is damaged: it holds no mapping of keys")
    return json.loads(json.dumps(tree))
