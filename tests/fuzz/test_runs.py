"""Damaged documents, metrics, bundles and addresses: read, or refused with a sentence."""

import json
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.limits import JSON, TEXT, WORDS, bounded, changed, damaged, fuzzed
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.exporting.bundle.bundle import read_manifest
from zoerefine.depth.exporting.show import show_bundle
from zoerefine.lab.launch.git.address import parse_address, submodule_address
from zoerefine.lab.launch.git.mirror import check_ref
from zoerefine.lab.launch.record.show import show_run
from zoerefine.lab.runs.collect import collect
from zoerefine.lab.runs.metrics import read_metrics

PROVENANCE = {
    "repository": "/a", "commit": "ab" * 20, "ref": "main", "config": "a.yaml",
    "input": "input.yaml", "input_digest": "0", "module": "train.py", "overrides": ["A", "1"],
    "arguments": [], "seed": 1, "start": 1.0, "dirty_files": [], "attempt": 1, "caller": ".",
    "seed_key": "SEED", "metric_pattern": "", "dataset_digest": "1", "host": "h",
}  # fmt: skip
METRICS = {"refined": {"abs_rel": 0.2, "rmse": 0.5}, "pseudo": {"abs_rel": 0.3}}
RESULTS = {"schema": 1, "data": "d", "val": METRICS, "test": METRICS, "test_scenes": {"a": METRICS}}
ROW = {"phase": "val", "step": 1, "epoch": 0, **METRICS}
STATUS = {"state": "finished", "reason": "", "started": 1.0, "ended": 2.0, "pid": 1, "host": "h"}
CSV = b"step,acc,loss\n1,0.5,0.1\n2,0.6,nan\n"
CONFIG = b"SEED: 0\nTRAIN: {LR: 0.1, EPOCHS: 2}\n"
PARTS = (
    *("https://", "ssh://", "file://", "git://", "ext::", "user:pw@", "[::1", "]", "host", ":"),
    *("/", "..", "-", "--upload-pack=x", "~", "~nosuch", "%00", "%0a", "@", ".git"),
)
URLS = st.lists(st.sampled_from([*PARTS, " ", "\n", "a" * 300]) | TEXT, max_size=6).map("".join)


def event(scalar):
    """A record of TensorBoard's with one scalar; its checksums are zero."""
    value = b"\x0a\x01a\x15" + struct.pack("<f", scalar)
    data = b"\x09" + struct.pack("<d", 1.0) + b"\x10\x01\x2a" + bytes([len(value) + 2])
    data += b"\x0a" + bytes([len(value)]) + value
    return struct.pack("<Q", len(data)) + b"\0\0\0\0" + data + b"\0\0\0\0"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run, alone in its parent."""
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    folder.mkdir()
    return folder


def write(folder, **documents):
    """Empty the run's folder and write documents: JSON objects or bytes."""
    shutil.rmtree(folder)
    folder.mkdir()
    for name, content in documents.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def read(folder):
    """Read a run in every way."""
    run = RunDir(folder)
    for action in (
        lambda: show_run(run),
        lambda: read_metrics(run),
        lambda: collect([str(folder)]),
        lambda: collect([str(folder)], metrics=["acc"]),
    ):
        with bounded(folder):
            action()


@fuzzed
@given(changed(PROVENANCE), changed(STATUS), changed(RESULTS), changed(ROW), JSON)
def test_any_documents(run, provenance, status, results, row, other):
    rows = b"".join(json.dumps(one).encode() + b"\n" for one in (ROW, row, other))
    write(run, provenance__json=provenance, status__json=status, results__json=results,
          metrics__jsonl=rows, config__yaml=CONFIG, input__yaml=CONFIG)  # fmt: skip
    read(run)


@pytest.mark.parametrize("name", PROVENANCE)
def test_a_fact_of_any_type_is_shown_or_refused(run, name):
    for value in (None, [None], {}, 1):
        write(run, provenance__json=PROVENANCE | {name: value}, status__json=STATUS)
        read(run)


@fuzzed
@given(damaged(json.dumps(PROVENANCE).encode()), damaged(json.dumps(RESULTS).encode()),
       damaged(json.dumps(ROW).encode() + b"\n"), damaged(CONFIG))  # fmt: skip
def test_any_damaged_bytes(run, provenance, results, rows, config):
    write(run, provenance__json=provenance, results__json=results, metrics__jsonl=rows,
          config__yaml=config, status__json=STATUS)  # fmt: skip
    read(run)


@fuzzed
@given(damaged(CSV), damaged(event(0.5) * 3))
def test_any_logs_of_scripts(run, table, events):
    write(run, provenance__json=PROVENANCE, status__json=STATUS, input__yaml=CONFIG, log__csv=table)
    (run / "events.out.tfevents.1.host").write_bytes(events)
    read(run)


@fuzzed
@given(st.data())
def test_any_damaged_bundle(run, exported_run, data):
    write(run)
    path = run / exported_run.bundle.name
    path.write_bytes(data.draw(damaged(exported_run.bundle.read_bytes())))
    for action in (read_manifest, show_bundle):
        with bounded(run):
            action(path)


@fuzzed
@given(URLS)
def test_any_address(run, text):
    with bounded(run):
        parse_address(text)
    with bounded(run):
        submodule_address(parse_address("https://host/a/b.git"), text)


@fuzzed
@given(URLS | st.sampled_from(WORDS))
def test_any_ref(run, text):
    with bounded(run):
        check_ref(text)
    assert Path(run).is_dir()
