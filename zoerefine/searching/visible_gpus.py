"""The GPUs that the trials of a study may use."""

import os
from collections.abc import Sequence

from zoerefine.errors import UserError
from zoerefine.launch.provenance import query_gpus


def visible_gpus() -> list[str]:
    """The GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [one for one in chosen.split(",") if one]
    return query_gpus("index")


def refuse_too_few(gpus: Sequence[str], devices: int) -> None:
    """Raises `UserError` where there are GPUs, but fewer than STUDY.DEVICES."""
    if gpus and devices > len(gpus):
        raise UserError(f"STUDY.DEVICES is {devices}, and this machine has {len(gpus)} GPUs")
