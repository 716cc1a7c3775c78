"""The configuration tree: every key with its default and meaning, typed merge, exact dump.

YACS supplies the tree (`cfg.TRAIN.LR`) and the command-line convention (`TRAIN.LR 3e-4`). Merging
and dumping are our own, because YACS's printed form does not load back to the same values and
its merge refuses `LR: 1` for a float.
"""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from yacs.config import CfgNode

from zoerefine.errors import UserError
from zoerefine.files import digest_json, write_text

PATHS = (("RUN", "ROOT"), ("DATA", "ROOT"), ("DATA", "SPLIT"), ("CACHE", "ROOT"),
         ("MODEL", "PRETRAINED"))  # fmt: skip
CALLER_FOLDER = "ZOEREFINE_CALLER_FOLDER"

DEFAULTS = """
SEED: 0

RUN:
  NAME: run               # runs/<NAME>/<id>
  ROOT: runs

DATA:
  ROOT: ""                # a HabitatDyn folder, or a folder with a frames.csv
  SCENES: []              # use these alone; [] or "": all
  CLASSES: []             # clips with any of these moving objects, e.g. [dog, toy car]
  SPEEDS: []              # clips whose objects move at these speeds, m/s
  OBJECTS: ""             # single | several: classes of moving objects in a clip
  SPLIT: ""               # a file from `data.py split`; "": dealt by what follows
  SPLIT_SEED: 0
  VAL_FRACTION: 0.15      # shares of the scenes; at least one scene each unless 0
  TEST_FRACTION: 0.15
  TEST_SCENES: []         # scenes that are tested whatever the fractions say
  MAX_BROKEN: 0.01        # share of unreadable frames above which packing is an error

CACHE:
  ROOT: caches
  HEIGHT: 192             # records are packed at this size
  WIDTH: 256
  WORKERS: 0              # decoding threads; 0: one per core
  MODE: build             # build: pack, then train | fill: train at once and keep what is decoded
                          # | rebuild: pack anew | off: decode every time

LOADER:
  BATCH: 64               # samples of one optimiser step, over all processes
  HEIGHT: 0               # batches are resized to this on the device; 0: as packed
  WIDTH: 0
  TIER: auto              # auto | mmap | ram | device: see zoerefine/data/tiers.py
  THREADS: 0              # threads that gather batches; 0: one per core, at most 4
  ORDER: shuffle          # shuffle | replacement | weighted | windowed | sequential | clips
  WINDOW: 4096            # windowed: records that are mixed with one another
  SCENE_WEIGHTS: []       # weighted: e.g. [{scene: scene03, weight: 2.0}]; others weigh 1
  ROTATE_EVERY: 0         # every so many epochs another random subset of scenes; 0: all scenes
  ROTATE_SCENES: 0        # scenes of the subset

AUGMENT:
  FLIP: 0.5               # probability of a mirrored sample
  CROP: 0.0               # a window of at least 1 - CROP of the sides, blown up
  COLOR: 0.1              # brightness, contrast and saturation jitter, RGB only
  SCALE: 0.0              # standard deviation of log scale jitter on the pseudo depth

MODEL:
  NAME: small             # see zoerefine/model
  BASE: 16                # channels of the first level
  PRETRAINED: ""          # unet: a local file with torchvision's ResNet18 weights
  MAX_LOG: 2.0            # the refiner corrects log depth by at most this much at a pixel

LOSS:
  TERMS:                  # summed; see zoerefine/loss.py for names
    - {name: l1_log, weight: 1.0}
    - {name: gradient, weight: 0.5}
  OBJECT_WEIGHT: 0.5      # lambda: weight of moving-object pixels; 1 - lambda elsewhere

TRAIN:
  EPOCHS: 50
  STEPS: 0                # ends the run after so many optimiser steps; 0: after EPOCHS
  OPTIMIZER: adamw        # adamw | sgd (with Nesterov's momentum)
  LR: 1.0e-3
  WEIGHT_DECAY: 1.0e-4
  MOMENTUM: 0.9           # sgd alone
  SCHEDULE: cosine        # cosine | onecycle | step | constant
  WARMUP: 0.05            # share of all steps in which the rate rises first
  STEP_AT: [0.6, 0.85]    # step: shares of the run at which the rate is divided by ten
  ACCUMULATE: 1           # parts that a batch goes through the refiner in, to save memory
  PATIENCE: 0             # evaluations without a better one that end the run; 0: never
  CLIP: 1.0               # gradient norm
  EMA: 0.99               # decay of the averaged weights, less in the first steps; 0: none
  PRECISION: auto         # auto | fp32 | bf16 | fp16
  COMPILE: ""             # torch.compile: default | reduce-overhead (CUDA graphs) | max-autotune
  EVAL_EVERY: 1           # epochs
  LOG_EVERY: 10           # steps
  PICTURES: 3             # validation frames drawn for TensorBoard at each evaluation
  HISTOGRAMS: false       # of weights and gradients, too
  CHECKPOINT_S: 60.0      # seconds between checkpoints, at least; epochs' ends included
  CHECKPOINTS: 2          # the last ones that are kept
  DETERMINISTIC: true     # an operation that cannot repeat its bits is an error

STUDY:
  TRIALS: 20
  TIMEOUT_S: 0.0          # no trial is begun after so many seconds; 0: never too late
  EPOCHS: 0               # epochs of a trial; 0: TRAIN.EPOCHS
  OBJECTIVES: [abs_rel]   # minimize: abs_rel | latency_ms (of the exported engine) | parameters;
                          # maximize: delta1
  CONSTRAINTS: []         # e.g. [{name: latency_ms, at_most: 10.0}]
  SAMPLER: tpe            # tpe | random | grid (every combination of the lists)
  PRUNER: median          # median | halving | none; prunes where abs_rel is the single objective
  STORAGE: ""             # postgresql://user@host/database; "": a SQLite file beside the trials
  WORKERS: 1              # processes; one GPU each where there are several
  HEARTBEAT_S: 20         # a worker that misses three is taken for dead
  RETRIES: 2              # of a trial whose worker died, from its last checkpoint
  THEN: ""                # train: the best at full length, validation scenes included;
                          # train,export: and its engine
  SEEDS: 1                # trainings of the best

SEARCH: {}                # mirrors this tree; [a, b] is a choice, {low, high, log, step} a range
"""


