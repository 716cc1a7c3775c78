"""Whatever the documents of one run hold, the other runs are analysed."""

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.analysis.conftest import Runs
from zoerefine.lab.analysis.groups import choose_measure, make_groups
from zoerefine.lab.analysis.pictures.captions import facts, legend
from zoerefine.lab.analysis.report.tables import run_rows, scene_rows, summarize, write_csv
from zoerefine.lab.analysis.statistics.comparisons import compare_groups
from zoerefine.lab.runs.collect import collect

WORDS = st.sampled_from(
    ["schema", "phase", "val", "test", "epoch", "refined", "pseudo", "abs_rel", "scenes",
     "test_scenes", "pseudo_label", "data_digest", "commit", "state", "TRAIN", "SEED", "s1"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4)
)
METRICS = VALUES | st.dictionaries(
    st.sampled_from(["refined", "pseudo"]), VALUES | st.dictionaries(st.just("abs_rel"), LEAVES)
)
SCENES = VALUES | st.dictionaries(st.sampled_from(["scene00", "s"]), METRICS)
RESULTS = st.fixed_dictionaries(
    {"schema": st.just(1), "test": METRICS},
    optional={
        "val": METRICS, "test_scenes": SCENES, "data_digest": VALUES, "data": VALUES,
        "pseudo_label": VALUES, "parameters": VALUES, "pruned": VALUES,
    },
)  # fmt: skip
ROWS = st.fixed_dictionaries(
    {"phase": st.just("val"), "epoch": LEAVES}, optional={"refined": METRICS, "pseudo": METRICS}
)
DOCUMENTS = (
    st.tuples(st.sampled_from(["provenance.json", "status.json", "config.yaml"]), VALUES)
    | st.tuples(st.just("results.json"), RESULTS)
    | st.tuples(st.just("metrics.jsonl"), ROWS)
)


@settings(max_examples=30)
@given(st.lists(DOCUMENTS, min_size=1, max_size=3))
def test_a_run_with_odd_documents_never_stops_the_others(documents):
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder) / "runs")
        for seed in range(3):
            runs.add(f"good{seed}", seed=seed)
        odd = runs.add("odd", {"LR": 0.5})
        for name, value in documents:
            (odd / name).write_text(json.dumps(value) + "\n")
        collection = collect([str(runs.folder)])
        names = [run.name for run in collection.runs] + [Path(p).name for p in collection.left_out]
        assert sorted(names) == ["good0", "good1", "good2", "odd"]
        measure = choose_measure(collection.runs)
        groups = make_groups(collection.runs, measure)
        differences = compare_groups(groups, measure)
        assert all(legend(groups, measure) + facts(collection, groups, measure))
        assert all(summarize(collection, groups, differences, measure))
        write_csv(Path(folder) / "runs.csv", *run_rows(collection, groups))
        write_csv(Path(folder) / "scenes.csv", *scene_rows(groups, measure))
