"""Tables as frameworks and people write them: which are series over steps, and which are not.

A table is written here with `|` between its lines.
"""

import json
import os
import re
from hashlib import sha256
from math import isnan

import pytest
from torch.utils.tensorboard.writer import SummaryWriter

from zoerefine.lab.runs.metrics import MetricFollower, read_metrics

SERIES = {
    "Keras": ("epoch,accuracy,loss,val_loss|0,.5,2,3|1,.6,1,2", {"accuracy": [0.5, 0.6]}),
    "Lightning, with holes": (
        "epoch,step,train_loss,val_acc|0,9,.5,|0,9,,.7|1,19,.4,|1,19,,.8",
        {"train_loss": [0.5, 0.4], "val_acc": [0.7, 0.8]},
    ),
    "YOLO, with spaces": (
        "   epoch,  train/box_loss,  metrics/mAP50(B)|  1,  1.5,  .2|  2,  1.4,  .3",
        {"train/box_loss": [1.5, 1.4], "metrics/mAP50(B)": [0.2, 0.3]},
    ),
    "Stable-Baselines": (
        "rollout/ep_rew_mean,time/total_timesteps|10,2048|12,4096",
        {"rollout/ep_rew_mean": [10, 12]},
    ),
    "LLaMA-Factory": (
        "current_steps,loss,epoch|10,.9,.04|20,.8,.04|30,.7,.05",
        {"loss": [0.9, 0.8, 0.7]},
    ),
    "CatBoost": ("iter\tLogloss|0\t.7|1\t.6", {"Logloss": [0.7, 0.6]}),
    "a line of Excel": ("sep=;|epoch;acc|1;.1|2;.2", {"acc": [0.1, 0.2]}),
    "numpy.savetxt": ("# epoch,acc|0,.1|10,.2", {"acc": [0.1, 0.2]}),
    "episodes": ("episode,acc,success|1,.1,False|2,.2,True", {"acc": [0.1, 0.2]}),
    "lengths of episodes": ("episode,step,acc|1,200,5|2,150,7|3,500,9", {"acc": [5, 7, 9]}),
    "rounds": ("round,iteration,acc|1,1,.5|1,2,.6|2,1,.7|2,2,.8", {"acc": [0.6, 0.8]}),
    "metrics of parts": (
        "epoch,acc,acc_task,mean_rank,param_count|1,.1,0,3,9|2,.2,.5,2,8",
        {"acc_task": [0, 0.5], "mean_rank": [3, 2], "param_count": [9, 8]},
    ),
    "notes": ("epoch,acc,note|1,.1,|2,.2,best so far|3,.3,", {"acc": [0.1, 0.2, 0.3]}),
    "no value at first": (
        "epoch,loss,acc|1,None,.1|2,.4,.2",
        {"loss": [0.4], "acc": [0.1, 0.2]},
    ),
    "one row of results": ("model,dataset,acc|vit,cifar10,.9", {"acc": [0.9]}),
    "one row of each phase": ("split,acc|val,.9|test,.8", {"val.acc": [0.9], "test.acc": [0.8]}),
    "phases": (
        "epoch,split,loss,acc|1,train,.5,.1|1,val,.6,.2|2,train,.4,.3|2,val,.5,.4",
        {"train.loss": [0.5, 0.4], "val.acc": [0.2, 0.4]},
    ),
    "phases of a schedule, too": (
        "epoch,split,phase,acc|1,train,warmup,.1|1,val,warmup,.2|2,train,main,.3",
        {"train.acc": [0.1, 0.3], "val.acc": [0.2]},
    ),
    "events with metrics of their own": (
        "step,event,loss,acc|1,train,.5,|1,eval,,.1|2,train,.4,|2,eval,,.2",
        {"loss": [0.5, 0.4], "acc": [0.1, 0.2]},
    ),
    "the best one below": ("step,acc|1,.1|2,.3|best,.3", {"acc": [0.1, 0.3]}),
    "the test below": ("epoch,acc,test|1,.1,|2,.3,|test,,.2", {"acc": [0.1, 0.3], "test": [0.2]}),
    "a comment and an empty line": ("# lr .1, today||step,acc|1,.1", {"acc": [0.1]}),
    "semicolons": ("epoch;loss;acc|1;.5;.1|2;.4;.2", {"acc": [0.1, 0.2]}),
    "tabs": ("epoch\tacc|1\t.1|2\t.2", {"acc": [0.1, 0.2]}),
    "separators at the end": ("epoch,acc,loss|1,.1,.5,|2,.2,.4,", {"acc": [0.1, 0.2]}),
    "the header again": ("epoch,loss,acc|1,.5,.1|epoch,loss,acc|2,.4,.2", {"acc": [0.1, 0.2]}),
}

