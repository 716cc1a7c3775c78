"""The OpenVINO engine and signals of its process."""

import gc
import sys
import weakref
from importlib.util import find_spec

import pytest

from tests.depth.exporting.sources import untrained_source
from tests.processes import run_program
from zoerefine.depth.exporting.engine_kinds import engine_kind

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed")

# Two engines of a tiny model are compiled, and freed in this order; then comes Ctrl-C.
PROGRAM = """
import signal, sys
from pathlib import Path
import numpy as np, openvino
from openvino import opset13
from zoerefine.depth.exporting.engines.openvino_engine import WEIGHTS, XML, compile_model

folder = Path(sys.argv[1])
inputs = [opset13.parameter([1, channels, 8, 8], np.float32) for channels in (3, 1)]
model = openvino.Model([opset13.multiply(*inputs)], inputs, "tiny")
openvino.save_model(model, folder / XML)
assert (folder / WEIGHTS).exists()
options = [(folder / name).read_bytes() for name in (XML, WEIGHTS)], "fp32", 1, False
first, second = compile_model(*options), compile_model(*options)
del first
del second
signal.signal(signal.SIGINT, lambda *_: print("handled"))
signal.raise_signal(signal.SIGINT)
"""


def test_ctrl_c_after_engines_were_freed_is_handled(tmp_path):
    done = run_program([sys.executable, "-c", PROGRAM, tmp_path], timeout=300)
    assert done.stdout == "handled\n"


def test_a_source_is_freed_after_its_engines_are_built():
    source = untrained_source()
    for precision in ("fp32", "int8"):
        engine_kind("openvino").build(source, precision)
    refiner = weakref.ref(source.refiner)
    del source
    gc.collect()
    assert refiner() is None
