"""A training job: config -> data set -> cache -> run."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.config import Config, load_config, save_config, to_dict
from zoerefine.base.config_roles import FILE_KEYS, TRAINING, Role, settings, training_digest
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_json
from zoerefine.base.messages import counted, first_few, say, warn
from zoerefine.base.ranks import is_writer, process_group, wait_for_all, world_size
from zoerefine.base.run_dir import RunDir, link_latest, run_from_launcher
from zoerefine.base.yaml.equal_values import differing
from zoerefine.depth.data import split as splits
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.cache.pack import build_cache, cache_digest
from zoerefine.depth.data.dataset import Dataset, evenly_spaced, picture_digests, select
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.depth_unit import ask_unit, question_of_truth, ratio_of
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.metric_points import with_points
from zoerefine.depth.training import binding
from zoerefine.depth.training.loop import Report, train
from zoerefine.depth.training.verdict import closing_lines, warnings
from zoerefine.lab.launch.git.commands import checkout_commit
from zoerefine.lab.launch.process.output import kept_log
from zoerefine.lab.launch.record import provenance

ASKED_CLIPS, ASKED_OF_CLIP = 64, 4  # frames by which units are asked about
NAMED_SCENES = 5  # in a message
CHECKOUT = Path(__file__).resolve().parents[3]


def find_run_dir(cfg: Config) -> RunDir:
    """The run directory of a configuration: the launcher's, or one named by commit and config.

    The same commit and configuration find the same run, so an unfinished run is resumed.
    Nothing is written. Raises `UserError` where the folder belongs to another configuration.
    """
    run = run_from_launcher()
    if run is None:
        commit = checkout_commit(CHECKOUT) or "untracked"
        name = f"{commit[:8]}-{training_digest(binding.identified(cfg))[:8]}"
        run = RunDir(Path(cfg.RUN.ROOT) / cfg.RUN.NAME / name)
    refuse_another_configuration(run, cfg)
    return run


def begin(run: RunDir, cfg: Config) -> None:
    """Write the config of a run that is not finished; its lock is held."""
    save_config(cfg, run.config_file)
    if run_from_launcher() is None:  # a launcher has done both already
        link_latest(run)
        say(f"writing to {run.path}")


def refuse_another_configuration(run: RunDir, cfg: Config) -> None:
    """Raises `UserError` where the folder holds a run of other settings, or of data elsewhere."""
    if not run.config_file.exists():
        return
    there, here = to_dict(load_config(run.config_file)), binding.identified(cfg)
    facts = run.recorded()
    for group, name, fact in FILE_KEYS:
        if there[group][name]:  # a folder without its digest was killed before it had one
            there[group][name] = facts.get(fact, {}).get("sha256", here[group][name])
    old, new = (settings(tree, TRAINING | {Role.DATA}) for tree in (there, here))
    for key, (theirs, ours) in differing(old, new).items():
        raise UserError(
            f"{run.path} belongs to another configuration: {key} is {theirs!r} there and {ours!r} "
            "here; give another RUN.NAME"
        )


def check_data_root(cfg: Config) -> None:
    """Raises `UserError` where DATA.ROOT is not a folder."""
    if not cfg.DATA.ROOT:
        raise UserError("DATA.ROOT is empty: give a data folder, e.g. DATA.ROOT data/synthetic")
    if not Path(cfg.DATA.ROOT).is_dir():
        raise UserError(f"no data folder {cfg.DATA.ROOT}: set DATA.ROOT to an existing one")


def prepare(cfg: Config) -> tuple[Cache, splits.Split]:
    """The packed cache of the configured data, built if needed, and its split by scene."""
    dataset, split = find_data(cfg)
    return pack(cfg, dataset), split


def find_data(cfg: Config) -> tuple[Dataset, splits.Split]:
    """The data set with the clips that DATA selects, and its split by scene, from the file
    DATA.SPLIT or by the fractions. Raises `UserError`; nothing is written."""
    dataset, data = find_dataset(cfg), cfg.DATA
    if data.SPLIT:
        split = split_from_file(cfg, dataset)
    else:
        split = splits.split_scenes(
            dataset.scenes, data.VAL_FRACTION, data.TEST_FRACTION, data.SPLIT_SEED, data.TEST_SCENES
        )
    if is_writer():
        warn_of_points(dataset, split)
    return dataset, split


def warn_of_points(dataset: Dataset, split: splits.Split) -> None:
    """Warn where frames of held-out scenes have no metric points and others have."""
    if not any(frame.points for frame in dataset.frames):
        return
    for name, scenes in (("validation", split.val), ("test", split.test)):
        held_out = [frame for frame in dataset.frames if frame.scene in scenes]
        if missing := sum(frame.points is None for frame in held_out):
            warn(f"{missing} of {counted(len(held_out), 'frame')} of the {name} scenes have no "
                 "metric points: their metrics with metric points are those without")  # fmt: skip


def find_dataset(cfg: Config, opened: Dataset | None = None) -> Dataset:
    """The data set with the clips that DATA selects. Raises `UserError`; nothing is written.

    Args:
        opened: the data set of DATA.ROOT, where it is open already.
    """
    check_data_root(cfg)
    data = cfg.DATA
    dataset = opened or open_dataset(data.ROOT)
    dataset = replace(dataset, pictures=picture_digests(dataset.frames))
    if data.POINTS:  # before the selection: names of points begin at the folder of all pictures
        dataset = with_points(dataset, Path(data.POINTS))
    dataset = select(dataset, data.SCENES, data.CLASSES, data.SPEEDS, data.OBJECTS)
    if data.POINTS and not any(frame.points for frame in dataset.frames):
        raise UserError(
            f"DATA.POINTS {data.POINTS} has no points for any of the {len(dataset.frames)} "
            "pictures that DATA selects"
        )
    return dataset


def pack(cfg: Config, dataset: Dataset) -> Cache:
    """The packed cache of a data set, built if needed. Warns of depth or points in another unit,
    and says how many frames have no points, and how many files no frame."""
    options, frames = cfg.CACHE, dataset.frames
    pairs = [(one.points, one.zoe) for one in frames if not one.sizes_may_differ]
    if is_writer():
        folder = cfg.DATA.POINTS or cfg.DATA.ROOT
        ask_unit(folder, [(points, zoe) for points, zoe in pairs if points and zoe])
        missing = sum(one.points is None for one in frames)
        if 0 < missing < len(frames):
            say(f"{missing} of {len(frames)} frames have no points")
        if count := len(dataset.unpaired):
            say(f"files without a partner: {count} (`zoerefine data inspect` lists them)")
    cache = build_cache(
        dataset,
        options.HEIGHT,
        options.WIDTH,
        Path(options.ROOT),
        options.WORKERS,
        cfg.DATA.MAX_BROKEN,
        options.MODE,
    )
    if is_writer() and (question := question_of_clips(cache)):
        warn(f"{cfg.DATA.ROOT}: {question}")
    return replace(cache, farthest_m=cfg.DATA.FARTHEST_M, pictures=dataset.pictures)


def question_of_clips(cache: Cache) -> str:
    """`question_of_truth` of some clips: one of them alone may be of another camera."""
    asked = evenly_spaced(range(len(cache.clips)), ASKED_CLIPS)
    of_clips = [(cache.clips[clip].name, question_of_truth(ratios(cache, clip))) for clip in asked]
    found = [(name, question) for name, question in of_clips if question]
    if not found:
        return ""
    names = first_few([name for name, _ in found], NAMED_SCENES)
    return f"{found[0][1]} (in {len(found)} of {counted(len(asked), 'clip')}: {names})"


def ratios(cache: Cache, clip: int) -> Iterator[float]:
    """`ratio_of` some frames of a clip."""
    frames = np.flatnonzero(cache.frames["clip"] == clip).tolist()
    for index in evenly_spaced(frames, ASKED_OF_CLIP):
        record = cache.read(index)
        yield ratio_of(record["zoe"] * ZOE_UNIT_M, record["depth"] * cache.depth_scale)


def split_from_file(cfg: Config, dataset: Dataset) -> splits.Split:
    """The split in the file DATA.SPLIT; scenes that only the file or only the data have are named.

    Raises `UserError` as `read_split`, and where DATA.TEST_SCENES contradicts the file.
    """
    data, path = cfg.DATA, Path(cfg.DATA.SPLIT)
    split = splits.read_split(path)
    for scene in data.TEST_SCENES:
        if scene not in split.test:
            raise UserError(
                f"DATA.TEST_SCENES: {scene} is no test scene of DATA.SPLIT {path}: give one of the "
                "two keys"
            )
    if unused := sorted(set(dataset.scenes) - split.scenes):
        warn(f"{path} lacks {some(unused)} of the data, which are not used")
    missing = sorted(split.scenes - set(dataset.scenes))
    if missing and not (data.SCENES or data.CLASSES or data.SPEEDS or data.OBJECTS):
        warn(f"the data lack {some(missing)} of {path}")
    return splits.among(split, dataset.scenes, path)


def some(scenes: list[str]) -> str:
    """How many scenes, and the first of them by name."""
    return f"{counted(len(scenes), 'scene')} ({first_few(scenes, NAMED_SCENES)})"


def record_provenance(run: RunDir, cfg: Config, cache: Cache, parent: RunDir | None = None) -> None:
    """Add the facts of this job to provenance.json; under a launcher, to what the launcher wrote.

    A trial has the source facts of its `parent`, the study.
    """
    facts: dict[str, Any] = {}
    if parent is not None:
        facts |= parent.read_json(parent.provenance_file)
    elif run_from_launcher() != run:
        facts |= provenance.source_facts(CHECKOUT) | provenance.machine_facts()
    facts |= {
        "seed": cfg.SEED,
        "config_digest": training_digest(binding.identified(cfg)),
        "dataset_digest": cache.dataset_digest,
        "cache_digest": cache.digest,
        "pictures": cache.pictures,
        "pseudo": cache.pseudo.as_json(),
        "processes": world_size(),
        **binding.outside_network(cfg.MODEL.NAME),
        **binding.deciding_files(cfg),
        **provenance.job_facts(),
        **provenance.device_facts(),
    }
    if run_from_launcher() == run:
        facts = run.read_json(run.provenance_file) | facts
    facts["binding"] = digest_json(binding.binding(cfg, cache, facts))
    provenance.add(run, **facts)


def complete_provenance(run: RunDir) -> None:
    """Add the data set's digest, which a cache in `fill` mode has only at the end."""
    provenance.add(run, dataset_digest=run.read_json(run.results_file)["data_digest"])


