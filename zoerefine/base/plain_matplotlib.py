"""matplotlib as it is delivered: what a user has set for their own figures decides about none of
ours.

A `matplotlibrc` (also one in the working folder) may ask for LaTeX, another resolution or another
font, and `MPLBACKEND` for a window.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from zoerefine.base.errors import UserError

BACKEND = "MPLBACKEND"


@contextmanager
def plain_style(settings: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Draw and save figures inside this context, or decorate a function that does.

    Args:
        settings: what differs from matplotlib's defaults, by the names of its `rcParams`.
    """
    matplotlib = load_matplotlib()
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    with matplotlib.rc_context(defaults | dict(settings or {})):
        yield


@cache
def load_matplotlib() -> Any:
    """The module. Raises `UserError` where the user's matplotlibrc is so wrong that it ends it."""
    backend = os.environ.pop(BACKEND, None)  # a wrong one would be an error of the import
    try:
        import matplotlib
    except (ValueError, OSError) as error:
        raise UserError(f"matplotlib cannot read its matplotlibrc ({error}): correct it") from None
    finally:
        if backend is not None:
            os.environ[BACKEND] = backend
    return matplotlib