# Several rows without a step: folds, classes, trials, data, and logs that do not say so.
NO_SERIES = {
    "cv_results_ of sklearn": ",mean_fit_time,param_C,acc|0,.5,1,.9|1,.6,10,.8",
    "trials of Optuna": "number,acc,params_lr,state|0,.9,.5,COMPLETE|1,.8,.25,COMPLETE",
    "classification_report": ",precision,acc|0,.9,.8|1,.7,.6|accuracy,.8,.8|macro avg,.8,.7",
    "describe() of pandas": ",acc|count,3|mean,.5|25%,.4",
    "a matrix of confusion": ",acc,dog|acc,5,1|dog,2,7",
    "folds": "fold,acc|0,.9|1,.8|mean,.85",
    "predictions": "truth,acc|1,.9|0,.2|1,.7",
    "an ablation": "variant,acc|full,.9|no aug,.8",
    "a grid": "lr,batch,acc|.1,32,.8|.01,32,.9",
    "times": "time,acc|12:00:01,.1|12:00:02,.2",
    "values alone": "acc|.1|.2",
    "pairs and more": "seconds,loss,val_loss,acc,val_acc|1,.5,.6,.1,.2|2,.4,.5,.3,.4",
    "steps in the first row alone": "step,lr,acc|0,.1,.1|,,.2|,,.3",
    "two counters": "epoch,iter,acc|1,50,.55|1,100,.5|1,,.45",
    "merged cells": "epoch,split,acc|1,val,.5|,val,.4",
}


def write(run, form, table):
    """The table as a CSV, or as JSON rows without its empty cells."""
    lines = table.split("|")
    if form == "csv":
        return run.write("left/log.csv", "\n".join(lines) + "\n")
    names, *rows = ([cell.strip() for cell in re.split("[,;\t]", line)] for line in lines)
    objects = ({k: valued(v) for k, v in zip(names, row, strict=False) if v} for row in rows)
    return run.write("left/log.jsonl", "".join(json.dumps(one) + "\n" for one in objects))


def valued(cell):
    try:
        return float(cell)
    except ValueError:
        return cell


def cases(tables):
    """Every table in both forms; a header inside or above is of CSV files alone."""
    is_csv = re.compile("header|Excel|savetxt|comment|separators")
    forms = [(case, form) for case in tables for form in ("csv", "jsonl")]
    return [(case, form) for case, form in forms if form == "csv" or not is_csv.search(case)]


@pytest.mark.parametrize("case, form", cases(SERIES))
def test_rows_over_steps_are_series(run, case, form):
    table, expected = SERIES[case]
    write(run, form, table)
    metrics = read_metrics(run)
    assert {name: metrics.series[name].values for name in expected} == expected
    assert metrics.faults == ()


@pytest.mark.parametrize("case, form", cases(NO_SERIES))
def test_several_rows_without_a_step_are_not_read(run, case, form):
    write(run, form, NO_SERIES[case])
    metrics = read_metrics(run)
    assert not [name for name in metrics.final if name.endswith("acc")]
    (fault,) = metrics.faults
    assert "without a step" in fault or "some rows state a step and others none" in fault
    assert "acc" in fault and "write" in fault
    run.write("left/other.csv", "epoch,loss\n1,0.5\n")  # a table beside a log is data
    is_log = "epoch" in NO_SERIES[case] or "step," in NO_SERIES[case]
    assert read_metrics(run).faults == (metrics.faults if is_log else ())


