"""README and tutorials: every command, as it is printed, from the wheel in an empty folder.

A block of `sh` is run; a block of another language whose first line is `# NAME` is that file. What
needs a network, a camera or a cluster of the reader's own stands in blocks of `console`. Worlds get
fewer and smaller frames and checks less time than the pages give them, README's config is made to
train a smaller network for less, and its search of a script makes fewer trials.
"""

import os
import re
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import run_program
from tests.slurm import needs_slurm
from tests.test_dockerfile import ONLY, modules_outside

ROOT = Path(__file__).resolve().parents[1]
SMALL_WORLD = "--frames 3 --height 120 --width 160"
BLOCK = re.compile(r"^```(sh|python)\n(?:# (\S+\.py)\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)


def as_script(page):
    """All blocks of a page as one shell script."""
    parts = ["set -euo pipefail"]
    for kind, name, text in BLOCK.findall((ROOT / "docs" / page).read_text()):
        text = text.replace("--limit 60", "--limit 5").replace("--frames 6", SMALL_WORLD)
        parts.append(text if kind == "sh" else f"cat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE")
    return "\n".join(parts)


@pytest.fixture
def follow(installed, tmp_path, monkeypatch):
    """Run a script in an empty folder, where the wheel is installed: follow(text) -> the output."""
    monkeypatch.setenv("ZOEREFINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    here = tmp_path / "here"
    here.mkdir()

    def run(script):
        monkeypatch.setenv("PATH", f"{installed}{os.pathsep}{os.environ['PATH']}")
        done = run_program(["bash", "-c", script], cwd=here)
        return done.stdout + done.stderr

    return run


@contextmanager
def packages_alone(installed, packages):
    """While entered, no other package than zoerefine, these and what they require is found.

    Yields the modules that are blocked.
    """
    blocked = modules_outside({"zoerefine", *packages}) - {"zoerefine"}
    (folder,) = installed.parent.glob("lib/*/site-packages")
    hook = folder / "sitecustomize.py"
    hook.write_text(ONLY.format(blocked=blocked))
    try:
        yield blocked
    finally:
        hook.unlink()


def test_own_script_with_the_packages_of_the_laboratory_alone(follow, installed, tmp_path):
    page = (ROOT / "docs" / "install.md").read_text()
    (packages,) = re.findall(r"^\$ pip install (gitpython .+)$", page, re.MULTILINE)
    with packages_alone(installed, packages.split()) as blocked:
        assert {"torch", "cv2", "optuna_dashboard", "safetensors"} <= blocked
        output = follow(as_script("tutorial-own-script.md"))
    assert "REPRODUCED: 21 values are exactly the same" in output
    assert (tmp_path / "here" / "digits" / "report" / "report.html").exists()


def test_paper(follow, tmp_path):
    output = follow(as_script("tutorial-paper.md"))
    assert "REPRODUCED" in output
    assert "| ours | 6 |" in output
    report = tmp_path / "here" / "paper" / "report"
    assert {"tables.tex", "overview.pdf", "overview.tex"} <= {p.name for p in report.iterdir()}


def test_own_data(follow):
    output = follow(as_script("tutorial-own-data.md"))
    assert "8 scenes, 8 clips, 24 frames" in output


def test_robot(follow, tmp_path):
    """The loop runs with the packages that the page names, and with no other."""
    output = follow(as_script("tutorial-robot.md"))
    assert output.count(" m ahead") == 3
    page = (ROOT / "docs" / "tutorial-robot.md").read_text()
    (packages,) = re.findall(r"^\$ pip install (numpy .+)$", page, re.MULTILINE)
    blocked = modules_outside({"zoerefine", *packages.split()})
    assert {"torch", "yaml", "matplotlib"} <= blocked
    loop = (tmp_path / "here" / "loop.py").read_text()
    (tmp_path / "here" / "robot.py").write_text(ONLY.format(blocked=blocked) + loop)
    assert follow("python robot.py").count(" m ahead") == 3


@needs_slurm
def test_cluster(follow, slurm, tmp_path):
    output = follow(as_script("tutorial-cluster.md"))
    assert output.count("finished") >= 4
    assert (tmp_path / "here" / "sweep" / "report" / "report.html").exists()


# What `zoerefine demo` leaves, made by a smaller study, and a script in a repository of its own.
BEFORE_README = f"""
set -euo pipefail
zoerefine data synthesize zoerefine-demo/data/synthetic --scenes 8 --clips 1 {SMALL_WORLD}
python -c 'from zoerefine.commands.demo import demo_repository as make; make(); make()'
cd zoerefine-demo
zoerefine run --repo . --commit HEAD --config demo --module search.py \
    DATA.ROOT data/synthetic STUDY.TRIALS 1 STUDY.EPOCHS 1 TRAIN.EPOCHS 1 MODEL.BASE 8
RGB=data/synthetic/habitat_sim_DAVIS/JPEGImages/480p/0000
DEPTH=data/synthetic/zoe_depth_raw/0000
git init --quiet ../script
cat > ../script/train.py <<'END_OF_FILE'
import sys
options = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
with open("metrics.csv", "w") as file:
    file.write(f"step,val_acc\\n1,{{float(options['lr']) + int(options.get('seed', 0)) / 100}}\\n")
END_OF_FILE
git -C ../script add train.py
git -C ../script -c user.name=me -c user.email=me@localhost commit --quiet --message script
"""
LESS = "sed -i 's/EPOCHS: [0-9]*/EPOCHS: 1/g; s/TRIALS: ./TRIALS: 2/; s/BASE: 32/BASE: 8/' my.yaml"
ARRAYS = (
    "import numpy as np\nrgb, zoe_m = np.zeros((48, 64, 3), np.uint8), np.full((48, 64), 2.0)\n"
)


@pytest.mark.timeout(3600)
def test_readme(follow, installed):
    """Its commands in their order, and its Python, with what `pip install .` brings."""
    text = (ROOT / "README.md").read_text()
    steps = re.findall(r"^\| [^|]+ \| `(zoerefine .+?)` \|$", text, re.MULTILINE)
    script = re.findall(r"^zoerefine (?!demo).+$", text, re.MULTILINE)
    script = [re.sub(r"^zoerefine search ", r"\g<0>--trials 5 ", line) for line in script]
    (python,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert (len(steps), len(script)) == (8, 4)
    steps = [re.sub(r"(?<= )(RGB|DEPTH)\b", r"$\1", step) for step in steps]
    for number, step in enumerate(steps):
        if step.startswith("zoerefine config"):
            steps[number] += f"\n{LESS}"
        if step.startswith("zoerefine check"):  # what it finds in so few steps is open
            steps[number] = step.replace("check", "check --limit 5") + " || test $? = 1"
    program = f"cat > program.py <<'END'\n{ARRAYS}{python}END\npython program.py"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [re.match(r"[\w-]+", line)[0] for line in project["dependencies"]]
    with packages_alone(installed, required):
        output = follow("\n".join([BEFORE_README, *steps, program, "cd ../script", *script]))
    assert "REPRODUCED" in output
