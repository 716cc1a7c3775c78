"""A few dozen real training steps as a timeline: who worked, who waited, and what to change."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from yacs.config import CfgNode

from zoerefine.data.cache import MappedRecords, Records
from zoerefine.data.prefetch import WAIT, DeviceBatch
from zoerefine.files import replacing
from zoerefine.progress import track
from zoerefine.timeline import Span, Timeline
from zoerefine.train.job import prepare
from zoerefine.train.trainer import Trainer

WARM_UP = 4  # steps that are not looked at
DRAWN = 12  # steps that the picture shows
STEP = "training step"
IDLE_SHARE = 0.01  # of the time, that a training step may wait for data
MADE_SHARE = 0.2  # of the time, from which making batches is worth a word
BUSY_SHARE = 0.7  # of the time, from which somebody counts as the one who is waited for


@dataclass(frozen=True)
class StepProfile:
    """What the steps have shown.

    Attributes:
        spans: sorted by their beginning.
        shares: of the time that each row was at work.
        images_per_s: over all steps.
        verdict: a sentence that names the bottleneck and says what to change.
    """

    spans: tuple[Span, ...]
    shares: dict[str, float]
    images_per_s: float
    verdict: str


def profile(cfg: CfgNode, steps: int) -> StepProfile:
    """Train some steps of a configuration, on its own data, and keep nothing.

    A GPU is waited for after every step, so that its time is the step's own.
    """
    cache, split = prepare(cfg)
    timeline = Timeline()
    trainer = Trainer(cfg, cache, split, timeline)
    batches = endless(trainer)
    for batch in islice(batches, WARM_UP):
        trainer.step_once(batch)
    begun, images = timeline.now(), 0
    for number in track(range(steps), steps, "profiling", "step"):
        batch = next(batches)
        with timeline.span(STEP, number):
            trainer.step_once(batch)
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


def endless(trainer: Trainer) -> Generator[DeviceBatch, None, None]:
    """Batches of one epoch after the other."""
    while True:
        yield from trainer.prefetch(trainer.loader)


def busy_shares(spans: Sequence[Span], begun: float, ended: float) -> dict[str, float]:
    """The share of the time from `begun` to `ended` that each row was at work."""
    shares: dict[str, float] = {}
    for span in spans:
        seconds = min(span.end, ended) - max(span.start, begun)
        shares[span.row] = shares.get(span.row, 0.0) + max(0.0, seconds) / (ended - begun)
    return dict(sorted(shares.items()))


def verdict(shares: dict[str, float], records: Records, device: torch.device) -> str:
    """Who is waited for, and what to change."""
    wait = shares.get(WAIT, 0.0)
    made = shares.get("convert", 0.0) + shares.get("gather", 0.0)  # the step waits for these, too
    if made >= max(wait, MADE_SHARE):
        return (
            f"Making batches where they are used takes {made:.0%} of the time and is the "
            "bottleneck. Pack at a smaller CACHE.HEIGHT and WIDTH, or augment less."
        )
    if wait < IDLE_SHARE:
        return (
            "The training step is the bottleneck, as it should be: it waits for data "
            f"{wait:.1%} of the time. To go faster make it cheaper: TRAIN.PRECISION bf16, a "
            "smaller MODEL or picture, a larger LOADER.BATCH on a GPU that is not full."
        )
    found = f"The training step waits for data {wait:.0%} of the time"
    readers = [share for row, share in shares.items() if row.startswith("reader")]
    if readers and max(readers) >= BUSY_SHARE:
        return f"{found}: reading is the bottleneck. {reading_advice(records, device)}"
    if shares.get("copy", 0.0) >= BUSY_SHARE:
        return f"{found}: the copy to the device is the bottleneck. Set LOADER.TIER device."
    return (
        f"{found}, and no single part is busy: threads are waiting for cores. Set LOADER.THREADS "
        "lower, or leave other work on this machine for later."
    )


def reading_advice(records: Records, device: torch.device) -> str:
    """What makes reading faster, given where the records are."""
    if not isinstance(records, MappedRecords):
        return "Frames are decoded as they are asked for: set CACHE.MODE build to pack them once."
    if device.type == "cuda":
        return "Set LOADER.TIER device if the records fit there, else raise LOADER.THREADS."
    return (
        "Raise LOADER.THREADS, or LOADER.TIER ram where the disk is slow; a second look is faster."
    )


def draw(findings: StepProfile, path: Path, title: str) -> None:
    """Draw the timeline of some of the steps: a row for each worker, a bar for each batch."""
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
    axes.set_xlabel("milliseconds; a bar is a batch, shares are of the whole profile")
    axes.set_title(f"{title}: {findings.images_per_s:.0f} images/s", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.text(0.01, -0.02, findings.verdict, va="top", wrap=True, fontsize=9)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130, bbox_inches="tight")
