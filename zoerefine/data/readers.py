"""Opens a data set: finds out which of the known layouts a folder has."""

from pathlib import Path

from zoerefine.data import frames_csv, habitatdyn
from zoerefine.data.dataset import Dataset
from zoerefine.errors import UserError


def open_dataset(root: str | Path) -> Dataset:
    """Read the layout of a folder: HabitatDyn's, or a `frames.csv`.

    Raises `UserError` where the folder is missing, of neither layout, empty, or a file that
    belongs to a frame is missing.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"no data folder {root}: give DATA.ROOT an existing one")
    for reader in (habitatdyn, frames_csv):
        if reader.fits(root):
            dataset = reader.read(root.resolve())
            if not dataset.frames:
                raise UserError(f"{root} holds no frames")
            return dataset
    raise UserError(
        f"{root} is no data set: neither {habitatdyn.RGB} nor {frames_csv.LIST} is in it"
    )
