"""One damaged run never stops the analysis of the others, and it is named in one line."""

import json
import os
import zipfile
from itertools import product

import pytest

from tests.tables import csv_rows
from zoerefine.cli import main

ROW = {
    "phase": "val", "step": 1, "epoch": 0, "refined": {"abs_rel": 0.3}, "pseudo": {"abs_rel": 0.6}
}  # fmt: skip
DEEP = "[" * 100_000 + "]" * 100_000
HUGE = "1" + "0" * 400


def row(**changes):
    return json.dumps(ROW | changes) + "\n"


def config(value):
    return f"SEED: 0\nTRAIN: {{LR: {value}}}\nSEARCH: {{}}\n"


# name: file, its content, and a part of the line that names the run ("" where it is still usable).
CONTENTS = {
    "bytes that are not text": ("metrics.jsonl", b'{"phase": "val", "\xff": 1}\n', "line 1"),
    "a text for an epoch": ("metrics.jsonl", row(epoch="one"), "epoch 'one' is not a count"),
    "a huge epoch": ("metrics.jsonl", row(epoch=10**400), "is not a count"),
    "a list for metrics": ("metrics.jsonl", row(refined=[1, 2]), "damaged in line 1"),
    "a list for a metric": ("metrics.jsonl", row(refined={"abs_rel": [1]}), "damaged in line 1"),
    "deep metrics": ("metrics.jsonl", DEEP + "\n", "damaged in line 1"),
    "a row without an end": ("metrics.jsonl", "x" * 3_000_000, ""),
    "huge metrics": ("metrics.jsonl", row(refined={"abs_rel": 1.7e308}), ""),
    "mathematics in a value": ("config.yaml", config("'$\\x$'"), ""),
    "control characters": ("config.yaml", config('"a\\nb\\0\\e[31m"'), ""),
    "a huge negative setting": ("config.yaml", config("-1.7e308"), ""),
    "a huge setting": ("config.yaml", config(HUGE), ""),
    "a tiny setting": ("config.yaml", config("5.0e-324"), ""),
    "a tree for a setting": ("config.yaml", config("{a: [{b: 1}]}"), ""),
    "a deep config": ("config.yaml", "{a: " * 2000 + "1" + "}" * 2000, "levels deep"),
    "a config that was cut": ("config.yaml", "SEED: 0\n", "it ends before SEARCH, the last key"),
    "an empty config": ("config.yaml", "", "it ends before SEARCH, the last key"),
    "yaml without an end": ("config.yaml", "a: [", "damaged"),
    "a list for a config": ("config.yaml", "[]", "holds no mapping"),
    "a config inside itself": ("config.yaml", "&a {b: *a}", "contains itself"),
    "no metric": ("metrics.jsonl", '{"phase": "val"}\n', "damaged in line 1"),
    "an empty provenance": ("provenance.json", "", "damaged"),
    "a list for a provenance": ("provenance.json", "[1]", "is damaged"),
    "a deep provenance": ("provenance.json", DEEP, "damaged"),
    "numbers for words": (
        "provenance.json",
        json.dumps({"module": 5, "commit": {}, "overrides": 5, "arguments": 7, "seed": []}),
        "overrides is not a list",
    ),
    "lists for names": (
        "provenance.json", json.dumps({"commit": [1], "repository": {}, "config": []}), ""
    ),
    "half a character": ("provenance.json", '{"commit": "\\ud800"}', "surrogates"),
    "half a document": ("results.json", '{"schema": 1, "te', "damaged"),
    "a list for results": ("results.json", "[]", "is damaged"),
    "a list for test metrics": ("results.json", '{"schema": 1, "test": [1]}', "test is a list"),
    "another schema": ("results.json", '{"schema": 99}', "has schema 99"),
    "a number for metrics": ("results.json", '{"schema": 1, "test": {"refined": 3}}', "refined"),
    "a number for scenes": ("results.json", '{"schema": 1, "test_scenes": {"s": 1}}', "s is a int"),
    "huge scores": (
        "results.json",
        json.dumps({"schema": 1, "test": {"refined": {"abs_rel": 1.7e308}, "pseudo": {}}}),
        "test.refined.abs_rel is beyond 1e+100",
    ),
    "odd facts": (
        "results.json",
        json.dumps({"schema": 1, "data": [1], "pseudo_label": ["$\\x$"], "parameters": -10**400,
                    "images_per_s": "fast", "test": {"refined": {"abs_rel": "0.2"}}}),
        "parameters is beyond 1e+100",
    ),
    "a list for a status": ("status.json", "[]", "status.json is damaged"),
    "odd values in a status": ("status.json", '{"state": 5, "reason": []}', "is damaged"),
    "a file of zeros for a bundle": ("engine/refiner.ts", b"\0" * 1000, "engine bundle"),
}  # fmt: skip
DOCUMENTS = ("config.yaml", "provenance.json", "results.json", "metrics.jsonl", "status.json")


@pytest.fixture
def analyze(runs, tmp_path, here):
    """Analyse all runs: the lines that are printed, and the rows of runs.csv."""

    def run(*words):
        done = here("analyze", runs.folder, "--out", tmp_path / "out", *words)
        assert "Traceback" not in done.err
        return done.out.splitlines(), csv_rows(tmp_path / "out" / "runs.csv")

    return run


def named(lines, folder):
    """The lines about a run."""
    return [line for line in lines if f"{folder}:" in line]