@pytest.mark.parametrize(
    "header", [",loss,acc,val_loss,val_acc,lr", "loss,acc,val_loss,val_acc,lr"]
)
def test_the_history_of_keras_is_counted_by_its_rows(run, header):
    index = header.startswith(",")
    rows = ["0,.5,.1,.6,.2,1e-3"[2 - 2 * index :], "1,.4,.3,.5,.4,1e-4"[2 - 2 * index :]]
    write(run, "csv", "|".join([header, *rows]))
    metrics = read_metrics(run)
    assert metrics.series["val_acc"].steps == [1, 2] and metrics.faults == ()
    assert metrics.final == {"loss": 0.4, "acc": 0.3, "val_loss": 0.5, "val_acc": 0.4, "lr": 1e-4}


@pytest.mark.parametrize(
    "table, fault",
    [
        ("epoch,acc|1,80|2,90|test_acc,test_loss|91.5,0.3", "a second table begins in line 4"),
        ("epoch,acc|1,80||acc,test|91.5,0.3", "a second table begins in line 4"),
        ("epoch,acc|1,80|loss,epoch|0.3,2", "a second table begins in line 3"),
        ("epoch,acc|1,.5|2,.6||acc;epoch|.7;3", "column epoch is not read: '.7;3' in line 6"),
        ('epoch,acc,note|1,.5,"say|2,.6,b', "not a valid CSV file: unexpected end of data"),
    ],
)
def test_a_second_table_in_a_file_is_named_and_none_is_read(run, table, fault):
    write(run, "csv", table)
    metrics = read_metrics(run)
    assert metrics.final == {} and fault in metrics.faults[0]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(
    "table, values",
    [
        ("epoch,k,acc|1,1,.9|1,5,.8|2,1,.95|2,5,.85", [0.8, 0.85]),
        ("epoch,digit,acc|1,7,.9|1,8,.8", [0.8]),
        ("round,node,acc|1,a,.9|1,b,.8", [0.8]),
        ("epoch,acc|1,.9|2,.8|3,.7|1,.5|2,.4", [0.5, 0.4, 0.7]),  # a stage that is shorter
        ("round,epoch,acc|0,0,.5|0,1,.6|0,2,.7|1,0,.72|1,1,.74|1,2,.73", [0.7, 0.73]),
        ("epoch,iter,acc|1,1,.1|1,2,.2|2,1,.3|2,2,.4|1,1,.5|1,2,.6", [0.6, 0.4]),
        ("epoch,iter,acc|1,1,.1|1,2,.2|2,1,.3|2,2,.4|2,1,.5", [0.2, 0.5]),
        ("epoch,iter,acc|1,1,.1|1,2,.2|2,1,.3|2,2,.4|2,2,.5", [0.2, 0.5]),
        ("iteration,epoch,acc|1,1,.9|1,2,.8|2,1,.7|2,2,.6|3,1,.5|3,2,.4", [0.8, 0.6, 0.4]),
    ],
)
def test_steps_that_one_attempt_states_twice_with_other_values_are_named(run, form, table, values):
    write(run, form, table)
    run.record(attempt=1)
    metrics = read_metrics(run)
    assert metrics.series["acc"].values == values
    assert re.search(r"the steps of acc(, \w+)? go back to \d or come twice", metrics.faults[0])


FOLDS = [(1, 0.5), (2, 0.6), (3, 0.9), (1, 0.5), (2, 0.45)]  # both begin with one value


