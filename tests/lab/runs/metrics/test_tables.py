"""Tables as frameworks and people write them: which are series over steps, and which are not.

A table is written here with `|` between its lines.
"""

import json
import re
from math import isnan

import pytest

from zoerefine.lab.runs.metrics import MetricFollower, read_metrics

# With a column of steps, or without one where nothing says that rows are different things.
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
    "index of pandas": (",loss,acc|0,.5,.1|1,.4,.2", {"loss": [0.5, 0.4], "acc": [0.1, 0.2]}),
    "index of pandas, read and written": ("Unnamed: 0,acc|0,.1|1,.2", {"acc": [0.1, 0.2]}),
    "constant words": (
        "model,device,acc|resnet,cuda:0,.1|resnet,cuda:0,.2",
        {"acc": [0.1, 0.2]},
    ),
    "a constant hash": ("acc,sha|.1,3f2a91c|.2,3f2a91c", {"acc": [0.1, 0.2]}),
    "marks of the best": ("acc,best|.1,*|.2,|.3,*", {"acc": [0.1, 0.2, 0.3]}),
    "marks by words": ("acc,improved|.1,yes|.2,no", {"acc": [0.1, 0.2]}),
    "times": (
        "start,took,acc|26 Nov 2026,1:00:00,.1|Thu Nov 26 15:00:00 2026,0:00:03,.1"
        "|Fri Nov 27 1:00:00 2026,1 days 0:00:00,.2",
        {"acc": [0.1, 0.1, 0.2]},
    ),
    "a line of Excel": ("sep=;|epoch;acc|1;.1|2;.2", {"acc": [0.1, 0.2]}),
    "numpy.savetxt": ("# epoch,acc|0,.1|10,.2", {"acc": [0.1, 0.2]}),
    "an index and its header again": (",acc,loss|0,.1,1|,acc,loss|0,.2,1", {"acc": [0.1, 0.2]}),
    "episodes": ("episode,acc,success|1,.1,False|2,.2,True", {"acc": [0.1, 0.2]}),
    "metrics of parts": (
        "acc,acc_task,mean_rank,param_count|.1,0,3,9|.2,.5,2,8",
        {"acc_task": [0, 0.5], "mean_rank": [3, 2], "param_count": [9, 8]},
    ),
    "notes": ("acc,note|.1,|.2,best so far|.3,", {"acc": [0.1, 0.2, 0.3]}),
    "numbers with units": ("acc,took|.1,3.2s|.2,12s", {"acc": [0.1, 0.2]}),
    "no value at first": ("loss,acc|None,.1|.4,.2", {"loss": [0.4], "acc": [0.1, 0.2]}),
    "one row of results": ("model,dataset,acc|vit,cifar10,.9", {"acc": [0.9]}),
    "phases": (
        "split,loss,acc|train,.5,.1|val,.6,.2|train,.4,.3|val,.5,.4",
        {"train.loss": [0.5, 0.4], "val.acc": [0.2, 0.4]},
    ),
    "phases of other data": ("split,data,acc|val,a,.1|test,b,.2", {"val.acc": [0.1]}),
    "events with metrics of their own": (
        "event,loss,acc|train,.5,|eval,,.1|train,.4,|eval,,.2",
        {"loss": [0.5, 0.4], "acc": [0.1, 0.2]},
    ),
    "a row without numbers": ("time,acc|12:00:01,.1|diverged,|12:00:03,.2", {"acc": [0.1, 0.2]}),
    "a constant seed": ("seed,acc|3,.1|3,.2", {"acc": [0.1, 0.2], "seed": [3, 3]}),
    "a loss of classes": ("class,task_loss|.5,2|.25,3", {"class": [0.5, 0.25]}),
    "a search for a rate": ("lr,loss|1e-5,2|1e-4,1", {"loss": [2, 1]}),
    "steps in the first row alone": (
        "step,lr,acc|0,.1,.1|,,.2|,,.3",
        {"acc": [0.1, 0.2, 0.3]},
    ),
    "the best one below": ("step,acc|1,.1|2,.3|best,.3", {"acc": [0.1, 0.3]}),
    "a comment and an empty line": ("# lr .1, today||step,acc|1,.1", {"acc": [0.1]}),
    "semicolons": ("epoch;loss;acc|1;.5;.1|2;.4;.2", {"acc": [0.1, 0.2]}),
    "tabs": ("epoch\tacc|1\t.1|2\t.2", {"acc": [0.1, 0.2]}),
    "another separator below": (
        "epoch,acc|1,.1|2,.2||test_acc;test_loss|.3;.4",
        {"acc": [0.1, 0.2], "test_acc": [0.3], "test_loss": [0.4]},
    ),
    "another separator below, at once": ("epoch,acc|1,.1|acc;epoch|.2;2", {"acc": [0.1, 0.2]}),
    "separators at the end": ("acc,loss|.1,.5,|.2,.4,", {"acc": [0.1, 0.2]}),
    "a norm of parameters": ("param_norm,acc|3,.1|4,.2", {"param_norm": [3, 4]}),
    "a day in each row": ("day,acc|2026-11-26T15:00,.1|26.11.2026,.2", {"acc": [0.1, 0.2]}),
    "the header again": ("loss,acc|.5,.1|loss,acc|.4,.2", {"acc": [0.1, 0.2]}),
}