def test_damaged_contents_are_named_and_all_other_runs_are_analysed(runs, analyze):
    folders = {}
    for number, (name, (file, content, _)) in enumerate(CONTENTS.items()):
        folders[name] = runs.add(f"bad{number:02d}", {"LR": 0.5})
        path = folders[name] / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for seed in range(2):
        runs.add(f"good{seed}", seed=seed)
    lines, rows = analyze()
    assert {"good0", "good1"} <= {row["run"] for row in rows if row["state"] == "finished"}
    assert len(rows) == len(CONTENTS) + 2
    notes = {row["run"]: row["note"] for row in rows if row["state"] == "left out"}
    for name, (_, _, reason) in CONTENTS.items():
        found = named(lines, folders[name])
        if reason and "beyond" not in reason:
            assert reason in notes.pop(folders[name].name), name
        assert len(found) == bool(reason), (name, found)
        assert reason in "".join(found), (name, found)
        assert all(line.isprintable() and len(line) < 700 for line in found)
    assert not notes


@pytest.mark.usefixtures("no_pictures")
def test_what_is_no_regular_file_is_named_at_once(runs, analyze):
    def pipe(path):
        os.mkfifo(path)

    def loop(path):
        path.symlink_to(path.name)

    def device(path):
        path.symlink_to("/dev/zero")

    kinds = {"folder": os.mkdir, "pipe": pipe, "loop": loop, "device": device}
    folders = []
    for document, kind in product(DOCUMENTS, kinds):
        folders.append(runs.add(f"{document} {kind}"))
        (folders[-1] / document).unlink()
        kinds[kind](folders[-1] / document)
    folders.append(runs.folder / "loop")
    folders[-1].symlink_to("loop")
    runs.add("good")
    lines, _ = analyze()
    for folder in folders:
        assert len(named(lines, folder)) == 1, (folder.name, lines)


@pytest.mark.depth
@pytest.mark.usefixtures("no_pictures")
def test_manifests_with_fields_of_other_types_are_named(runs, analyze):
    manifests = [{}, [], None, "x", {"schema": "6"}, {"schema": 6}, {"schema": 6, "latency_ms": []}]
    for number, manifest in enumerate(manifests):
        folder = runs.add(f"bad{number}")
        (folder / "engine").mkdir()
        with zipfile.ZipFile(folder / "engine" / "refiner.ts", "w") as archive:
            archive.writestr("refiner/extra/manifest.json", json.dumps(manifest))
    runs.add("good")
    lines, rows = analyze()
    assert len(rows) == len(manifests) + 1
    for number in range(len(manifests)):
        assert len(named(lines, runs.folder / f"bad{number}")) == 1, lines


@pytest.mark.usefixtures("no_pictures")
def test_cells_of_tables_are_no_formulas_and_numbers_stay_numbers(runs, analyze):
    formulas = ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\tx"]
    numbers = ["-5.0e-3", "+7"]
    for number, value in enumerate([*formulas, *numbers]):
        runs.add(f"run{number}", {"NAME": value, "LR": -0.5})
    _, rows = analyze()
    cells = {row["TRAIN.NAME"] for row in rows}
    assert cells == {f"'{value}" for value in formulas} | set(numbers)


def test_nothing_is_written_where_a_metric_must_be_named_first(runs, tmp_path, capsys):
    folder = runs.folder / "other"
    folder.mkdir(parents=True)
    (folder / "provenance.json").write_text('{"module": "train.py", "commit": "ab"}')
    (folder / "log.csv").write_text("step,acc,loss\n1,0.5,0.2\n")
    words = ["analyze", str(runs.folder), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "which metric?" in capsys.readouterr().err
    assert main([*words, "--metric", "accuracy"]) == 2
    assert not (tmp_path / "out").exists()


def test_show_prints_control_characters_as_escapes(runs, here):
    folder = runs.add("odd")
    recorded = {"commit": "ab\x1b[31m", "repository": "a\nb\u202ec", "module": "x.py"}
    (folder / "provenance.json").write_text(json.dumps(recorded))
    out = here("show", folder).out
    assert "ab\\x1b[31m" in out and "a\\nb\\u202ec" in out
    assert all(line.isprintable() for line in out.splitlines())


@pytest.mark.usefixtures("no_pictures")
def test_a_damaged_digest_of_weights_is_named_and_a_pipe_is_not_waited_for(runs, analyze, capsys):
    first, second = runs.add("first"), runs.add("second", seed=1)
    digest = first / "weights.sha256"
    for fault, damage in (
        ("is not a regular file", lambda: os.mkfifo(digest)),
        ("is damaged: 'utf-8' codec", lambda: digest.write_bytes(b"\xff")),
        ("has 10001 bytes; up to 10000 are read", lambda: digest.write_bytes(b"0" * 10_001)),
    ):
        damage()
        analyze()  # of many runs, the digest only tells copies apart
        capsys.readouterr()
        for words in (["diff", str(first), str(second)], ["show", str(first)]):
            assert main(words) == 2
            assert f"{digest} {fault}" in capsys.readouterr().err
        digest.unlink()


def test_a_pipe_in_the_place_of_results_is_not_waited_for(runs):
    second = runs.add("second")
    (second / "results.json").unlink()
    os.mkfifo(second / "results.json")
    assert main(["show", str(second)]) in (0, 2)