@pytest.mark.parametrize("name", ["log.txt", "log.csv", "trainer_state.json", "tb", "files"])
def test_folds_in_any_log_are_named(run, name):
    run.record(attempt=1, metric_patterns=[r"epoch (?P<step>\d+) acc=(\S+)"])
    if name == "log.txt":
        run.write(name, "".join(f"epoch {step} acc={value}\n" for step, value in FOLDS))
    elif name == "log.csv":
        write(run, "csv", "|".join(["epoch,acc", *(f"{step},{value}" for step, value in FOLDS)]))
    elif name == "trainer_state.json":
        rows = [{"step": step, "acc": value} for step, value in FOLDS]
        run.write(f"left/{name}", json.dumps({"log_history": rows}))
    else:
        parts = [FOLDS] if name == "tb" else [FOLDS[:3], FOLDS[3:]]
        for number, part in enumerate(parts):
            with SummaryWriter(str(run.path / "left/tb"), filename_suffix=f".{number}") as writer:
                for step, value in part:
                    writer.add_scalar("acc", value, step)
    metrics = read_metrics(run)
    assert metrics.final["acc"] == pytest.approx(0.9)
    assert "the steps of acc go back to 2 or come twice, and the last value" in metrics.faults[0]


def test_a_speed_that_is_measured_again_at_a_step_is_not_named(run):
    """As by Hugging Face's Trainer, when `evaluate()` is called after the training."""
    run.record(attempt=1)
    rows = [{"step": step, "eval_loss": 1 / step, "eval_steps_per_second": step} for step in (1, 2)]
    again = {"step": 2, "eval_loss": 1 / 2, "eval_steps_per_second": 7.5}
    run.write("left/trainer_state.json", json.dumps({"log_history": [*rows, again]}))
    metrics = read_metrics(run)
    assert metrics.final["eval_loss"] == 0.5 and not metrics.faults


def test_several_experiments_of_sacred_in_one_job_are_named(run):
    for number, values in (("1", [1, 0.5, 0.4]), ("2", [0.9, 0.8])):
        document = {"loss": {"steps": [*range(len(values))], "values": values}}
        run.write(f"left/my_runs/{number}/metrics.json", json.dumps(document))
        run.write(f"left/my_runs/{number}/run.json", "{}")
    run.record(attempt=1)
    assert "loss begins again in another file or folder" in read_metrics(run).faults[0]


def test_final_values_of_one_name_in_two_files_are_named(run):
    run.write("left/metrics.json", '{"acc": 0.75}')
    run.write("left/results.json", '{"acc": 0.5}')
    run.record(attempt=1)
    assert "(left/metrics.json, left/results.json) in one attempt" in read_metrics(run).faults[0]


@pytest.mark.parametrize("steps", [(1, 2, 2), (1, 3, 2)])
def test_a_folder_that_begins_a_later_one_again_is_named(run, steps):
    for version, step in enumerate(steps):
        run.write(f"left/version_{version}/metrics.csv", f"step,acc\n{step},.{version}\n")
    run.record(attempt=1)
    folders = "(left/version_1/metrics.csv, left/version_2/metrics.csv)"
    assert folders in read_metrics(run).faults[0]


@pytest.mark.parametrize("rows", [",loss,val_loss|0,.5,.6|1,.3,.9|mean,.4,.7",
                                  ",loss,val_loss|count,2,2|mean,.4,.7|std,.1,.1"])  # fmt: skip
def test_statistics_of_a_history_are_no_epochs(run, rows):
    write(run, "csv", rows)
    metrics = read_metrics(run)
    assert metrics.final == {} and len(metrics.faults) == 1


def test_later_attempts_are_asked_in_the_same_way(run):
    before = "epoch,acc\n1,.3\n"
    run.write("left/log.csv", before + "1,.5\n2,.9\n1,.4\n")
    known = [len(before), sha256(before.encode()).hexdigest()]
    run.record(attempt=2, logs_before={"left/log.csv": known})
    assert "the steps of acc go back to 1" in read_metrics(run).faults[0]
    (run.path / "left/log.csv").unlink()
    for version in (0, 1, 2):
        path = run.write(f"left/version_{version}/metrics.csv", f"step,acc\n1,.{version}\n")
        if version == 0:
            os.utime(path, (1e9, 1e9))
    folders = "(left/version_1/metrics.csv, left/version_2/metrics.csv)"
    assert folders in read_metrics(run).faults[0]


