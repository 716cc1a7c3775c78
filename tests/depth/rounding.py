"""Depth and confidence of one frame, computed alone and in a batch."""

import numpy as np
import torch

# A GPU takes other algorithms for other batches, which round otherwise.
UNITS = 1 if torch.cuda.is_available() else 0


def assert_equal_units(found, expected):
    """Both uint16: equal on a CPU, within one unit on a GPU, and absent at the same pixels."""
    np.testing.assert_array_equal(found == 0, expected == 0)
    np.testing.assert_allclose(found.astype(int), expected.astype(int), rtol=0, atol=UNITS)
