"""metrics.jsonl, results.json, CSV logs, and patterns on the output."""

import csv
import io
import json
from hashlib import sha256
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.runs.metrics import parse_pattern, read_metrics
from zoerefine.lab.runs.metrics.steps import STEP_NAMES

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def points(run, name):
    series = read_metrics(run).series[name]
    return dict(zip(series.steps, series.values, strict=True))


def test_rows_of_our_own_training_are_named_by_phase(run):
    rows = [
        {"phase": "train", "step": 1, "epoch": 0, "loss": 0.5},
        {"phase": "val", "step": 1, "epoch": 0, "refined": {"abs_rel": 0.25}},
    ]
    run.write("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    run.write("results.json", json.dumps({"schema": 1, "val": {"refined": {"abs_rel": 0.2}}}))
    metrics = read_metrics(run)
    assert set(metrics.series) == {"train.loss", "val.refined.abs_rel"}
    assert metrics.final == {"train.loss": 0.5, "val.refined.abs_rel": 0.2}
    assert metrics.source == "metrics.jsonl, results.json"


def test_a_line_that_a_kill_cut_off_is_left_out(run):
    run.write("metrics.jsonl", '{"step": 1, "acc": 0.5}\n{"step": 2, "ac\n{"step": 3, "acc": 1}\n')
    assert points(run, "acc") == {1: 0.5, 3: 1.0}
    assert read_metrics(run).faults == ()


def test_a_damaged_line_is_named(run):
    run.write("metrics.jsonl", '{"step": 1, "acc": 0.5}\n{"step": 2; "acc": 1}\n')
    assert points(run, "acc") == {1: 0.5}
    assert read_metrics(run).faults == ("metrics.jsonl: line 2 is not a JSON object",)


@given(text=st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_in_any_log_gives_no_traceback(tmp_path_factory, text):
    run = RunDir(tmp_path_factory.mktemp("run"))
    for name in ("metrics.jsonl", "results.json", "log.csv", "status.json", "provenance.json"):
        (run.path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    read_metrics(run)


def test_metrics_jsonl_replaces_other_logs(run):
    run.write("metrics.jsonl", '{"step": 1, "acc": 0.5}\n')
    run.write("left/log.csv", "step,acc,loss\n1,0.1,2\n")
    assert set(read_metrics(run).series) == {"acc"}


@given(
    rows=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20),
    delimiter=st.sampled_from(",;\t"),
    counter=st.sampled_from(STEP_NAMES),
)
def test_a_csv_log_is_read_back(tmp_path_factory, rows, delimiter, counter):
    run = RunDir(tmp_path_factory.mktemp("run"))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(["time", f" {counter.upper()}", "val, acc", "note"])
    writer.writerows([[0.5, step, value, "words"] for step, value in rows])
    (run.path / "left").mkdir()
    (run.path / "left" / "log.csv").write_text(text.getvalue())
    series = read_metrics(run).series
    assert set(series) == {"time", "val, acc"}
    assert dict(zip(series["val, acc"].steps, series["val, acc"].values, strict=True)) == dict(rows)


def test_an_incomplete_last_row_counts_only_in_a_finished_run(run):
    run.write("left/log.csv", "step,acc\n1,0.5\n2,0.9")
    assert points(run, "acc") == {1: 0.5, 2: 0.9}
    run.set_status("failed")
    assert points(run, "acc") == {1: 0.5}


def test_empty_cells_and_odd_rows_are_left_out(run):
    run.write("left/log.csv", "step,loss,acc\n1,0.5,\n1,,0.25\n\n2,,x\n3\n4,1,2,\n")
    assert points(run, "loss") == {1: 0.5, 4: 1}
    assert points(run, "acc") == {1: 0.25, 4: 2}
    assert read_metrics(run).faults == ()


def test_a_row_with_other_columns_and_doubled_columns_are_left_out_and_named(run):
    run.write("left/log.csv", "step,acc,lr\n1,0.5,1\n2,0,75,0,01\n")
    assert points(run, "acc") == {1: 0.5}
    [fault] = read_metrics(run).faults
    assert fault.startswith(
        "left/log.csv: line 3 has 5 values for 3 columns, so it is not read: write"
    )
    run.write("left/log.csv", "step,lr,acc\n1,0.5,1\n2,0.75\n3,0.25,2\n")
    assert points(run, "lr") == {1: 0.5, 3: 0.25}
    assert "line 3 has 2 values for 3 columns" in read_metrics(run).faults[0]
    run.write("left/log.csv", "step,acc,loss,acc\n1,0.5,2,0.75\n")
    found = read_metrics(run)
    assert set(found.series) == {"loss"}
    assert found.faults == ("left/log.csv: two columns are called acc",)


@pytest.mark.parametrize(
    ("text", "column", "cell"),
    [
        ("step;loss\n1;1\n2;0,5\n3;0,25\n", "loss", "0,5"),
        ("step;loss\n1;0,75\n2;0,5\n", "loss", "0,75"),
        ('step,loss\n1,100\n2,"1,000"\n', "loss", "1,000"),
        ("step,loss\n1,100\n2,12%\nbest,100\n", "loss", "12%"),
        ('step,loss\n999,0.5\n"1,000",0.25\n', "step", "1,000"),
    ],
)
def test_a_column_whose_numbers_cannot_all_be_read_is_left_out_and_named(run, text, column, cell):
    run.write("left/log.csv", text)
    metrics = read_metrics(run)
    assert metrics.final == {}
    (fault,) = metrics.faults
    assert f"column {column} is not read: '{cell}' in line" in fault
    assert "write numbers with decimal points" in fault


@pytest.mark.parametrize(
    "rows",
    [
        "step,acc,sha\n1,0.5,3f2a91c\n2,0.75,12345678\n3,1,91e4567\n",
        "step,acc,sha\n1,0.5,12345678\n2,1,abcdef1\n",
        "step,acc,comment\n1,0.5,2\n2,1,good\n",
        'step,acc,kernel\n1,0.5,"3,3"\n2,0.75,"3,3"\n3,1,"3,3"\n',
    ],
)
def test_columns_of_hashes_notes_and_one_pair_are_no_metrics_and_need_no_note(run, rows):
    run.write("left/log.csv", rows)
    metrics = read_metrics(run)
    assert (metrics.final, metrics.faults) == ({"acc": 1}, ())


PARTS = [{"fold": "a"}, {"fold": 0}, {"split": 0}, {"task": "left", "split": "val"}, {"type": "a"},
         {"dataloader_idx": 0}]  # fmt: skip


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("name", ["left/log.csv", "left/log.jsonl", "metrics.jsonl"])
def test_rows_of_one_step_and_other_parts_are_not_taken_for_one_series(run, part, name):
    rows = [
        {"step": step, **{key: changed(value, fold) for key, value in part.items()},
         "acc": 0.1 * step + fold}
        for fold in range(2) for step in range(3)
    ]  # fmt: skip
    write_rows(run, name, rows)
    metrics = read_metrics(run)
    assert not [one for one in metrics.final if one.endswith("acc")]
    (fault,) = metrics.faults
    assert f"rows of step 0 differ in {next(iter(part))} (" in fault and "acc is not read" in fault


@pytest.mark.parametrize("odd", [",step,", "end,,", "# resumed,now,", "skipped,nan_loss,none"])
def test_words_in_a_row_of_a_csv_are_no_header(run, odd):
    run.write("left/log.csv", f"epoch,kind,acc\n1,a,.5\n{odd}\n2,b,.6\n")
    assert points(run, "acc") == {1: 0.5, 2: 0.6}
    run.write("left/log.csv", "epoch,acc\n1,0.5\n2,diverged\n3,.4\n")
    assert points(run, "acc") == {1: 0.5, 3: 0.4}


def test_metrics_named_in_a_column_are_not_one_series(run):
    run.write("left/log.csv", "step,metric,value\n1,loss,.5\n1,acc,.6\n2,loss,.4\n2,acc,.7\n")
    assert not read_metrics(run).final
    assert "rows of step 1 differ in metric (loss, acc)" in read_metrics(run).faults[0]


@pytest.mark.parametrize("name", ["left/log.csv", "metrics.jsonl"])
def test_rows_that_come_again_after_a_resume_are_one_series(run, name):
    rows = [
        {"step": step, "time": f"Thu 10:0{attempt}", "host": f"node{attempt}", "fold": "a",
         "best": str(attempt == 0), "gpu": "AH"[attempt], "started": f"2026-11-2{attempt}",
         "acc": step + 0.1 * attempt}
        for attempt in range(2) for step in range(3)
    ]  # fmt: skip
    write_rows(run, name, rows)
    assert read_metrics(run).final["acc"] == 2.1
    assert read_metrics(run).faults == ()


def changed(value, fold):
    """The value of a part in another fold; `val` stays."""
    if isinstance(value, int):
        return value + fold
    return value if value == "val" else value * (fold + 1)


def write_rows(run, name, rows):
    if name.endswith("l"):
        run.write(name, "".join(json.dumps(row) + "\n" for row in rows))
        return
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    run.write(name, "\n".join(lines) + "\n")


@pytest.mark.parametrize("column", ["split", " Phase", "mode"])
def test_a_csv_rows_phase_stands_before_its_metrics(run, column):
    rows = "1,train,0.94,2\n1,val,0.61,\n1,,0.5,\n2, train ,0.96,1\n2,val,0.62,\n"
    run.write("left/log.csv", f"epoch,{column},acc,loss\n{rows}")
    assert points(run, "train.acc") == {1: 0.94, 2: 0.96}
    assert points(run, "val.acc") == {1: 0.61, 2: 0.62}
    assert points(run, "acc") == {1: 0.5}
    assert points(run, "train.loss") == {1: 2, 2: 1}
    assert set(read_metrics(run).series) == {"train.acc", "val.acc", "acc", "train.loss"}


def test_a_phase_that_is_a_number_is_a_metric_in_a_csv_and_the_first_text_counts(run):
    run.write("left/log.csv", "step,mode,phase,acc\n1,3,train,0.5\n1,4,val,0.25\n")
    assert read_metrics(run).final == {
        "train.mode": 3, "val.mode": 4, "train.acc": 0.5, "val.acc": 0.25
    }  # fmt: skip


def test_columns_that_differ_only_in_spaces_are_left_out_and_named(run):
    run.write("left/log.csv", "step,acc, acc,loss\n1,0.5,0.75,2\n")
    found = read_metrics(run)
    assert found.final == {"loss": 2}
    assert found.faults == ("left/log.csv: two columns are called acc",)
    run.write("left/log.csv", "step,acc, Step,epoch\n1,0.5,7,3\n")
    found = read_metrics(run)
    assert found.final == {} and found.faults == ("left/log.csv: two columns are called step",)


@pytest.mark.parametrize("name, text, found", [
    ("log.tsv", "step\tval, acc\n1\t0.5\n", {"val, acc": {1: 0.5}}),
    ("log.csv", "step\tval, acc\n1\t0.5\n", {"val, acc": {1: 0.5}}),
    ("log.csv", 'step;"a, b, c"\n1;0.5\n', {"a, b, c": {1: 0.5}}),
    ("log.csv", "# run of today, by me\n\n# lr 0.1\nstep,acc\n1,0.5\n", {"acc": {1: 0.5}}),
    ("log.csv", "#params,acc\n7,0.5\n", {"#params": {1: 7}, "acc": {1: 0.5}}),
    ("log.csv", "step,epoch,acc\n,1,0.5\n,2,0.75\n", {"acc": {1: 0.5, 2: 0.75}}),
    ("log.csv", "epoch,step,acc\n1,100,0.5\n2,nan,0.5\n", {"acc": {100: 0.5}}),
    ("log.jsonl", '{"Epoch": "10", "Split": "val", "acc": 0.5}\n', {"val.acc": {10: 0.5}}),
    ("log.jsonl", '{"train/global_step": 3, "acc": 0.5}\n', {"acc": {3: 0.5}}),
    ("metrics.json", '{"acc": 0.5, "step": NaN}', {"acc": {1: 0.5}}),
    ("log.csv", "step,acc\n1,0.5\n".encode("utf-16"), {"acc": {1: 0.5}}),
    ("metrics.json", '\ufeff{"acc": 0.5}\n', {"acc": {1: 0.5}}),
    ("log.jsonl", '\ufeff{"step": 3, "acc": 0.5}\n', {"acc": {3: 0.5}}),
])  # fmt: skip
def test_unusual_text_files_are_read(run, name, text, found):
    run.write(f"left/{name}", text)
    assert {metric: points(run, metric) for metric in read_metrics(run).series} == found
    assert read_metrics(run).faults == ()


def test_a_row_is_named_by_its_line_in_the_file(run):
    run.write("left/log.csv", "# today\n\nstep,acc\n1,0,5\n")
    [fault] = read_metrics(run).faults
    assert fault.startswith("left/log.csv: line 4 has 3 values for 2 columns")


def test_equal_columns_of_several_files_are_named_by_their_files(run):
    run.write("left/logs/train.csv", "epoch,loss\n1,0.5\n")
    run.write("left/logs/val.csv", "epoch,loss\n1,0.75\n")
    assert set(read_metrics(run).series) == {"train/loss", "val/loss"}


def test_runs_inside_a_run_links_and_hidden_folders_are_not_its_logs(run, tmp_path):
    for folder in ("trials/0001", ".cache", "left"):
        run.write(f"{folder}/log.csv", f"step,{folder.strip('.')[:4]}\n1,1\n")
    run.write("trials/0001/provenance.json", "{}")
    (tmp_path / "outside.csv").write_text("step,outside\n1,1\n")
    (run.path / "left" / "link.csv").symlink_to(tmp_path / "outside.csv")
    assert set(read_metrics(run).series) == {"left"}


def test_a_pattern_finds_metrics_in_the_output(run):
    run.record(metric_patterns=[r"epoch (?P<step>\d+).* val_acc=(\S+)"])
    run.write("log.txt", "start\nepoch 3: loss 0.5, val_acc=92.5%\nepoch 4: val_acc=nan\nend\n")
    found = points(run, "val_acc")
    assert found[3] == 92.5 and isnan(found[4]) and len(found) == 2
    assert read_metrics(run).source == "log.txt"


@pytest.mark.parametrize("pattern, names", [
    (r"val_acc=(\S+)", ["val_acc"]),
    (r"loss: ([\d.(]+), top-1/val:\s*(\S+)", ["loss", "top-1/val"]),
    (r"(?i)acc (?:is )?(?P<final>\S+)", ["final"]),
    (r"\(loss\) = (\S+)", ["loss"]),
    (r"(?P<step>\d+) acc (\S+)", ["step", "acc"]),
    (r"(?<=l: )(?<loss>\S+)", ["loss"]),
])  # fmt: skip
def test_a_group_is_named_by_itself_or_by_the_word_before_it(pattern, names):
    assert parse_pattern(pattern).names == names


@pytest.mark.parametrize("pattern, reason", [
    ("val_acc=(", "is not a regular expression"),
    ("val_acc=1", "has no group"),
    (r"(?P<step>\d+)", "has no group"),
    (r"acc=(\S+) (\S+)=(\S+)", "group 2 has no word before it"),
    (r"(?P<loss>\S+) (\S+)", "group 2 has no word before it"),
    (r"(?P<loss>\d)|(?P<loss>x)", "each group needs a name of its own"),
])  # fmt: skip
def test_a_pattern_without_a_metric_is_refused(pattern, reason):
    with pytest.raises(UserError, match=reason):
        parse_pattern(pattern)


def test_values_without_a_step_are_counted(run):
    run.record(metric_patterns=[r"acc=(\S+)"])
    run.write("log.txt", "acc=0.5\nacc=high\nacc='0.25',\n")
    assert points(run, "acc") == {1: 0.5, 2: 0.25}
    assert read_metrics(run).faults == ()


def test_a_word_in_the_place_of_the_last_value_is_named(run):
    run.record(metric_patterns=[r"acc=(\S+)"])
    run.write("log.txt", "acc=0.5\nacc=diverged\n")
    metrics = read_metrics(run)
    assert metrics.final == {"acc": 0.5}
    assert "what stands last for acc is no number ('diverged')" in metrics.faults[0]


@pytest.mark.parametrize(
    ("lines", "odd", "final"),
    [
        (["at 1 acc=999", "at 2 acc=1,024"], "1,024", {}),
        (["at 1 acc=0.25", "at 2 acc=12MB", "at 3 acc=0.5"], "12MB", {"acc": 0.5}),
        (["at 999 acc=0.25", "at 1,000 acc=0.5"], "1,000", {}),
    ],
)
def test_no_value_before_one_that_cannot_be_read_is_the_final_one(run, lines, odd, final):
    run.record(metric_patterns=[r"at (?P<step>\S+) acc=(\S+)"])
    run.write("log.txt", "\n".join(lines) + "\n")
    metrics = read_metrics(run)
    assert metrics.final == final
    assert metrics.faults[0].startswith(f"log.txt: values of acc up to '{odd}' are left out")


def test_a_pattern_that_takes_too_long_is_given_up(run, monkeypatch):
    monkeypatch.setattr("zoerefine.lab.runs.metrics.text_logs.LIMIT_S", 0.2)
    run.record(metric_patterns=[r"acc=((?:a|aa)+)$"])
    run.write("log.txt", "acc=" + "a" * 60 + "!\n")
    metrics = read_metrics(run)
    assert metrics.series == {} and "takes more than 0.2 s" in metrics.faults[0]


def test_a_recorded_pattern_that_is_not_one_is_named(run):
    run.record(metric_patterns=["("])
    run.write("log.txt", "acc=1\n")
    assert "is not a regular expression" in read_metrics(run).faults[0]


def test_a_run_without_metrics_is_empty(run):
    metrics = read_metrics(run)
    assert (metrics.source, metrics.series, metrics.final, metrics.faults) == ("", {}, {}, ())


def test_a_run_may_be_given_by_its_path_which_must_exist(run):
    run.write("metrics.jsonl", '{"step": 1, "acc": 0.5}\n')
    for path in (run.path, str(run.path)):
        assert read_metrics(path).final == {"acc": 0.5}
    with pytest.raises(UserError, match="none is not a run: there is no such folder"):
        read_metrics(f"{run.path}/none")


def test_each_of_several_patterns_finds_its_metrics(run):
    run.write("log.txt", "Loss: 0.5 after 12\nLoss: 0.25 after 24\n")
    run.record(metric_patterns=[r"Loss: (\S+)", r"after (?P<batches>\d+)"])
    assert read_metrics(run).final == {"Loss": 0.25, "batches": 24.0}
    found = read_metrics(run, [r"Loss: (?P<half>\S+) after"])
    assert found.final == {"Loss": 0.25, "batches": 24.0, "half": 0.25}


def test_values_without_a_step_count_from_the_last_start(run):
    first, second = "acc=0.1\nepoch 1 f1=0.2\n", "acc=0.3\nacc=0.4\n"
    run.write("log.txt", first + second)
    patterns = [r"acc=(\S+)", r"epoch (?P<step>\d+) f1=(\S+)"]
    run.record(metric_patterns=patterns, log_bytes_before={"log.txt": len(first)})
    assert points(run, "acc") == {1: 0.3, 2: 0.4}
    assert points(run, "f1") == {1: 0.2}


def test_final_values_of_an_earlier_attempt_do_not_count(run):
    first, second = '{"acc": 0.1}\n{"step": 7, "f1": 0.2}\n', '{"acc": 0.3}\n'
    run.write("metrics.jsonl", first + second)
    run.record(log_bytes_before={"metrics.jsonl": len(first)})
    assert points(run, "acc") == {7: 0.3}
    assert points(run, "f1") == {7: 0.2}


@pytest.mark.parametrize("name, header, line, metric", [
    ("metrics.jsonl", "", '{{"step": {}, "acc": {}}}\n', "acc"),
    ("left/out/log.csv", "step,acc\n", "{},{}\n", "acc"),
    ("left/scalars.json", "", '{{"step": {}, "acc": {}}}\n', "acc"),
    ("log.txt", "", "step {} acc={}\n", "acc"),
])  # fmt: skip
def test_values_that_a_later_attempt_replaces_do_not_count(run, name, header, line, metric):
    def write(first, second):
        texts = ["".join(line.format(*row) for row in rows) for rows in (first, second)]
        run.write(name, header + "".join(texts))
        earlier = (header + texts[0]).encode()
        facts = {"log_bytes_before": {name: len(earlier)},
                 "logs_before": {name: [len(earlier), sha256(earlier).hexdigest()]}}  # fmt: skip
        run.record(metric_patterns=[r"step (?P<step>\d+) acc=(\S+)"], **facts)
        return points(run, metric)

    failed = [(step, step / 100) for step in (1, 2, 3, 4)]
    assert write(failed, [(1, 0.5), (2, 0.6)]) == {1: 0.5, 2: 0.6}
    assert write(failed, [(3, 0.5), (4, 0.6)]) == {1: 0.01, 2: 0.02, 3: 0.5, 4: 0.6}
    assert write(failed, []) == dict(failed)


def test_a_log_that_a_later_attempt_wrote_anew_is_its_own(run):
    """Also where it writes the same rows first, and where parts of a step are told apart."""
    for name, first, then, expected in (
        ("a.jsonl", '{"acc": 0.1}\n{"acc": 0.2}\n', '{"acc": 0.3}\n', {1: 0.3}),
        ("b.csv", "step,b\n1,0.5\n2,0.5\n", "", {1: 0.5, 2: 0.5}),
        ("c.csv", "fold,step,c\n0,1,0.1\n0,2,0.2\n", "1,1,0.3\n1,2,0.4\n", None),
    ):
        run.write(f"left/{name}", first + then)
        known = [len(first), sha256(first.encode()).hexdigest()]
        run.record(logs_before={f"left/{name}": known})
        found = read_metrics(run).series
        metric = {"a.jsonl": "acc", "b.csv": "b", "c.csv": "c"}[name]
        assert (points(run, metric) if metric in found else None) == expected
        (run.path / "left" / name).unlink()
    run.write("left/d.csv", "step,d\n9,0.9\n1,0.1\n")  # other rows, as long as those before
    run.record(logs_before={"left/d.csv": [13, sha256(b"step,d\n9,0.8\n").hexdigest()]})
    assert points(run, "d") == {1: 0.1, 9: 0.9}


BATCHES = [(1, 1, 0.1), (1, 2, 0.2), (1, 4, 0.4), (2, 1, 0.86), (2, 2, 0.87)]  # epoch, iter, acc


@pytest.mark.parametrize("name, line, metric", [
    ("log.csv", "{},{},{}\n", "acc"),
    ("t.log.json", '{{"mode": "train", "epoch": {}, "iter": {}, "acc": {}}}\n', "train.acc"),
])  # fmt: skip
def test_where_steps_begin_again_in_every_epoch_the_epoch_is_the_step(run, name, line, metric):
    def write(rows):
        text = "".join(line.format(*row) for row in rows)
        run.write(name, "epoch,iter,acc\n" * name.endswith("csv") + text)
        return points(run, metric)

    assert write(BATCHES) == {1: 0.4, 2: 0.87}
    assert write([(1, 5, 0.1), (2, 5, 0.2)]) == {1: 0.1, 2: 0.2}
    resumed = [(1, 10, 0.1), (2, 20, 0.2), (3, 30, 0.3), (2, 20, 0.25), (3, 30, 0.35)]
    assert write(resumed) == {10: 0.1, 20: 0.25, 30: 0.35}
    assert write([(0.5, 1, 0.1), (1.0, 2, 0.2), (1.0, 3, 0.3)]) == {1: 0.1, 2: 0.2, 3: 0.3}


def test_rows_of_mmlab_and_detectron2_are_read(run):
    row = '{"loss": 0.5, "step": 2}\n{"accuracy/top1": 87.5, "step": 1}\n'
    run.write("left/work_dirs/r18/20261125_110107/vis_data/scalars.json", row)
    run.write("left/output/metrics.json", '{"iteration": 9, "total_loss": 0.25}\n{"iter')
    run.write("left/other/metrics.json", '{\n  "total_loss": 7, "names": ["a"]\n}\n')
    metrics = read_metrics(run)
    assert metrics.final == {"loss": 0.5, "accuracy/top1": 87.5, "total_loss": 0.25}
    assert metrics.series["total_loss"].steps == [9] and metrics.faults == ()


def test_json_lines_of_any_name_are_read(run):
    rows = [{"epoch": 0, "split": "val", "acc": 0.5}, {"epoch": 1, "split": "val", "acc": 0.75}]
    run.write("left/out/history.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    run.write("left/out/predictions.jsonl", '{"label": 3}\n{"label": 5}\n')  # not a log
    metrics = read_metrics(run)
    assert metrics.final == {"val.acc": 0.75} and metrics.source == "left/out/history.jsonl"
    assert metrics.series["val.acc"].steps == [0, 1]


def test_final_metrics_in_a_json_document_are_read(run):
    """As DVC and Hugging Face's scripts write them; a curve of the same name comes first."""
    run.write("left/metrics.json", '{"test": {"acc": 0.75}, "loss": 0.5, "epoch": 3}')
    run.write("left/out/all_results.json", '{\n "eval_f1": 0.25\n}\n')
    assert read_metrics(run).final == {"test.acc": 0.75, "loss": 0.5, "eval_f1": 0.25}
    run.write("results.json", '{"best": 0.25}')
    assert "best" not in read_metrics(run).series and read_metrics(run).final["best"] == 0.25
    run.results_file.unlink()
    run.write("left/log.csv", "epoch,loss\n1,0.125\n")
    assert read_metrics(run).final == {"test.acc": 0.75, "loss": 0.125, "eval_f1": 0.25}
    run.write("left/metrics.json", "[3]")
    run.write("left/out/all_results.json", '{"eval_f1": ')
    assert read_metrics(run).final == {"loss": 0.125} and read_metrics(run).faults == ()


def test_documents_of_one_folder_with_other_values_are_named_by_their_files(run):
    run.write("left/out/val_metrics.json", '{"acc": 0.75, "loss": 0.5}')
    run.write("left/out/test_metrics.json", '{"acc": 0.5, "loss": 0.5}')
    assert read_metrics(run).final == {"val/acc": 0.75, "test/acc": 0.5, "loss": 0.5}
    run.write("left/out/metrics.json", '{"acc": 0.25}')
    found = {"val/acc": 0.75, "test/acc": 0.5, "acc": 0.25, "loss": 0.5}
    assert read_metrics(run).final == found


def test_sacreds_metrics_are_read_over_its_numbered_folders(run):
    for number, steps, values in (("1", [0, 1], [0.5, 0.25]), ("2", [0, 1, 2], [1, 0.5, 0.125])):
        document = {"train.loss": {"steps": steps, "timestamps": ["t"] * 3, "values": values}}
        run.write(f"left/my_runs/{number}/metrics.json", json.dumps(document, indent=2))
        run.write(f"left/my_runs/{number}/run.json", '{"result": 0.75}')
    assert points(run, "train.loss") == {0: 1, 1: 0.5, 2: 0.125}


def test_the_state_of_hugging_faces_trainer_is_read(run):
    rows = [{"epoch": 0.5, "loss": 0.5, "step": 4}, {"epoch": 1.0, "eval_loss": 0.25, "step": 8}]
    run.write("left/out/checkpoint-4/trainer_state.json", json.dumps({"log_history": rows[:1]}))
    run.write("left/out/trainer_state.json", json.dumps({"log_history": rows}))
    metrics = read_metrics(run)
    assert metrics.final == {"loss": 0.5, "eval_loss": 0.25} and metrics.faults == ()
    assert metrics.series["eval_loss"].steps == [8]
    run.write("left/out/trainer_state.json", '{"log_history": 3}')
    assert read_metrics(run).final == {"loss": 0.5} and len(read_metrics(run).faults) == 1