def test_json_lines_with_an_odd_first_line_or_missing_values_are_read(run):
    rows = '{"epoch": 1, "acc": 0.5}\n{"epoch": 2, "acc": "N/A"}\n{"epoch": 3, "acc": 0.6}\n'
    run.write("left/log.jsonl", "# today\n" + rows)
    metrics = read_metrics(run)
    assert metrics.series["acc"].values == [0.5, 0.6] and metrics.faults == ()


def test_a_column_of_tensors_is_named(run):
    write(run, "csv", "epoch,acc|1,tensor(0.5000)|2,tensor(0.6000)")
    assert "column acc is not read: 'tensor(0.5000)' in line 2" in read_metrics(run).faults[0]
    run.write("left/log.csv", "")
    run.write("log.txt", "acc=tensor(0.5)\n")
    run.record(metric_patterns=[r"acc=(\S+)"])
    assert "values of acc up to 'tensor(0.5' are left out" in read_metrics(run).faults[0]


@pytest.mark.parametrize("name, text", [
    ("log.csv", "epoch,loss\n1,.5\n2,.4\n3,\n"),
    ("log.jsonl", '{"epoch": 1, "loss": 0.4}\n{"epoch": 2, "loss": null}\n'),
])  # fmt: skip
def test_last_rows_without_a_value_are_named(run, name, text):
    """pandas writes NaN as an empty cell, orjson as null."""
    run.write(f"left/{name}", text)
    metrics = read_metrics(run)
    assert metrics.final == {"loss": 0.4} and "the last row states no value" in metrics.faults[0]


def test_what_an_earlier_attempt_left_beside_the_later_one_does_not_count(run):
    state = {"log_history": [{"step": 500, "acc": 0.5}, {"step": 1000, "acc": 0.9}], "epoch": 2}
    old = run.write("left/checkpoint-1000/trainer_state.json", json.dumps(state))
    report = run.write("left/all_results.json", '{"acc": 0.9, "epoch": 2}')
    for path in (old, report):
        os.utime(path, (1e9, 1e9))
    state = {"log_history": [{"step": 500, "acc": 0.55}], "epoch": 1}
    run.write("left/checkpoint-500/trainer_state.json", json.dumps(state))
    run.record(attempt=2)
    metrics = read_metrics(run)
    assert metrics.series["acc"].steps == [500] and metrics.final["acc"] == 0.55


@pytest.mark.parametrize(
    "before, after",
    [
        ("epoch,acc|0,.9|1,.8|", "epoch,acc|1,.5|2,.4|"),
        ("epoch,trial_id,acc|0,a,.9|1,a,.8|", "1,b,.5|2,b,.4|"),
        ("Run,epoch,acc|1,0,.9|1,1,.8|", "2,1,.5|2,2,.4|"),
        ("epoch,acc|0,.9|1,.8|", "epoch,loss,acc|1,3,.5|2,2,.4|"),
        ("epoch,acc|0,.9|1,.8|", "acc,epoch|.5,1|.4,2|"),
    ],
)
def test_a_second_attempt_states_steps_again(run, before, after):
    before, after = (text.replace("|", "\n") for text in (before, after))
    run.write("left/log.csv", before + after)
    known = [len(before), sha256(before.encode()).hexdigest()]
    run.record(attempt=2, logs_before={"left/log.csv": known})
    metrics = read_metrics(run)
    assert metrics.series["acc"].values == [0.9, 0.5, 0.4] and metrics.faults == ()
    assert "loss" not in after or metrics.series["loss"].steps == [1, 2]


