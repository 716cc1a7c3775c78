"""The words that a job is called with: its config, its arguments, the overrides."""

import os
from collections.abc import Sequence
from pathlib import Path

from zoerefine.launch.config_merge import NEW_KEY

NO_CONFIG = Path(os.devnull)  # the config of a job that takes none


def usual_overrides(config: Path) -> str:
    """How a job gets KEY VALUE words by default: without a config, as options."""
    return "options" if config == NO_CONFIG else "arguments"


def config_words(flag: str, config: Path) -> list[str]:
    """The option for a config; without a flag, the config alone."""
    return [flag, str(config)] if flag else [str(config)]


def override_words(overrides: Sequence[str], given_as: str) -> list[str]:
    """KEY VALUE words as a job gets them.

    Args:
        given_as: `arguments` for KEY VALUE, `options` for --KEY=VALUE, `file` for none.
    """
    if given_as == "options":
        pairs = zip(overrides[::2], overrides[1::2], strict=True)
        return [f"--{key.removeprefix(NEW_KEY)}={value}" for key, value in pairs]
    return list(overrides) if given_as == "arguments" else []
