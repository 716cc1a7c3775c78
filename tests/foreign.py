"""Small training repositories that know nothing of zoerefine, each in another common style.

    yacs_tensorboard   configs/mnist.yaml, `--cfg FILE KEY VALUE ...`, TensorBoard files
    argparse_csv       settings.json, `--settings FILE` only, a CSV log
    plain_prints       main.yaml, `--config FILE`, one printed line an epoch, no other log

Every script "trains" for some epochs: `val_acc` depends on the learning rate (best at 0.01), the
seed and the epoch. After each epoch it writes a checkpoint, from which it resumes. It writes into
its working directory, as such scripts do. At the end it leaves `model.txt`, the final `val_acc`.
An epoch takes `EPOCH_S` (`epoch_s`) seconds. Tests can stop a script in the middle:

    gate = Gate(tmp_path, monkeypatch)   from now on, every script waits after its first epoch
    gate.waiting()                       whether a script has come there since the last call
    gate.open()                          all go on
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.processes import git

TRAINING = '''
"""A training that is only a formula."""

import json
import math
import os
import random
import time
from pathlib import Path


def train(out, lr, seed, epochs, epoch_s, log):
    """Call log(epoch, val_acc, loss) for each epoch that no checkpoint has; leave model.txt."""
    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / "checkpoint.json"
    done = json.loads(checkpoint.read_text())["epoch"] if checkpoint.exists() else 0
    gate = os.environ.get("TEST_GATE")
    for epoch in range(done + 1, epochs + 1):
        while gate and epoch > 1 and not Path(gate).exists():
            Path(f"{gate}.waiting").touch()
            time.sleep(0.02)
        time.sleep(epoch_s)
        noise = random.Random(f"{seed} {epoch}").uniform(0, 0.01)
        best = 1 - abs(math.log10(lr) + 2) / 4
        val_acc = best * (1 - math.exp(-epoch / 2)) + noise
        log(epoch, val_acc, 1 - val_acc)
        (out / "checkpoint.tmp").write_text(json.dumps({"epoch": epoch, "val_acc": val_acc}))
        os.replace(out / "checkpoint.tmp", checkpoint)
    (out / "model.txt").write_text(repr(json.loads(checkpoint.read_text())["val_acc"]))
'''

YACS_SCRIPT = """
import argparse, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from yacs.config import CfgNode as CN

from training import train

cfg = CN({"OUTPUT_DIR": "output", "SEED": 0, "DATA": CN({"SIZE": (28, 28)})})
cfg.TRAIN = CN({"LR": 0.1, "EPOCHS": 4, "EPOCH_S": 0.0})
cfg.MODEL = CN({"NAME": "mlp"})
parser = argparse.ArgumentParser()
parser.add_argument("--cfg", required=True)
parser.add_argument("opts", nargs=argparse.REMAINDER)
args = parser.parse_args()
cfg.merge_from_file(args.cfg)
cfg.merge_from_list(args.opts)
out = Path(cfg.OUTPUT_DIR)
writer = EventFileWriter(str(out / "tb"))


def log(epoch, val_acc, loss):
    scalars = {"val_acc": val_acc, "train/loss": loss}
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
    writer.add_event(Event(wall_time=time.time(), step=epoch, summary=Summary(value=values)))
    writer.flush()


train(out, cfg.TRAIN.LR, cfg.SEED, cfg.TRAIN.EPOCHS, cfg.TRAIN.EPOCH_S, log)
writer.close()
"""
YACS_CONFIG = """\
# MNIST, as in the paper
OUTPUT_DIR: output
SEED: 0
DATA:
  SIZE: (28, 28)
TRAIN:
  LR: 0.1  # tuned by hand
  EPOCHS: 4
  EPOCH_S: 0.0
"""

ARGPARSE_SCRIPT = """
import argparse, csv, json
from pathlib import Path

from training import train

parser = argparse.ArgumentParser()
parser.add_argument("--settings", required=True, help="a JSON file")
settings = json.loads(Path(parser.parse_args().settings).read_text())
out = Path("results")
out.mkdir(exist_ok=True)
with open(out / "log.csv", "a", newline="") as file:
    rows = csv.writer(file)
    if not file.tell():  # new, or a kill came before its header was written
        rows.writerow(["epoch", "val_acc", "loss", "note"])
        file.flush()

    def log(epoch, val_acc, loss):
        rows.writerow([epoch, val_acc, loss, "fine"])
        file.flush()

    training = settings["training"]
    train(out, training["lr"], settings["seed"], training["epochs"], training["epoch_s"], log)
"""
ARGPARSE_CONFIG = {
    "seed": 0,
    "training": {"lr": 0.1, "epochs": 4, "epoch_s": 0.0},
    "model": {"name": "mlp"},
}

PRINTS_SCRIPT = """
import argparse
from pathlib import Path

import yaml

from training import train

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
settings = yaml.safe_load(Path(parser.parse_args().config).read_text())


def log(epoch, val_acc, loss):
    print(f"epoch {epoch}: loss={loss!r} val_acc={val_acc!r}", flush=True)