def test_what_the_commit_has_of_a_log_is_named(run):
    known = b"epoch,acc\n0,.9\n1,.8\n"
    run.write("left/log.csv", known + b"2,.7\n")
    run.record(logs_committed={"left/log.csv": [len(known), sha256(known).hexdigest()]})
    metrics = read_metrics(run)
    assert metrics.series["acc"].steps == [2]
    assert metrics.faults[0].startswith("left/log.csv: its first 20 bytes are those of the commit")


@pytest.mark.parametrize("name, text", [
    ("history.json", '[{"batches": [{"loss": 3}], "epoch": 1, "acc": 0.5, "acc_best": true},'
                     ' {"batches": [], "epoch": 2, "acc": 0.25, "acc_best": false}]'),
    ("history.json", '[{"epoch": 1, "val": {"acc": 0.5}}, {"epoch": 2, "val": {"acc": 0.25}}]'),
    ("progress.json", '{"time/total_timesteps": 1, "acc": 0.5}\n'
                      '{"time/total_timesteps": 2, "acc": 0.25}\n'),
    ("result.json", '{"training_iteration": 1, "acc": 0.5, "config": {"lr": 0.1}}\n'
                    '{"training_iteration": 2, "acc": 0.25, "config": {"lr": 0.1}}\n'),
])  # fmt: skip
def test_rows_of_skorch_stable_baselines_and_ray_are_read(run, name, text):
    run.write(f"left/{name}", text)
    metrics = read_metrics(run)
    ((metric, series),) = metrics.series.items()
    assert metric.removeprefix("val.") == "acc" and metrics.faults == ()
    assert (series.steps, series.values) == ([1, 2], [0.5, 0.25])
    run.write("left/progress.csv", "training_iteration,acc\n1,.5\n2,.25\n")
    assert name == "history.json" or list(read_metrics(run).series) == ["acc"]


def test_a_file_of_one_epoch_follows_those_whose_steps_begin_again(run):
    """As MMDetection 2 writes one for each attempt."""
    rows = '{{"mode": "val", "epoch": {}, "iter": 20, "mAP": {}}}\n'
    run.write("left/20261126_101010.log.json", rows.format(1, 0.3) + rows.format(2, 0.4))
    run.write("left/20261126_111010.log.json", rows.format(2, 0.35))
    series = read_metrics(run).series["val.mAP"]
    assert (series.steps, series.values) == ([1, 2], [0.3, 0.35])


def test_numbered_folders_of_yolo_are_attempts_of_one_script(run):
    run.write("left/runs/train/exp/results.csv", "epoch,mAP\n0,.5\n1,.6\n")
    run.write("left/runs/train/exp2/results.csv", "epoch,mAP\n1,.7\n")
    assert read_metrics(run).series["mAP"].values == [0.5, 0.7]


def test_the_log_of_detr_and_its_successors_is_read(run):
    rows = ({"train_loss": 2.5 - epoch, "test_acc1": 10.0, "epoch": epoch} for epoch in range(2))
    run.write("left/out/log.txt", "".join(json.dumps(row) + "\n" for row in rows))
    run.write("log.txt", '{"epoch": 1, "printed": 3}\n')
    assert read_metrics(run).final == {"train_loss": 1.5, "test_acc1": 10.0}


def test_folders_that_a_script_calls_checkpoints_are_searched(run):
    run.write("left/checkpoints/log.csv", "epoch,acc\n1,0.5\n")
    run.write("checkpoints/log.csv", "epoch,own\n1,0.5\n")
    assert read_metrics(run).final == {"acc": 0.5}


def test_nothing_is_said_of_data_beside_a_log(run):
    run.write("left/log.csv", "epoch,acc\n1,0.5\n")
    run.write("left/gpu.csv", "name, memory [MiB]\nNVIDIA H100, 30 MiB\nNVIDIA H100, 31 MiB\n")
    run.write("left/texts.csv", "text,answer\nyes,no\nno,yes\n")
    run.write("left/ops.csv", "op,share\nconv,12%\nadd,3%\n")
    metrics = read_metrics(run)
    assert metrics.final == {"acc": 0.5} and metrics.faults == ()


