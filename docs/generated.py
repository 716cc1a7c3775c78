"""What the pages have from the code and the result files, made when the site is built.

A page marks the place by a line `<!-- generated: NAME -->`.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
MOST_ROWS = 60  # of a file with more, the page has those with an aim
CONTENTS = {
    "Start": "install first-run",
    "Tutorials": "tutorial-own-script tutorial-own-data tutorial-robot tutorial-cluster"
    " tutorial-paper",
    "The laboratory": "launching clusters run-contract metrics searching runs archive analysis",
    "Depth": "loading training models points engines inference stream ros",
    "Help": "troubleshooting faq deleting limits",
    "Reference": "commands configuration exit-codes environment-variables run-files api reference",
    "Evidence": "results reliability security",
    "Develop": "architecture extending contributing changelog",
}
# A directive, a name below zoerefine, and which members are shown: all by default, "-" none.
REFERENCE = {
    "zoerefine": (
        "automodule|api",
        "autofunction|base.config.load_config|-",
        "autofunction|depth.data.layouts.readers.open_dataset|-",
        "autofunction|depth.data.loading.batches.make_loader|-",
        "autoclass|depth.infer.refiner.Refiner|load, __call__, stream, step",
        "autoclass|depth.infer.refiner.RefinerStream|__call__, reset",
        "autofunction|depth.infer.stream.step|-",
        "autoclass|base.run_dir.RunDir",
        "autoclass|base.errors.UserError|-",
    ),
    "Data": (
        "automodule|depth.data.dataset",
        "automodule|depth.data.cache.cache|Cache, Records, open_cache",
        "automodule|depth.data.loading.sampler",
        "automodule|depth.data.loading.loader",
        "automodule|depth.data.loading.prefetch|DeviceBatch, Prefetcher",
        "automodule|depth.data.loading.augment",
    ),
    "Networks, losses, metrics": (
        "automodule|depth.model.refiner|RefinerNetwork, DepthHead",
        "automodule|depth.model.backbone",
        "automodule|depth.model|build_refiner",
        "automodule|depth.loss",
        "automodule|depth.metrics",
    ),
    "Runs of any script": (
        "automodule|current_run",
        "autofunction|lab.runs.metrics.read_metrics|-",
        "autoclass|lab.runs.metrics.RunMetrics|-",
        "autoclass|lab.runs.metrics.Series|-",
        "autoclass|lab.runs.metrics.MetricFollower|new, names",
    ),
    "ROS 2": ("automodule|depth.ros.image_messages|rgb_of, depth_of, depth_fields",),
    "Extension points": (
        "automodule|base.registries",
        "automodule|depth.exporting.engine_kinds",
        "automodule|lab.launch.queue.executor",
    ),
}
CARD = 1280, 640  # pixels, as sites show it beside a link
DARK, LIGHT = (31, 31, 31), (240, 240, 240)


def filled(text: str) -> str:
    """A page with its generated parts."""
    return MARK.sub(lambda mark: PARTS[mark[1]](), text)


def printed(*words: str) -> str:
    """What a command prints, as on a terminal of 90 columns."""
    command = [sys.executable, "-m", "zoerefine", *words]
    environment = os.environ | {"COLUMNS": "90", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def keys() -> str:
    """All keys of a config."""
    return printed("config", "--markdown")


def commands() -> str:
    """Every option of every command."""
    from zoerefine.cli import COMMANDS

    sections = []
    for name in COMMANDS:
        text = printed(name, "--help")
        text = printed(name, "--help-all") if "--help-all" in text else text
        sections.append(f"## zoerefine {name}\n\n```text\n{text}```\n")
    return "\n".join(sections)


def results() -> str:
    """The figures of every result file."""
    return "\n".join(section(path) for path in sorted(RESULTS.glob("*.json")))


def section(path: Path) -> str:
    """One file: its program and its rows."""
    # The last row of newer files is of the machine.
    rows = [row for row in json.loads(path.read_text()) if "measure" in row]
    shown = rows if len(rows) <= MOST_ROWS else [row for row in rows if row["goal"]]
    program = path.stem.partition("-")[0]
    of_all = f"{len(rows)} figures" if shown == rows else f"{len(shown)} of {len(rows)} figures"
    lines = [f"### {path.stem}", "", f"{of_all}, by `benchmarks/{program}.py`.", ""]
    if shown:
        lines += ["| measure | value | unit | aim | |", "|---|---|---|---|---|"]
    for row in shown:
        met = ("met" if row["ok"] else "**missed**") if row["goal"] else ""
        measure = row["measure"].replace("|", "\\|")
        lines.append(
            f"| {measure} | {row['value']:.4g} | {row['unit']} | {row['goal'] or ''} | {met} |"
        )
    return "\n".join([*lines, ""])


def contents() -> str:
    """The navigation."""
    blocks = []
    for caption, pages in CONTENTS.items():
        lines = ["```{toctree}", f":caption: {caption}", ":hidden:", "", *pages.split(), "```", ""]
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def reference() -> str:
    """The public names, from their docstrings."""
    sections = []
    for title, rows in REFERENCE.items():
        directives = "\n".join(directive(*row.split("|")) for row in rows)
        sections.append(f"## {title}\n\n```{{eval-rst}}\n{directives}```\n")
    return "\n".join(sections)


def directive(kind: str, name: str, members: str = "") -> str:
    """One line of `REFERENCE` in reStructuredText."""
    option = "" if members == "-" else f"   :members: {members}\n"
    return f".. {kind}:: zoerefine.{name}\n{option}"


PARTS: dict[str, Callable[[], str]] = {
    "keys": keys,
    "commands": commands,
    "results": results,
    "contents": contents,
    "reference": reference,
}


def draw_card(path: Path) -> None:
    """The picture that other sites show beside a link: the name, and real depth."""
    from zoerefine.depth.pictures import font

    card = Image.new("RGB", CARD, DARK)
    with Image.open(ROOT / "docs" / "images" / "real_frames.jpg") as frames:
        height = round(frames.height * CARD[0] / frames.width)
        card.paste(frames.resize((CARD[0], height)), (0, CARD[1] - height))
    draw = ImageDraw.Draw(card)
    draw.text((20, 12), "zoerefine", LIGHT, ImageFont.truetype(font().path, 56))
    line = "Run any training script from a commit; correct predicted depth"
    draw.text((20, 88), line, LIGHT, ImageFont.truetype(font().path, 28))
    path.parent.mkdir(parents=True, exist_ok=True)
    card.save(path)


def fill(app: Any, name: str, source: list[str]) -> None:
    """Sphinx reads a page."""
    source[0] = filled(source[0])


def outdated(app: Any, env: Any, *_: object) -> list[str]:
    """Pages with generated parts are read each time: what they are made of may have changed."""
    return [name for name in env.found_docs if MARK.search(Path(env.doc2path(name)).read_text())]


def finish(app: Any, error: Exception | None) -> None:
    """Sphinx has written the site."""
    if error is None and app.builder.name == "html":
        draw_card(Path(app.outdir) / "_static" / "card.png")
