"""The paths of configs and in configs: examples by their names, relative ones as absolute ones."""

import os
from pathlib import Path

import zoerefine
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import CALLER_FOLDER

PACKAGE = Path(zoerefine.__file__).parent
# The build copies configs/ into the package (setup.py); a checkout has no copy.
FOLDER = next(
    (one for one in (PACKAGE / "configs", PACKAGE.parent / "configs") if one.is_dir()),
    PACKAGE / "configs",
)


def example_names() -> list[str]:
    """Names for `--config`: `demo`, `compare/unet`."""
    files = FOLDER.rglob("*.yaml")
    return sorted(file.relative_to(FOLDER).with_suffix("").as_posix() for file in files)


def example_file(name: str) -> Path:
    """The file of an example config. Raises `UserError` where there is none of this name."""
    if name not in example_names():
        raise UserError(f"no example config {name}; there are {', '.join(example_names())}")
    return FOLDER / f"{name}.yaml"


def config_file(path: str | Path) -> Path:
    """The path of a config. Where no such file exists, `demo` and `configs/demo.yaml` are examples.

    So commands of the documentation work in any folder.
    """
    name = str(path).removeprefix("configs/").removesuffix(".yaml")
    return example_file(name) if not Path(path).exists() and name in example_names() else Path(path)


def resolve_path(path: str | Path) -> Path:
    """A path of a config as an absolute one.

    Relative paths start in the folder where the user typed the command; a launched job runs in
    its own workspace, so the launcher passes that folder on in the environment.
    """
    try:
        expanded = Path(path).expanduser()
    except RuntimeError:  # ~nosuchuser/x
        raise UserError(f"{path}: there is no such user") from None
    try:
        return Path(os.environ.get(CALLER_FOLDER, ".")).joinpath(expanded).resolve()
    except FileNotFoundError:
        raise UserError(
            f"{path}: the current folder does not exist any more, change to another one"
        ) from None
    except (OSError, RuntimeError) as error:  # a loop of links
        raise UserError(f"{path} cannot be resolved: {error}") from None