def test_a_line_that_a_kill_cut_off_is_no_part_of_the_next_one(run):
    before = "step,acc\n1,0.1\n2"
    run.write("left/log.csv", before + "2,0.9\n3,0.8\n")
    known = [len(before), sha256(before.encode()).hexdigest()]
    run.record(logs_before={"left/log.csv": known}, attempt=2)
    metrics = read_metrics(run)
    assert metrics.series["acc"].steps == [1, 3]
    assert metrics.faults == ("left/log.csv: line 3 is not read: a kill cut it off",)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(
    "table, apart",
    [
        ("experiment,epoch,loss|a,1,.9|a,2,.8|b,1,.7|b,2,.6", "experiment (a, b)"),
        ("epoch,loader,loss|1,train,.9|1,valid,.8|2,train,.7|2,valid,.6", "loader (train, valid)"),
        ("epoch,is_train,loss|1,True,.9|1,False,.8", "is_train (True, False)"),
        ("epoch,label,loss|1,cat,.9|1,dog,.8", "label (cat, dog)"),
        ("epoch,fold_id,loss|1,0,.9|1,1,.8", "fold_id (0, 1)"),
    ],
)
def test_rows_of_one_step_that_are_different_things_are_not_read(run, form, table, apart):
    write(run, form, table)
    metrics = read_metrics(run)
    assert "loss" not in metrics.final
    assert f"rows of step 1 differ in {apart}, so loss" in metrics.faults[0]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_another_part_is_no_continuation_and_a_second_stage_is(run, form):
    for table, parts in {
        "step,set,stage,loss|1,train,a,.5|3,val,a,.6|4,train,b,.3": "3 differ in set (train, val)",
        "step,set,loss|1,val,.5|2,val,.6|3,test,.4": "3 differ in set (val, test)",
        "fold,epoch,loss|0,4,.5|1,7,.6": "7 differ in fold (0, 1)",  # the best of each
        "step,metric.name,loss|1,a,.5|2,b,.6": "2 differ in metric.name (a, b)",
        "variant,epoch,loss|full,4,.5|half,7,.6": "7 differ in variant (full, half)",
    }.items():
        write(run, form, table)
        metrics = read_metrics(run)
        assert "loss" not in metrics.final
        assert f"rows up to step {parts}, so loss" in metrics.faults[0]
    write(run, form, "step,stage,host,loss|1,a,x,.5|2,a,y,.6|3,b,x,.3")
    metrics = read_metrics(run)
    assert metrics.final == {"loss": 0.3} and metrics.faults == ()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_word_in_the_place_of_the_last_value_leaves_no_earlier_one(run, form):
    write(run, form, "epoch,loss,acc|1,.5,.1|2,diverged,.2|3,,.3")
    metrics = read_metrics(run)
    assert metrics.final == {"acc": 0.3}
    assert len(metrics.faults) == 1 and "'diverged'" in metrics.faults[0]


def test_json_that_writes_nan_as_a_text_has_no_finite_value(run):
    run.write("metrics.jsonl", '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": "NaN"}\n')
    metrics = read_metrics(run)
    assert metrics.series["loss"].steps == [1, 2] and isnan(metrics.final["loss"])


def test_json_rows_below_one_without_a_step_have_steps(run):
    """MMCV's logs begin with the environment."""
    rows = ({"env_info": "x", "seed": 1}, {"mode": "train", "epoch": 1, "iter": 50, "loss": 2.0},
            {"mode": "val", "epoch": 1, "iter": 20, "mAP": 0.3})  # fmt: skip
    run.write("left/20261126.log.json", "".join(json.dumps(row) + "\n" for row in rows))
    run.write("left/timing.csv", "step,ms\n1,3\n2,4\n")
    metrics = read_metrics(run)
    assert metrics.faults == ()
    assert (metrics.final["train.loss"], metrics.final["val.mAP"]) == (2.0, 0.3)