def train_for_study(
    study: RunDir,
    run: RunDir,
    cfg: Config,
    cache: Cache,
    split: splits.Split,
    report: Report | None = None,
    test: bool = True,
    elsewhere: Callable[[RunDir, bool, int], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Train in a folder of a study, or return the results of the finished run there.

    Args:
        elsewhere: trains the config and split that it finds in the run, in other processes; takes
            `test` and the descriptor of the run's lock, which these processes keep.

    Raises `UserError` where the folder holds a run of another study, or of other values.
    """
    binding.refuse_another_folder(
        run, binding.binding(cfg, cache, study.read_json(study.provenance_file))
    )
    if has_results(run) and run.status().state == "finished":
        return run.results()
    run.path.mkdir(parents=True, exist_ok=True)
    save_config(cfg, run.config_file)
    with run.writing() as lock_fd:
        record_provenance(run, cfg, cache, parent=study)
        if elsewhere is None:
            return train(cfg, run, cache, split, report, test)
        splits.write_or_check_split(split, run.split_file)
        return elsewhere(run, test, lock_fd)


def has_results(run: RunDir) -> bool:
    """Whether a run has its results. Where the file is damaged, they are computed again."""
    if not run.results_file.exists():
        return False
    try:
        if "data_digest" in run.results():
            return True
        fault = "it lacks data_digest"
    except UserError as error:
        fault = str(error)
    warn(f"{run.results_file} is written again: {fault}")
    return False


def run_training(cfg: Config) -> RunDir:
    """Train as configured; a finished run is left unchanged, an unfinished one is resumed.

    Under torchrun all processes train together, and rank 0 writes.
    """
    with process_group():
        run = find_run_dir(cfg)
        if has_results(run):
            say(f"{run.path} is finished: nothing to do")
            if is_writer() and (changed := changed_since(run, cfg)):
                warn(f"since then other: {changed}; another RUN.NAME trains with them")
            if is_writer() and run.status().state != "finished":  # killed after writing the results
                with run.writing():
                    complete_provenance(run)
            return run
        data = find_data(cfg)  # before anything is written
        run.create()
        if is_writer():
            with run.writing():
                begin(run, cfg)
                with kept_log(run):
                    train_and_record(cfg, run, *data)
        else:
            wait_for_all()
            train(cfg, run, pack(cfg, data[0]), data[1])
    return run


def changed_since(run: RunDir, cfg: Config) -> str:
    """What of a finished run is another one now; empty where nothing is, or it cannot be known."""
    recorded, found = run.read_json(run.provenance_file), []
    if run_from_launcher() is None:
        facts = provenance.source_facts(CHECKOUT)
        if facts.get("dirty_digest") != recorded.get("dirty_digest"):
            found.append("the uncommitted changes of zoerefine")
    return " and ".join([*found, *changed_network(run, cfg), *changed_data(run, cfg)])


def changed_network(run: RunDir, cfg: Config) -> list[str]:
    """A network outside this package in words if its files have changed since a training."""
    now = binding.outside_network(cfg.MODEL.NAME).get("network")
    return [f"the files of {cfg.MODEL.NAME}"] if now != run.recorded().get("network", now) else []


def changed_data(run: RunDir, cfg: Config, opened: Dataset | None = None) -> list[str]:
    """The data in words if they have changed since a training; empty also where it is unknown.

    `opened` as for `find_dataset`.
    """
    with suppress(UserError):
        now = cache_digest(find_dataset(cfg, opened), cfg.CACHE.HEIGHT, cfg.CACHE.WIDTH)
        if now != run.recorded().get("cache_digest", now):
            return [f"the data in {cfg.DATA.ROOT} (folder, clips, names, sizes or times)"]
    return []


def train_and_record(cfg: Config, run: RunDir, dataset: Dataset, split: splits.Split) -> None:
    """Pack and train, with the facts of this job; print the results."""
    cache = pack(cfg, dataset)
    record_provenance(run, cfg, cache)
    wait_for_all()
    results = train(cfg, run, cache, split)
    for line in closing_lines(results):
        say(line)
    for line in warnings(results):
        warn(line)
    complete_provenance(run)
