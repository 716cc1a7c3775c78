"""The option --config, which most commands have."""

import argparse
from typing import Any


def add_config_option(options: "argparse._ActionsContainer", **settings: Any) -> None:
    """Add --config, with the older spelling --cfg_path, by which older scripts call commands."""
    options.add_argument("--config", "--cfg_path", metavar="FILE", **settings)