def defaults() -> CfgNode:
    """A fresh tree with every key at its default."""
    return CfgNode(yaml.safe_load(DEFAULTS))


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> CfgNode:
    """The defaults, then the YAML file, then trailing `KEY VALUE` pairs; frozen, paths absolute.

    Raises `UserError` for a missing file, bad YAML, an unknown key or a value of another type,
    each with the full key path.
    """
    cfg = defaults()
    merge(cfg, read_yaml(path), source=str(path))
    merge_pairs(cfg, overrides)
    for group, key in PATHS:
        if cfg[group][key]:
            cfg[group][key] = str(resolve_path(cfg[group][key]))
    cfg.freeze()
    return cfg


def training_size(cfg: CfgNode) -> tuple[int, int]:
    """Height and width of the pictures that the refiner is given in training."""
    return cfg.LOADER.HEIGHT or cfg.CACHE.HEIGHT, cfg.LOADER.WIDTH or cfg.CACHE.WIDTH


class PlainLoader(yaml.SafeLoader):
    """Safe YAML in which on, off, yes and no are words, as in YAML 1.2."""


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
WORDS = {"on": True, "yes": True, "off": False, "no": False}  # for a key that is true or false


def load_yaml(text: str) -> Any:
    """Plain data from YAML. Raises `yaml.YAMLError`."""
    return yaml.load(text, PlainLoader)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML mapping from a file, as plain data. Raises `UserError` where it is not one."""
    try:
        tree = load_yaml(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no config file {path}: give an existing YAML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"config {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise UserError(f"config {path} is not YAML: {error}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UserError(f"config {path} must be a mapping of keys, not a {type(tree).__name__}")
    return tree


def merge(cfg: CfgNode, tree: Mapping[str, Any], source: str, prefix: str = "") -> None:
    """Set the values of `tree` in `cfg`, each checked against the default's type."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if key not in cfg:
            close = difflib.get_close_matches(str(key), list(cfg), n=1, cutoff=0.5)
            hint = f"did you mean {prefix}{close[0]}?" if close else f"known: {', '.join(cfg)}"
            raise UserError(f"{source}: no config key {name}; {hint}")
        if name == "SEARCH":
            cfg[key] = _search_tree(value, source)
        elif isinstance(cfg[key], CfgNode):
            if not isinstance(value, Mapping):
                raise UserError(f"{source}: {name} is a group of keys, got {value!r}")
            merge(cfg[key], value, source, prefix=f"{name}.")
        else:
            cfg[key] = coerce(value, cfg[key], name, source)


