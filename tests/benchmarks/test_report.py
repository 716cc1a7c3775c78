"""What benchmarks report: the machine, rounds, no verdict from a busy machine; the table of all."""

import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
MACHINE = {"processor": "P (family 1, model 2)", "cores": 2, "date": "2026-11-24"}


@pytest.fixture
def written(monkeypatch, tmp_path, capsys):
    """A report of rows under a load average: the JSON's rows and machine, and what is printed."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from common import report

    def write(rows, load, **options):
        path = tmp_path / "rows.json"
        args = report.options("").parse_args(["--json", str(path)])
        args.machine = MACHINE | {"load_before": load}
        report.report(rows, args, **options)
        *found, last = json.loads(path.read_text())
        return found, last["machine"], capsys.readouterr().out

    write.row, write.left_out = report.row, report.left_out
    return write


def test_a_figure_has_its_machine_its_rounds_and_their_range(written):
    row = written.row("speed", 2.0, "x", at_least=1.5, rounds=[1.0, 2.0, 4.0])
    [found], machine, printed = written([row], load=0.2)
    assert (found["rounds"], found["spread"], found["ok"]) == (3, [1.0, 4.0], True)
    assert machine.items() >= (MACHINE | {"load_before": 0.2}).items()
    assert "load_after" in machine
    assert MACHINE["processor"] in printed
    assert "(1 to 4 in 3)" in printed


@pytest.mark.parametrize("value", [1.0, 2.0])
def test_no_goal_of_a_time_is_met_or_missed_on_a_busy_machine(written, value):
    rows = [written.row("speed", value, "x", at_least=1.5), written.row("seconds", 1.0, "s")]
    (speed, seconds), _, printed = written(rows, load=1.01)
    assert (speed["ok"], speed["busy"], seconds["ok"]) == (False, True, True)
    assert "busy" in printed
    assert "met" not in printed
    assert "MISSED" not in printed


def test_an_accuracy_counts_on_a_busy_machine(written):
    [found], _, printed = written([written.row("error", 1.0, "", at_most=2.0)], 9.0, timed=False)
    assert found["ok"]
    assert "met" in printed


def test_what_could_not_be_measured_has_a_row(written):
    [found], _, printed = written([written.left_out("mlflow run", "cannot be installed")], 0.0)
    assert found["note"] == "cannot be installed"
    assert "mlflow run: left out" in printed
    assert "cannot be installed" in printed


def test_the_table_has_the_newest_figure_of_each_processor_beside_the_one_before(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from common.bench_all import figures, table

    def history(processor, value, **more):
        row = {"measure": "speed", "value": value, "unit": "x", "goal": "at least 1", "ok": True}
        machine = MACHINE | {"processor": processor, "load_before": 0.1, "load_after": 1.5}
        file = json.dumps([{**row, **more}, {**row, "goal": None}, {"machine": machine}])
        return list(figures("loader", file))

    lines = table(
        [*history("A", 3.0), *history("B", 5.0), *history("A", 2.0, ok=False, busy=True)]
    ).splitlines()
    assert [line for line in lines if line.startswith("## ")] == ["## A", "## B"]
    assert [line for line in lines if "speed" in line] == [
        "| loader: speed | at least 1 | 2 x |  | busy | 3 | 0.1, 1.5 | 2 | 2026-11-24 |",
        "| loader: speed | at least 1 | 5 x |  | met |  | 0.1, 1.5 | 2 | 2026-11-24 |",
    ]
