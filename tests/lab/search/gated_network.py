"""A network whose training waits for a file: `MODEL.NAME tests.lab.search.gated_network:Gated`."""

import os
import signal
import time
from pathlib import Path

from tests.depth.training.networks import OneLayer
from tests.lab.search.gate import GATE

STEPS = 2  # that a process trains before it waits


class Gated(OneLayer):
    """After some steps it waits for the file $ZOEREFINE_TEST_GATE, or for a signal to stop."""

    def __init__(self, base):
        super().__init__(base)
        self.steps = 0

    def before(self, inputs):
        if self.training:
            while self.steps == STEPS and not (is_open() or is_asked_to_stop()):
                time.sleep(0.01)
            self.steps += 1
        return inputs


def is_open():
    return Path(os.environ[GATE]).exists()


def is_asked_to_stop():
    """Whether the training has noted a signal, after which it ends with its next checkpoint."""
    stop_signals = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return getattr(stop_signals, "requested", False)
