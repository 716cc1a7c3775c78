"""The commands: `--help` of each, from platform/ and from the console script."""

import re
import shlex
import sys
from functools import cache
from pathlib import Path

import pytest

import zoerefine
from tests.processes import run_new_python, run_program, run_zoerefine
from zoerefine.cli import COMMANDS, main

PLATFORM = Path(__file__).resolve().parents[1] / "platform"
SCRIPTS = sorted(PLATFORM.glob("*.py"))


def test_help_of_every_script_loads_no_heavy_package():
    code = (
        "import runpy, sys\n"
        "for path in sys.argv[1:]:\n"
        "    sys.argv = [path, '--help']\n"
        "    try: runpy.run_path(path, run_name='__main__')\n"
        "    except SystemExit as end: assert not end.code, (path, end.code)\n"
        "    heavy = {'torch', 'cv2', 'matplotlib', 'optuna'} & set(sys.modules)\n"
        "    assert not heavy, (path, heavy)"
    )
    assert run_new_python(code, *SCRIPTS).stdout.count("usage:") == len(SCRIPTS) > 5


def test_platform_is_not_a_package():
    assert not (PLATFORM / "__init__.py").exists()


def console(*words, code=0):
    return run_program([sys.executable, "-m", "zoerefine", *words], code)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_one_line(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--bogus"])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    assert re.fullmatch(rf"error: .*; see zoerefine {name}.* --help\n", shown.err)


@pytest.mark.parametrize("word", ["-1", "-1e-3", "-.5E1", "-.inf"])
def test_a_negative_number_is_a_value(word, capsys):
    assert main(["config", "TRAIN.LR", word]) == 2
    assert "TRAIN.LR must be a number from 0 to 1e+30, got -" in capsys.readouterr().err


def test_help_lists_every_command():
    listed = console("--help").stdout
    assert all(name in listed for name in COMMANDS)
    assert "usage: zoerefine COMMAND" in console(code=2).stderr


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", ">&- <&- 2>&-"])
def test_a_closed_standard_stream_goes_nowhere(tiny, closed):
    """As in some daemons and cron jobs."""
    command = shlex.join([sys.executable, "-m", "zoerefine", "data", "pack", "--config", str(tiny)])
    done = run_program(f"{command} {closed}", shell=True, cwd=tiny.parent)
    assert "Traceback" not in done.stderr


def test_a_current_folder_that_was_removed_is_one_line(tmp_path):
    command = shlex.join([sys.executable, "-m", "zoerefine", "runs"])
    away = f"mkdir away && cd away && rmdir ../away && {command}"
    done = run_program(away, code=2, shell=True, cwd=tmp_path)
    assert done.stderr == "error: the current folder was removed: change to another one\n"


def test_a_training_in_a_folder_that_is_not_utf8_is_one_line(tiny, tmp_path):
    folder = tmp_path / "odd\udcff"
    folder.mkdir()
    *_, last = run_zoerefine(folder, "train", "--config", tiny, code=2).stderr.splitlines()
    assert last.startswith("error: a name that is not UTF-8 cannot be recorded: rename what '")
    assert r"odd\udcff" in last


def test_an_unknown_command_is_named_with_the_closest_one():
    wrong = console("trian", "--config", "x.yaml", code=2)
    assert wrong.stderr == "error: no command trian; did you mean train?\n"
    wrong = console("frobnicate", code=2)
    assert wrong.stderr == ("error: no command frobnicate; `zoerefine --help` lists the commands\n")


def test_the_version_is_printed_without_a_command():
    assert console("--version").stdout == f"zoerefine {zoerefine.__version__}\n"


def test_another_system_than_linux_is_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["train", "--help"]) == 2
    assert capsys.readouterr().err == "error: zoerefine runs on Linux only, and this is darwin\n"


def test_without_the_requirements_the_error_says_what_to_run(tmp_path):
    command = [sys.executable, "-I", "-S", PLATFORM / "run_from_commit.py", "--list"]
    done = run_program(command, code=2, cwd=tmp_path)
    assert done.stderr.startswith("error: ") and "make install" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_inspect_lists_the_faults_of_a_data_set(world, script, tmp_path):
    import shutil

    shutil.copytree(world, tmp_path / "world")
    spoiled = next((tmp_path / "world" / "zoe_depth_raw").rglob("*.png"))
    spoiled.write_bytes(b"")
    done = script("data", "inspect", "world", "--picture", "sheet.png", code=1)
    assert "4 scenes, 4 clips, 16 frames" in done.stdout
    assert "faults: 1" in done.stdout
    assert spoiled.name in done.stdout


def test_pack_prints_where_the_cache_is(tiny, script):
    done = script("data", "pack", "--config", tiny)
    assert (Path(done.stdout.splitlines()[-1]) / "cache.json").exists()


def test_help_wraps_its_description_and_keeps_the_lines_of_examples(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.partition("\nexamples")[0].splitlines())) <= 80
    assert "\n  zoerefine run --clean --older-than 14 --yes\n" in shown


def test_no_option_and_no_key_is_lost():
    """`options_and_keys.txt` is a list of what scripts and configs of users may already contain."""
    text = (PLATFORM.parent / "tests" / "options_and_keys.txt").read_text()
    wanted: dict[str, set[str]] = {}
    for command, _, name in (line.rpartition(" ") for line in text.splitlines()):
        wanted.setdefault(command, set()).add(name)
    keys = console("config", "--markdown").stdout
    assert not {key for key in wanted.pop("key") if f"`{key}`" not in keys}
    for command, options in wanted.items():
        listed = every_option(*command.split())
        assert not {one for one in options if one not in listed}, command


def every_option(*command):
    """What --help-all prints, or --help of a command with few options."""
    shown = help_of(*command)
    return help_of(*command, all="-all") if "--help-all" in shown else shown


@cache
def help_of(*command, all=""):
    done = run_zoerefine(PLATFORM.parent, *command, f"--help{all}")
    assert "usage:" in done.stdout, done.stderr
    return done.stdout


def test_help_lists_the_usual_options_and_help_all_every_one():
    for name in COMMANDS:
        listed = re.findall(r"^  (-[\w-]+)", help_of(name), re.MULTILINE)
        assert len(listed) <= 20, (name, listed)
        assert set(listed) <= set(re.findall(r"^  (-[\w-]+)", every_option(name), re.MULTILINE))
    assert "--requeues" not in help_of("run")
    assert "--requeues" in every_option("run")


def test_search_help_lists_no_option_that_it_refuses():
    shown = every_option("search")
    listed = set(re.findall(r"^  (--[\w-]+)", shown, re.MULTILINE))
    assert "--trials" in listed
    assert not re.search(r"--(nodes|again|seeds)\b", shown)
    assert not listed & {"--again", "--again-number", "--allow-dirty", "--nodes", "--seeds"}
    refused = console("search", "--config", "configs/demo.yaml", "--plan", "--again", code=2)
    assert refused.stderr.startswith("error: --again is")