def merge_pairs(cfg: CfgNode, pairs: Sequence[str]) -> None:
    """Set trailing `KEY VALUE` command-line words; values are read as YAML."""
    if len(pairs) % 2:
        raise UserError(f"overrides come as KEY VALUE pairs; {pairs[-1]!r} has no value")
    for key, text in zip(pairs[::2], pairs[1::2], strict=True):
        try:
            value = load_yaml(text)
        except yaml.YAMLError:
            value = text
        tree: Any = value
        for part in reversed(key.split(".")):
            tree = {part: tree}
        merge(cfg, tree, source="command line")


def coerce(value: Any, default: Any, name: str, source: str) -> Any:
    """`value` as the type of `default`: int becomes float where a float stands, nothing else.

    YAML reads `1e-4` (no dot) as a string; where a float or int is due it is read as the number.
    """
    if isinstance(default, bool) or isinstance(value, bool):
        if isinstance(default, bool) and isinstance(value, bool):
            return value
        if isinstance(default, bool) and str(value).lower() in WORDS:
            return WORDS[str(value).lower()]
    elif isinstance(default, float) and isinstance(value, int | float | str):
        try:
            return float(value)
        except ValueError:
            pass
    elif isinstance(default, str) and value is None:
        return ""
    elif (isinstance(default, list) and isinstance(value, list)) or type(value) is type(default):
        return value
    wanted = type(default).__name__
    raise UserError(f"{source}: {name} must be {wanted}, got {type(value).__name__} {value!r}")


def _search_tree(tree: Any, source: str) -> CfgNode:
    if not isinstance(tree, Mapping):
        raise UserError(f"{source}: SEARCH mirrors the config tree, got {tree!r}")
    return CfgNode(dict(tree))


def to_dict(cfg: CfgNode) -> dict[str, Any]:
    """The tree as plain dictionaries, lists and scalars."""
    return {k: to_dict(v) if isinstance(v, CfgNode) else v for k, v in cfg.items()}


def save_config(cfg: CfgNode, path: str | Path) -> None:
    """Write the fully resolved tree so that `load_config` gives back the very same values."""
    tree = to_dict(cfg)
    # YAML does not escape every line break that Unicode knows: where it matters, escape all.
    for unicode in (True, False):
        text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=unicode)
        if yaml.safe_load(text) == tree:
            break
    else:
        raise UserError(f"the configuration holds a value that YAML cannot keep: {path}")
    write_text(path, text)


def config_digest(cfg: CfgNode, without_seed: bool = False) -> str:
    """SHA-256 of what decides a result: all keys but RUN and the places of data and cache."""
    tree = to_dict(cfg)
    del tree["RUN"], tree["DATA"]["ROOT"], tree["CACHE"]["ROOT"]
    if without_seed:
        del tree["SEED"]
    return digest_json(tree)


def resolve_path(path: str | Path) -> Path:
    """A path of a config as an absolute one.

    Relative paths mean the folder where the user typed the command; a launched job runs in
    its own workspace, so the launcher hands that folder on in the environment.
    """
    return Path(os.environ.get(CALLER_FOLDER, ".")).joinpath(Path(path).expanduser()).resolve()
