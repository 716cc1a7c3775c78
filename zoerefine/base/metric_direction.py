"""Which metrics are better where they are higher."""

import re

from zoerefine.base.errors import UserError
from zoerefine.base.messages import warn

# The names of our own runs' metrics that are better where they are higher.
HIGHER_IS_BETTER = re.compile(
    r"(val|test)(_scenes)?\.(.+\.)?(delta[123]|boundary_f1)|(train\.)?images_per_s"
)
BEST_AT = re.compile(r"(val|test)(?:_scenes)?\.(.+\.)?coverage(90)")  # percent

# Words in the names of other scripts' metrics that tell it, with or without a number behind them.
HIGHER = {
    *("acc", "accuracy", "precision", "recall", "f1", "auc", "auroc", "auprc", "r2"),
    *("iou", "miou", "dice", "map", "ap", "ndcg", "mrr", "psnr", "ssim", "bleu", "rouge"),
    *("meteor", "cider", "spice", "reward", "return", "returns", "success", "top"),
    *("score", "mcc", "kappa", "sensitivity", "specificity"),
}
LOWER = {
    *("loss", "losses", "error", "err", "mae", "mse", "rmse", "rmsle", "mape", "smape"),
    *("lpips", "fid", "wer", "cer", "perplexity", "ppl", "nll", "brier"),
}
NO_WORD = re.compile(r"[^A-Za-z0-9]+")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_maximized(metric: str, asked: bool) -> bool:
    """Whether a metric is better where it is higher: as it is asked for, or known of ours.

    Warns where its name says otherwise. Raises `UserError` for one of ours that is best in between,
    unless it is asked for.
    """
    if not asked and (found := BEST_AT.fullmatch(metric)):
        raise UserError(
            f"{metric} is best at 0.{found[3]}, so neither its lowest nor its highest value is: "
            "give another metric, or --maximize"
        )
    maximize = asked or HIGHER_IS_BETTER.fullmatch(metric) is not None
    warn_of_direction(metric, maximize)
    return maximize


def warn_of_direction(metric: str, maximize: bool) -> None:
    """Warn where a metric's name says that the other direction is the better one."""
    words = words_of(metric)
    is_higher = bool(words & HIGHER) or HIGHER_IS_BETTER.fullmatch(metric) is not None
    is_lower = bool(words & LOWER)
    if is_higher and not is_lower and not maximize:
        warn(f"the lowest {metric} counts as the best: give --maximize where higher is better")
    elif is_lower and not is_higher and maximize:
        warn(f"the highest {metric} counts as the best, by --maximize: leave it out where lower "
             "is better")  # fmt: skip


def words_of(metric: str) -> set[str]:
    """The words in a name: of `rocAuc` roc and auc, of `meanIoU` iou, too, of `top5` top, too."""
    words = set()
    for part in NO_WORD.split(metric):
        starts = [0, *(found.start() for found in CAMEL.finditer(part))]
        words |= {part[start:].lower() for start in starts}
        words |= {word.lower() for word in CAMEL.split(part)}
    return words | {word.rstrip("0123456789") for word in words}
