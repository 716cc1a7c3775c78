"""Damaged configs, pictures and data sets: each is read, or refused with a sentence."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.conftest import CHECKOUT
from tests.fuzz.limits import bounded, damaged, fuzzed
from zoerefine.base.config import load_config
from zoerefine.base.files.images import picture_size, png_is_intact, png_text, read_rgb, read_values
from zoerefine.depth.data.inspect.inspection import inspect
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.networks.onnx import read_description
from zoerefine.depth.data.networks.pseudo_source import source_of

CONFIGS = [path.read_bytes() for path in sorted((CHECKOUT / "configs").glob("*.yaml"))]


def picture(kind, mode):
    """The bytes of a small picture."""
    rng = np.random.default_rng(0)
    shape = (12, 16, 3) if mode == "RGB" else (12, 16)
    pixels = rng.integers(0, 256 if mode == "RGB" else 60000, shape)
    data = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8 if mode == "RGB" else np.uint16)).save(data, kind)
    return data.getvalue()


PICTURES = [picture("PNG", "RGB"), picture("PNG", "I;16"), picture("JPEG", "RGB")]
PSEUDO = b'{"name": "Intel/zoedepth-nyu", "digest": "0123456789abcdef"}'
DESCRIPTION = (
    b'{"name": "a", "height": 224, "width": 224, "unit": "m", "mean": [0.5, 0.5, 0.5], '
    b'"std": [0.2, 0.2, 0.2]}'
)
CELLS = st.sampled_from(["a", "../../x", "/etc/passwd", "", "s1", "nan", "-1", "1e999", "0.001",
                         '"', "a\0b", "é", "a.png"])  # fmt: skip
COLUMNS = ["scene", "clip", "frame", "rgb", "depth", "pseudo", "depth_unit_m", "fx", "fy", "x"]
TABLES = st.tuples(
    st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=8),
    st.lists(st.lists(CELLS, max_size=8), max_size=4),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    st.sampled_from([",", ";", "\t"]),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for one example after the other, alone in its parent."""
    made = tmp_path_factory.mktemp("fuzz") / "inside"
    made.mkdir()
    return made


@fuzzed
@given(st.sampled_from(CONFIGS).flatmap(damaged))
def test_any_damaged_config(folder, data):
    (folder / "config.yaml").write_bytes(data)
    with bounded(folder):
        load_config(folder / "config.yaml")


@fuzzed
@given(st.sampled_from(PICTURES).flatmap(damaged), st.sampled_from([".png", ".jpg"]))
def test_any_damaged_picture(folder, data, suffix):
    path = folder / f"picture{suffix}"
    path.write_bytes(data)
    for read in (read_rgb, read_values, picture_size, png_text, png_is_intact):
        with bounded(folder):
            read(path)


@fuzzed
@given(damaged(PSEUDO), damaged(DESCRIPTION))
def test_any_damaged_statement_of_a_depth_network(folder, pseudo, description):
    (folder / "pseudo.json").write_bytes(pseudo)
    (folder / "depth.json").write_bytes(description)
    with bounded(folder):
        source_of(folder)
    with bounded(folder):
        read_description(folder / "depth.json")
    (folder / "pseudo.json").unlink()


@fuzzed
@given(TABLES, st.sampled_from(PICTURES).flatmap(damaged))
def test_any_table_of_frames(folder, table, data):
    columns, rows, encoding, comma = table
    text = "".join(comma.join(row) + "\n" for row in [columns, *rows])
    (folder / "frames.csv").write_bytes(text.encode(encoding, "replace"))
    (folder / "a.png").write_bytes(data)
    with bounded(folder):
        inspect(open_dataset(Path(folder)))
