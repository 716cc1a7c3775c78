"""The example configs, which commands find by their names: `--config demo`."""

from pathlib import Path

import zoerefine
from zoerefine.base.errors import UserError

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
