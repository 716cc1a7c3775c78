"""What the commands that refine with a bundle have in common: an option, and notes on it."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def add_trust_option(options: "argparse._ActionsContainer") -> None:
    """Add --trust."""
    options.add_argument(
        "--trust", action="store_true",
        help="accept a bundle from elsewhere that is a program (.ts, .pt2), and remember it: "
        "loading it runs it with your rights",
    )  # fmt: skip


def print_notes(bundle: Path | None, manifest: Mapping[str, Any]) -> None:
    """Say if a bundle was chosen on another processor, and what its results warn of."""
    from zoerefine.exporting.processor import other_processor
    from zoerefine.progress import say, warn

    if note := other_processor(dict(manifest)):
        say(f"{bundle}: {note}")
    for warning in manifest.get("warnings", []):
        warn(f"{bundle}: {warning}")
