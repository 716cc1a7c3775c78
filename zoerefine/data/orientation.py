"""Warns of pictures with an EXIF orientation, which is not applied."""

import threading
from pathlib import Path

from zoerefine.image_files import UPRIGHT, exif_orientation
from zoerefine.progress import warn


class OrientationWarning:
    """Warns of the first turned picture; `note` may be called from any thread.

    A viewer turns such a picture, a network and a depth file do not. So depth that was made from
    the picture as a viewer shows it does not fit the picture as it is read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.turned = 0

    def note(self, path: Path) -> None:
        """Look at the tag of a picture that is read."""
        orientation = exif_orientation(path)
        if orientation == UPRIGHT:
            return
        with self._lock:
            self.turned += 1
            is_first = self.turned == 1
        if is_first:
            warn(
                f"{path} has EXIF orientation {orientation}, which is not applied: its depth must "
                "have the pixel order of the file (other such pictures are not named)"
            )
