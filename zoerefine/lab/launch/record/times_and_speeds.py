"""Which metrics are times or speeds, by their names: they differ each time, and never decide."""

import re

TIMING = re.compile(r"(_s|_ms|_share|_gib)$")
# What other scripts call times and speeds, as one of the words in a name.
TIME_WORDS = {"time", "times", "wall", "elapsed", "duration", "eta", "seconds", "secs", "sec", "ms",
              "date", "timestamp", "fps", "sps", "dt", "speed", "throughput"}  # fmt: skip
PER_TIME = re.compile(r"per_(second|minute|hour)")
TIME_BEGIN = re.compile(r"time(?!steps?$)")  # of a word; not of centimeter
TIME_END = re.compile(r"\w(time|fps)$")  # of the last word; not of runtime_error
STATISTICS = {"mean", "avg", "average", "median", "total", "sum", "min", "max", "std"}
PLACE = re.compile(r"\[\d+\]")  # in a list
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # stepTime


def has_unit(name: str) -> bool:
    """Whether a part of a name, such as one of our trainings' `timing.step_s`, ends with a unit."""
    return any(map(TIMING.search, PLACE.sub("", name).split(".")))


def is_time(name: str) -> bool:
    """Whether the name of another script's metric says that it is a time or a speed."""
    spaced = CAMEL.sub("_", PLACE.sub("", name)).lower()
    words = re.split(r"[^a-z0-9]+", spaced)
    is_rate = TIMING.search(spaced) or spaced.endswith("/s") or PER_TIME.search("_".join(words))
    last = next((word for word in reversed(words) if word not in STATISTICS), "")
    return "ssim" not in words and bool(  # ms_ssim is of several scales
        is_rate
        or TIME_WORDS.intersection(words)
        or TIME_END.search(last)
        or any(map(TIME_BEGIN.match, words))
    )


def is_aside(name: str) -> bool:
    """Whether a metric says nothing of how good a result is: a time, a speed, a learning rate."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return is_time(name) or "lr" in words or "learning_rate" in name.lower()
