"""Values that are allowed individually, but not in combination."""

from zoerefine.base.config.schema import Config
from zoerefine.base.errors import UserError

MOST_BATCH_PIXELS = 2**31
LEAST_UNET_BASE = 8
CUDA_GRAPHS = ("reduce-overhead", "max-autotune")


def check_combinations(cfg: Config) -> None:
    """Raises `UserError` with the first combination that cannot work, and what to change."""
    for check in (_data, _loader, _batch, _network, _loss, _start, _compile, _search):
        check(cfg)


def _data(cfg: Config) -> None:
    data = cfg.DATA
    if not data.SPLIT and data.VAL_FRACTION + data.TEST_FRACTION >= 1:
        raise UserError(
            f"DATA.VAL_FRACTION {data.VAL_FRACTION:g} and DATA.TEST_FRACTION "
            f"{data.TEST_FRACTION:g} leave no scene to train on: their sum must be below 1"
        )


def _loader(cfg: Config) -> None:
    loader = cfg.LOADER
    if bool(loader.HEIGHT) != bool(loader.WIDTH):
        raise UserError(
            f"LOADER.HEIGHT {loader.HEIGHT} and LOADER.WIDTH {loader.WIDTH}: set both, or both to "
            "0 for the packed size"
        )
    if loader.ROTATE_EVERY and not loader.ROTATE_SCENES:
        raise UserError(
            f"LOADER.ROTATE_EVERY {loader.ROTATE_EVERY} needs LOADER.ROTATE_SCENES of at least 1: "
            "how many scenes are trained on at a time"
        )
    if loader.TIER in ("ram", "device") and cfg.CACHE.MODE == "off":
        raise UserError(
            f"LOADER.TIER {loader.TIER} needs a packed cache, and CACHE.MODE off keeps none: set "
            "CACHE.MODE build"
        )


def _batch(cfg: Config) -> None:
    for group in (cfg.CACHE, cfg.LOADER):
        pixels = cfg.LOADER.BATCH * group.HEIGHT * group.WIDTH
        if pixels > MOST_BATCH_PIXELS:
            name = "CACHE" if group is cfg.CACHE else "LOADER"
            raise UserError(
                f"LOADER.BATCH {cfg.LOADER.BATCH} of {name}.HEIGHT {group.HEIGHT} and {name}.WIDTH "
                f"{group.WIDTH} has {pixels:,} pixels, the limit is {MOST_BATCH_PIXELS:,}: lower "
                "one of them"
            )


def _network(cfg: Config) -> None:
    # Below, oneDNN for processors with AVX2 alone (torch 2.13) writes beyond its memory in the
    # backward pass of the last levels, whose channels are a half and a quarter of BASE.
    if cfg.MODEL.NAME == "unet" and cfg.MODEL.BASE < LEAST_UNET_BASE:
        raise UserError(
            f"MODEL.BASE {cfg.MODEL.BASE}: training MODEL.NAME unet with so few channels may crash "
            f"on a CPU: set it to at least {LEAST_UNET_BASE}"
        )


def _loss(cfg: Config) -> None:
    if not any(term["weight"] for term in cfg.LOSS.TERMS):
        raise UserError("LOSS.TERMS: every weight is 0, so there is nothing to minimize: raise one")


def _start(cfg: Config) -> None:
    if cfg.TRAIN.FROM and cfg.MODEL.PRETRAINED:
        raise UserError(
            "TRAIN.FROM and MODEL.PRETRAINED are both set, and each gives the first weights: "
            "remove one"
        )


def _compile(cfg: Config) -> None:
    mode = cfg.TRAIN.COMPILE
    if mode in CUDA_GRAPHS and cfg.TRAIN.ACCUMULATE > 1:
        raise UserError(
            f"TRAIN.COMPILE {mode} records CUDA graphs, whose gradients the next part of a batch "
            "would overwrite: set TRAIN.ACCUMULATE 1, or TRAIN.COMPILE default"
        )
    if mode == "max-autotune" and cfg.TRAIN.DETERMINISTIC:
        raise UserError(
            "TRAIN.COMPILE max-autotune chooses kernels by timing them, so bits vary: set "
            "TRAIN.DETERMINISTIC false, or TRAIN.COMPILE reduce-overhead"
        )


def _search(cfg: Config) -> None:
    if cfg.SEARCH and not cfg.DATA.SPLIT and not cfg.DATA.VAL_FRACTION:
        raise UserError("a search chooses by validation scenes: set DATA.VAL_FRACTION above 0")
