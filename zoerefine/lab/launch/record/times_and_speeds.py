"""Which metrics are times or speeds, by their names: they differ each time, and never decide."""

import re

from zoerefine.base.metric_direction import HIGHER, LOWER, NO_WORD

OUR_UNIT = re.compile(r"(_s|_ms|_share|_gib)$")
# What other scripts call times and speeds, as one of the words in a name.
TIME_WORDS = {"time", "times", "wall", "elapsed", "duration", "eta", "seconds", "secs", "sec", "ms",
              "timestamp", "latency", "fps", "sps", "dt", "speed", "throughput"}  # fmt: skip
STATISTICS = {"mean", "avg", "average", "median", "total", "sum", "min", "max", "std"}
UNIT = re.compile(r"_(ms|gib)$|/s$")
# What takes seconds: `_s` and `_share` after another word are something else, as in sigma_s.
TIMED = TIME_WORDS | STATISTICS | {
    *("step", "epoch", "batch", "iter", "iteration", "phase", "run", "setup", "startup", "warmup"),
    *("train", "training", "val", "validation", "eval", "test", "fit", "rollout", "update"),
    *("forward", "backward", "optimizer", "compute", "inference", "predict", "generation"),
    *("data", "load", "loading", "read", "write", "save", "copy", "sync", "wait", "idle", "busy"),
    *("request", "query", "decode", "encode", "compile", "build", "checkpoint", "gpu", "cpu"),
    *("p50", "p90", "p95", "p99", "per", "it", "its", "steps", "images", "imgs", "img", "frames"),
    *("samples", "tokens", "batches", "examples", "words"),
}  # fmt: skip
SECONDS = re.compile(r"([a-z0-9]+)_(s|share)$")
PER_TIME = re.compile(r"per_(second|minute|hour)")
TIME_BEGIN = re.compile(r"time(?!steps?$)")  # of a word; not of centimeter
TIME_END = re.compile(r"\w(time|fps)$|^date$")  # of the last word; not of runtime_error
# Beside a word for an error or a score, the others say what it is of: speed_mae, bbox_mAP_s.
SCORES = HIGHER | LOWER | {"ar", "correlation", "distance", "kl", "return", "score"}
SCORE_TIME = re.compile(r"(^|_)score_time$")  # scikit-learn's, of scoring
PLACE = re.compile(r"\[\d+\]")  # in a list
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # stepTime


def has_unit(name: str) -> bool:
    """Whether a part of a name, such as one of our trainings' `timing.step_s`, ends with a unit."""
    return any(map(OUR_UNIT.search, PLACE.sub("", name).split(".")))


def is_time(name: str) -> bool:
    """Whether the name of another script's metric says that it is a time or a speed."""
    name = PLACE.sub("", name)
    spaced = CAMEL.sub("_", name).lower()
    words = NO_WORD.split(spaced)
    if is_score(words + NO_WORD.split(name.lower())) and not SCORE_TIME.search(spaced):
        return False
    joined = "_".join(words)
    seconds = SECONDS.search(joined)
    last = next((word for word in reversed(words) if word not in STATISTICS), "")
    return bool(
        (seconds and seconds[1] in TIMED)
        or UNIT.search(spaced)
        or PER_TIME.search(joined)
        or TIME_WORDS.intersection(words)
        or TIME_END.search(last)
        or any(map(TIME_BEGIN.match, words))
    )


def is_score(words: list[str]) -> bool:
    """Whether one of the words is for an error or a score; a number may follow, as in bleu4."""
    return any(word in SCORES or word.rstrip("0123456789") in SCORES for word in words)


COUNTERS = {"epoch", "epochs", "step", "steps", "global_step", "iteration", "iterations"}
HELD_OUT = {"val", "valid", "validation", "test", "eval", "dev"}


def is_aside(name: str) -> bool:
    """Whether a metric says nothing of how good a result is: a time, a count, a learning rate."""
    words = NO_WORD.split(name.lower())
    is_rate = "lr" in words or "learning_rate" in name.lower()
    return is_time(name) or is_rate or name.lower() in COUNTERS


def by_weight(name: str) -> tuple[bool, bool]:
    """A key that sorts metrics by what they say of a result: those of held-out data first."""
    return is_aside(name), HELD_OUT.isdisjoint(NO_WORD.split(name.lower()))