train(Path("."), settings["lr"], settings["seed"], settings["epochs"], settings["epoch_s"], log)
print("done")
"""
PRINTS_CONFIG = "lr: 0.1\nseed: 0\nepochs: 4\nepoch_s: 0.0\n"


@dataclass(frozen=True)
class Style:
    """How a repository's script is called, and where its outputs are.

    Attributes:
        keys: the config's own key for each of lr, seed, epochs and epoch_s.
        options: what the launcher needs to know beside repository and commit.
        out: the folder of its outputs, in its working directory.
    """

    script: str
    config: str
    files: dict
    keys: dict
    options: tuple
    out: str


def named(pattern):
    return {name: pattern(name) for name in ("lr", "seed", "epochs", "epoch_s")}


STYLES = {
    "yacs_tensorboard": Style(
        "tools/train.py",
        "configs/mnist.yaml",
        {"tools/train.py": YACS_SCRIPT, "configs/mnist.yaml": YACS_CONFIG},
        named(lambda name: name.upper() if name == "seed" else f"TRAIN.{name.upper()}"),
        ("--config-flag=--cfg",),
        "output",
    ),
    "argparse_csv": Style(
        "train.py",
        "settings.json",
        {"train.py": ARGPARSE_SCRIPT, "settings.json": json.dumps(ARGPARSE_CONFIG, indent=2)},
        named(lambda name: name if name == "seed" else f"training.{name}"),
        ("--config-flag=--settings", "--overrides", "file", "--seed-key", "seed"),
        "results",
    ),
    "plain_prints": Style(
        "main.py",
        "main.yaml",
        {"main.py": PRINTS_SCRIPT, "main.yaml": PRINTS_CONFIG},
        named(lambda name: name),
        (
            *("--overrides", "file", "--seed-key", "seed"),
            r"--metric-pattern=epoch (?P<step>\d+).*val_acc=(?P<val_acc>\S+)",
        ),
        ".",
    ),
}
KINDS = tuple(STYLES)


class Gate:
    """A file for which scripts wait."""

    def __init__(self, folder, monkeypatch):
        self.path = folder / "gate"
        self.marker = folder / "gate.waiting"
        monkeypatch.setenv("TEST_GATE", str(self.path))

    def waiting(self):
        there = self.marker.exists()
        self.marker.unlink(missing_ok=True)
        return there

    def open(self):
        self.path.touch()


class ForeignRepository:
    """A git repository with such a script.

    Attributes:
        commit: its newest commit.
        script, config: paths in the repository.
        keys: the config's own key for each of lr, seed, epochs and epoch_s.
        out: the folder of the outputs in the script's working directory.
    """

    def __init__(self, folder, kind):
        self.folder, self.kind, self.style = Path(folder), kind, STYLES[kind]
        self.script, self.config = self.style.script, self.style.config
        self.keys, self.out = self.style.keys, self.style.out
        self.folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.change(self.style.files | {"training.py": TRAINING})

    def git(self, *words):
        return git(self.folder, *words)

    def change(self, files):
        """Commit files."""
        commit_files(self.folder, files)
        self.commit = self.git("rev-parse", "HEAD")

    def edit(self, name, edited):
        """Commit another text of a file: edit("main.py", lambda text: "import os\n" + text)."""
        self.change({name: edited((self.folder / name).read_text())})

    def job(self):
        """The options of `zoerefine run` and `search` that name its job."""
        words = ["--repo", self.folder, "--commit", self.commit]
        words += ["--module", self.script, "--config", self.config, *self.style.options]
        return [str(word) for word in words]

    def set(self, **values):
        """KEY VALUE words: set(lr=0.01, epochs=2)."""
        return [word for name, value in values.items() for word in (self.keys[name], str(value))]

    def run_by_hand(self, folder, **values):
        """Run the script in a new folder as its author would; returns the final val_acc."""
        folder.mkdir(parents=True)
        config = folder / Path(self.config).name
        command = [sys.executable, self.folder / self.script]
        text = (self.folder / self.config).read_text()
        if self.kind == "yacs_tensorboard":
            config.write_text(text)
            command += ["--cfg", config, *self.set(**values)]
        elif self.kind == "argparse_csv":
            settings = json.loads(text)
            for name, value in values.items():
                (settings if name == "seed" else settings["training"])[name] = value
            config.write_text(json.dumps(settings))
            command += ["--settings", config]
        else:
            settings = dict(line.split(": ") for line in text.splitlines()) | values
            config.write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
            command += ["--config", config]
        env = {key: value for key, value in os.environ.items() if not key.startswith("ZOEREFINE")}
        words = [str(word) for word in command]
        subprocess.run(words, cwd=folder, env=env, capture_output=True, check=True)
        return self.final(folder)

    def final(self, folder):
        """The final val_acc in the outputs that a run left in a folder."""
        return float((Path(folder) / self.out / "model.txt").read_text())


def write_files(folder, files):
    """Write files, text by path, and the folders that they need."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def commit_files(folder, files):
    """Commit files to a folder, which becomes a repository; returns the folder."""
    write_files(folder, files)
    for words in (["init", "-q"], ["add", "--all"], ["commit", "-qm", "change"]):
        git(folder, *words)
    return folder