def test_rows_without_a_step_are_final_values_when_the_job_has_ended(run, tmp_path):
    """Not before: another row may come."""
    with run.locked():
        run.set_status("running")
        follower = MetricFollower(run, tmp_path, "acc")
        write(run, "csv", "k,acc|0,.9")
        assert follower.new() == [] and follower.names() == []
        run.set_status("finished")
        assert read_metrics(run).final == {"k": 0, "acc": 0.9}


def test_a_series_whose_last_row_has_no_step_leaves_no_value(run, tmp_path):
    """A study that follows the metric has seen the rows before."""
    rows = '{"step": 1, "acc": 0.1}\n{"step": 2, "acc": 0.2}\n'
    with run.locked():
        run.set_status("running")
        follower = MetricFollower(run, tmp_path, "acc")
        run.write("metrics.jsonl", rows)
        assert follower.new() == [(1, 0.1), (2, 0.2)]
        run.write("metrics.jsonl", rows + '{"acc": 0.3, "test": 0.5}\n')
        assert follower.new() == [] and follower.names() == []
        run.set_status("finished")
    metrics = read_metrics(run)
    assert metrics.final == {"test": 0.5}
    assert "some rows state a step and others none, so acc is not read" in metrics.faults[0]


def test_one_row_of_results_beside_a_log_is_read(run):
    run.write("left/log.csv", "epoch,acc\n1,0.5\n2,0.6\n")
    run.write("left/test.csv", "test_acc,test_loss\n0.7,0.1\n")
    run.write("left/predictions.csv", "id,score\n1,0.7\n2,0.1\n")
    metrics = read_metrics(run)
    assert metrics.final == {"acc": 0.6, "test_acc": 0.7, "test_loss": 0.1}
    assert metrics.faults == ()


def test_final_values_that_hugging_face_states_come_before_its_last_step(run):
    """The last evaluation may be of the best weights, and is not in the trainer's state."""
    for folder, f1, best in (("a", 0.25, 0.5), ("b", 0.125, 0.75)):
        rows = [{"step": 4, "eval_f1": best}, {"step": 8, "eval_f1": f1}]
        run.write(f"left/{folder}/trainer_state.json", json.dumps({"log_history": rows}))
        run.write(f"left/{folder}/all_results.json", json.dumps({"eval_f1": best, "epoch": 2}))
    metrics = read_metrics(run)
    assert metrics.final == {"a/eval_f1": 0.5, "b/eval_f1": 0.75}
    assert metrics.series["a/eval_f1"].values == [0.5, 0.25]
    run.write("left/a/all_results.json", json.dumps({"eval_f1": 0.75, "epoch": 2}))  # equal
    assert read_metrics(run).final == {"a/eval_f1": 0.75, "b/eval_f1": 0.75}
    run.write("left/b/all_results.json", "{}")
    assert read_metrics(run).final == {"a/eval_f1": 0.75, "b/eval_f1": 0.125}
    run.write("left/c/all_results.json", '{"eval_f1": 0.875}')  # of something else
    assert read_metrics(run).final["b/eval_f1"] == 0.125
    rows = {"log_history": [{"step": 8, "eval_f1": 0.125, "epoch": 2}], "epoch": 2.004}
    run.write("left/b/checkpoint-8/trainer_state.json", json.dumps(rows))
    (run.path / "left/b/trainer_state.json").unlink()
    run.write("left/b/all_results.json", '{"eval_f1": 0.75, "epoch": 2.0}')  # rounded
    assert read_metrics(run).final["b/eval_f1"] == 0.75
    run.write("left/b/all_results.json", '{"eval_f1": 0.75, "epoch": 1}')  # older
    assert read_metrics(run).final["b/eval_f1"] == 0.125
