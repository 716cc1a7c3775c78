"""A timeline of a few dozen real training steps, and a sentence that names the bottleneck."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from zoerefine.base.config import Config
from zoerefine.base.files.atomic import replacing
from zoerefine.base.progress import track
from zoerefine.base.threads import Span, Timeline
from zoerefine.depth.data.cache.cache import MappedRecords, Records
from zoerefine.depth.data.loading.prefetch import WAIT
from zoerefine.depth.training.job import prepare
from zoerefine.depth.training.trainer import Trainer
from zoerefine.lab.analysis.pictures.style import plain_style

WARM_UP = 4  # steps before the profile
DRAWN = 12  # steps in the picture
STEP = "training step"
# Shares of the time:
WAIT_SHARE = 0.05  # training is data-bound if it waits longer
CONVERT_SHARE = 0.2  # conversion is the bottleneck if it takes longer
BUSY_SHARE = 0.7  # a thread that works longer is the bottleneck


@dataclass(frozen=True)
class StepProfile:
    """The measured steps.

    Attributes:
        spans: sorted by start.
        shares: the share of the time in which each row was busy.
        images_per_s: over all steps.
        verdict: the bottleneck, and what to change.
    """

    spans: tuple[Span, ...]
    shares: dict[str, float]
    images_per_s: float
    verdict: str


def profile(cfg: Config, steps: int) -> StepProfile:
    """Train some steps of a configuration on its own data; nothing is saved.

    The CPU waits for a GPU after every step, so that each step has its own time.
    """
    cache, split = prepare(cfg)
    timeline = Timeline()
    trainer = Trainer(cfg, cache, split, timeline)
    batches = trainer.endless_batches()
    for batch in islice(batches, WARM_UP):
        trainer.train_step(batch)
    begun, images = timeline.now(), 0
    for number in track(range(steps), steps, "profiling", "step"):
        batch = next(batches)
        with timeline.span(STEP, number):
            trainer.train_step(batch)
            if trainer.device.type == "cuda":
                torch.cuda.synchronize(trainer.device)
        images += len(batch.index)
    batches.close()
    ended = timeline.now()
    spans = sorted((s for s in timeline.spans if s.end > begun), key=lambda span: span.start)
    shares = busy_shares(spans, begun, ended)
    return StepProfile(
        tuple(spans),
        shares,
        images / (ended - begun),
        verdict(shares, cache.records, trainer.device),
    )


def busy_shares(spans: Sequence[Span], begun: float, ended: float) -> dict[str, float]:
    """The share of the time from `begun` to `ended` in which each row was busy."""
    shares: dict[str, float] = {}
    for span in spans:
        seconds = min(span.end, ended) - max(span.start, begun)
        shares[span.row] = shares.get(span.row, 0.0) + max(0.0, seconds) / (ended - begun)
    return dict(sorted(shares.items()))


def verdict(shares: dict[str, float], records: Records, device: torch.device) -> str:
    """The bottleneck, and what to change."""
    wait = shares.get(WAIT, 0.0)
    # The training thread does these itself, between steps.
    convert = shares.get("convert", 0.0) + shares.get("gather", 0.0)
    if convert >= max(wait, CONVERT_SHARE):
        return (
            f"Converting batches in the training thread takes {convert:.0%} of the time and is the "
            "bottleneck. Pack at a smaller CACHE.HEIGHT and WIDTH, or augment less."
        )
    if wait < WAIT_SHARE:
        return (
            "The training step is the bottleneck, as it should be: it waits for data "
            f"{wait:.1%} of the time. To train faster, use a smaller MODEL or smaller pictures; on "
            "a GPU, TRAIN.PRECISION bf16 and a larger LOADER.BATCH."
        )
    found = f"The training step waits for data {wait:.0%} of the time"
    readers = [share for row, share in shares.items() if row.startswith("reader")]
    if readers and max(readers) >= BUSY_SHARE:
        return f"{found}: reading is the bottleneck. {reading_advice(records, device)}"
    if shares.get("copy", 0.0) >= BUSY_SHARE:
        return f"{found}: the copy to the device is the bottleneck. Set LOADER.TIER device."
    return (
        f"{found}, but no thread is busy: they wait for CPU cores. Lower LOADER.THREADS, or stop "
        "other work on this machine."
    )


def reading_advice(records: Records, device: torch.device) -> str:
    """How to read faster, given the tier of the records."""
    if not isinstance(records, MappedRecords):
        return "Frames are decoded in every epoch: set CACHE.MODE build to pack them once."
    if device.type == "cuda":
        return "Set LOADER.TIER device if the records fit there; otherwise raise LOADER.THREADS."
    return "Raise LOADER.THREADS, or set LOADER.TIER ram if the disk is slow."


@plain_style()
def draw(findings: StepProfile, path: Path, title: str) -> None:
    """Draw the timeline of the last steps: a row for each thread or stage, a bar for each batch."""
    from matplotlib.figure import Figure

    steps = [span for span in findings.spans if span.row == STEP][-DRAWN:]
    begun, ended = steps[0].start, steps[-1].end
    spans = [s for s in findings.spans if s.end > begun and s.start < ended]
    rows = sorted({span.row for span in spans}, key=lambda row: (row in (WAIT, STEP), row))
    figure = Figure(figsize=(11, 1.6 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for height, row in enumerate(reversed(rows)):
        for span in (span for span in spans if span.row == row):
            start, end = max(span.start, begun), min(span.end, ended)
            color = "#c2410c" if row == WAIT else ("#1d4e89", "#6fa8dc")[span.batch % 2]
            axes.barh(height, 1000 * (end - start), left=1000 * (start - begun), color=color)
    axes.set_yticks(range(len(rows)), [f"{r}  {findings.shares[r]:.0%}" for r in reversed(rows)])
    axes.set_xlabel("milliseconds; a bar is a batch; percentages are shares of the whole profile")
    axes.set_title(f"{title}: {findings.images_per_s:.0f} images/s", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.text(0.01, -0.02, findings.verdict, va="top", wrap=True, fontsize=9)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130, bbox_inches="tight")