# What tells the rows apart, as the fault names it.
NO_SERIES = {
    "cv_results_ of sklearn": (
        ",mean_fit_time,param_C,params,mean_test_score,std_test_score,rank_test_score|"
        "0,.5,1,{'C': 1},.9,.1,1|1,.6,10,{'C': 10},.8,.1,2",
        "param_C (1, 10)",
    ),
    "cv_results_, numbers alone": ("params.C,score|.5,.9|1.5,.8", "params.C (0.5, 1.5)"),
    "trials of Optuna": (
        "number,value,params_lr,state|0,.9,.5,COMPLETE|1,.8,.25,COMPLETE",
        "params_lr (0.5, 0.25)",
    ),
    "classification_report": (
        ",precision,recall|0,.9,.8|1,.7,.6|accuracy,.8,.8|macro avg,.8,.7",
        "the first column (a number or nothing, accuracy)",
    ),
    "classification_report, turned": (
        ",cat,dog|precision,.9,.8|recall,.7,.6",
        "the first column (precision, recall)",
    ),
    "describe() of pandas": (",acc|count,3|mean,.5|25%,.4", "the first column (count, mean)"),
    "a matrix of confusion": (",cat,dog|cat,5,1|dog,2,7", "the first column (cat, dog)"),
    "AP of classes": ("AP,label|.9,car|.8,road", "label (car, road)"),
    "classes below an index": (",class,AP|0,car,.9|1,road,.8", "class (car, road)"),
    "data sets": ("data,acc|cifar10,.9|cifar100,.8", "data (cifar10, cifar100)"),
    "numbered classes": ("class_id,AP|0,.9|1,.8", "class_id (0, 1)"),
    "folds": ("fold,acc|0,.9|1,.8|mean,.85", "fold (0, 1)"),
    "folds of many": ("fold,acc|1/5,.9|2/5,.8", "fold (1/5, 2/5)"),
    "splits by number": ("split,acc|0,.9|1,.8|mean,.85|std,.1", "split (0, 1)"),
    "folds by name": (",acc|fold_0,.9|fold_1,.8", "the first column (fold_0, fold_1)"),
    "folds last": ("acc,k|.9,0|.8,1|.85,mean", "k (a number or nothing, mean)"),
    "seeds": ("random_seed,acc|1,.9|2,.8", "random_seed (1, 2)"),
    "seeds with decimals": ("seed,acc|1.0,.9|2.0,.8", "seed (1, 2)"),
    "states": ("random_state,acc|0,.9|1,.8", "random_state (0, 1)"),
    "patients": ("patient_id,acc|0,.9|1,.8", "patient_id (0, 1)"),
    "ids": ("id,score|1,.9|2,.8", "id (1, 2)"),
    "clients": ("acc,Client ID|.9,0|.8,1", "Client ID (0, 1)"),
    "an ablation": ("variant,acc|full,.9|no aug,.8", "variant (full, no aug)"),
    "an ablation by flags": ("aug,mix,acc|True,False,.9|True,True,.8", "mix (False, True)"),
    "an ablation by words": ("use_skip,acc|yes,.9|no,.8", "use_skip (yes, no)"),
    "an ablation by amounts": ("sparsity,acc|0%,.9|50%,.8", "sparsity (0%, 50%)"),
    "checkpoints of trainings": (
        "checkpoint,acc|epoch10_lr0.1,.9|epoch10_lr0.01,.8",
        "checkpoint (epoch10_lr0.1, epoch10_lr0.01)",
    ),
    "keys of another config": ("args.lr,acc|.5,.9|.25,.8", "args.lr (0.5, 0.25)"),
    "an ablation by marks": ("aug,acc|x,.9|,.8", "aug (x, a number or nothing)"),
    "a summary below": ("acc,kind|.9,|.8,|.85,mean", "kind (a number or nothing, mean)"),
    "a scene of each row": ("acc,scene|.9,a|.8,b", "scene (a, b)"),
    "networks": ("net,ms|resnet18,3|resnet50,7", "net (resnet18, resnet50)"),
    "networks of some epoch": (
        "file,acc|a_epoch9.pt,.9|b_epoch9.pt,.8",
        "file (a_epoch9.pt, b_epoch9.pt)",
    ),
    "sizes": ("size,ms|32x32,3|64x64,7", "size (32x32, 64x64)"),
    "ranges": ("depth,err|0-5,3|5-10,7", "depth (0-5, 5-10)"),
    "commits": ("sha,acc|3f2a91c,.9|12345678,.8", "sha (3f2a91c, a number or nothing)"),
    "pictures": ("image,iou|img_01.png,.9|img_02.png,.8", "image (img_01.png, img_02.png)"),
    "parts of a program": ("op,ms|load,3|forward,7", "op (load, forward)"),
    "names and values": ("metric,value|acc,.9|loss,.6", "metric (acc, loss)"),
    "a phase and classes": ("split,class,acc|val,car,.9|val,road,.8", "class (car, road)"),
    "thresholds": ("threshold,recall|.5,.9|.75,.8", "threshold (0.5, 0.75)"),
    "two tables": ("data,acc|a,.9||net,acc|b,.8", "data (a, a number or nothing)"),
    "a word among the losses": (
        "loss,acc|.5,.1|diverged,.2",
        "loss (a number or nothing, diverged)",
    ),
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


def cases(tables, later_header):
    """Every table in both forms; a later header is of CSV files alone."""
    forms = [(case, form) for case in tables for form in ("csv", "jsonl")]
    return [one for one in forms if one[1] == "csv" or not later_header(tables[one[0]][0])]


def has_later_header(table):
    return (
        "||" in table
        or "sep=" in table
        or "header" in table
        or sum("acc" in x for x in table.split("|")) > 1
    )


@pytest.mark.parametrize("case, form", cases(SERIES, has_later_header))
def test_rows_over_steps_are_series(run, case, form):
    table, expected = SERIES[case]
    write(run, form, table)
    metrics = read_metrics(run)
    assert {name: metrics.series[name].values for name in expected} == expected
    assert metrics.faults == () and (form == "jsonl" or "Unnamed: 0" not in metrics.series)


@pytest.mark.parametrize("case, form", cases(NO_SERIES, has_later_header))
def test_rows_that_are_different_things_are_not_read(run, case, form):
    table, apart = NO_SERIES[case]
    write(run, form, table)
    metrics = read_metrics(run)
    phased = {name for name in metrics.final if name.startswith(("mean.", "std."))}
    assert metrics.final.keys() == phased
    (fault,) = metrics.faults
    assert f"rows without a step differ in {apart}, so " in fault


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
def test_parts_that_take_turns_are_not_read_and_a_second_stage_is(run, form):
    write(run, form, "step,set,stage,loss|1,train,a,.5|3,val,a,.6|4,train,b,.3")
    metrics = read_metrics(run)
    assert "loss" not in metrics.final
    assert "rows in turns differ in set (val, train), so loss" in metrics.faults[0]
    write(run, form, "fold,epoch,loss|0,7,.5|1,4,.6|2,9,.3")  # the best of each
    assert "rows in turns differ in fold (1, 2), so loss" in read_metrics(run).faults[0]
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


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_table_that_stops_being_a_series_leaves_no_value(run, tmp_path, form):
    """A study that follows the metric has seen the rows before."""
    with run.locked():
        run.set_status("running")
        follower = MetricFollower(run, tmp_path, "acc")
        write(run, form, "k,acc|0,.9|1,.8")
        assert follower.new() == [(1, 0.9), (2, 0.8)]
        write(run, form, "k,acc|0,.9|1,.8|mean,.85")
        assert follower.new() == [] and follower.names() == []


def test_rows_below_the_only_step_are_counted_until_there_is_another(run, tmp_path):
    first = '{"step": 5, "acc": 0.1}\n{"acc": 0.2}\n{"acc": 0.3}\n'
    with run.locked():
        run.set_status("running")
        follower = MetricFollower(run, tmp_path, "acc")
        run.write("metrics.jsonl", first)
        assert follower.new() == []  # not sure yet
        assert read_metrics(run).series["acc"].steps == [5, 6, 7]
        run.write("metrics.jsonl", first + '{"step": 6, "acc": 0.4}\n{"acc": 0.5}\n')
        assert follower.new() == [(5, 0.3), (6, 0.5)]


def test_a_table_without_steps_beside_another_log_is_named_once(run):
    run.write("left/log.csv", "epoch,acc\n1,0.5\n")
    for name in ("a", "b"):
        run.write(f"left/{name}.csv", "acc,loss\n0.25,2\n0.5,1\n")
    metrics = read_metrics(run)
    assert metrics.final == {"acc": 0.5}
    (fault,) = metrics.faults
    assert fault.startswith("a, b: rows without a step are read only where there is no other log")
    assert "so loss is not read: write a column step" in fault
    for name in ("a", "b"):
        run.write(f"left/{name}.csv", "acc\n0.25\n")
    assert read_metrics(run).faults == ()


def test_final_values_that_hugging_face_states_come_before_its_last_step(run):
    """The last evaluation may be of the best weights, and is not in the trainer's state."""
    for folder, f1, best in (("a", 0.25, 0.5), ("b", 0.125, 0.75)):
        rows = [{"step": 4, "eval_f1": best}, {"step": 8, "eval_f1": f1}]
        run.write(f"left/{folder}/trainer_state.json", json.dumps({"log_history": rows}))
        run.write(f"left/{folder}/all_results.json", json.dumps({"eval_f1": best, "epoch": 2}))
    metrics = read_metrics(run)
    assert metrics.final == {"a/eval_f1": 0.5, "b/eval_f1": 0.75}
    assert metrics.series["a/eval_f1"].values == [0.5, 0.25]
    run.write("left/b/all_results.json", "{}")
    run.write("left/c/all_results.json", '{"eval_f1": 0.875}')  # of something else
    assert read_metrics(run).final["b/eval_f1"] == 0.125
    rows = {"log_history": [{"step": 8, "eval_f1": 0.125, "epoch": 2}], "epoch": 2}
    run.write("left/b/checkpoint-8/trainer_state.json", json.dumps(rows))
    (run.path / "left/b/trainer_state.json").unlink()
    run.write("left/b/all_results.json", '{"eval_f1": 0.75, "epoch": 1}')  # older
    assert read_metrics(run).final["b/eval_f1"] == 0.125
