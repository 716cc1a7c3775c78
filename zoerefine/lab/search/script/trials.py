"""A script of any repository as what a study searches: each trial is a launch at one commit."""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from zoerefine.base.config import load_config, to_dict
from zoerefine.base.config.schema import SEARCH
from zoerefine.base.config.search import TreeKeys
from zoerefine.base.files.atomic import replacing
from zoerefine.base.machine.cores import THREADS
from zoerefine.base.progress import say, warn
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.keys import flatten, value_at, with_values
from zoerefine.base.yaml.read import YamlError, load_yaml, read_yaml
from zoerefine.base.yaml.write import dump_value, dump_yaml, same_data
from zoerefine.lab.launch.job import (
    IN_PLACE,
    JOB_OPTIONS,
    MERGED,
    NO_CONFIG,
    OPTIONS,
    last_words,
    option_words,
)
from zoerefine.lab.launch.plan import LaunchPlan
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.search.script.runner import run_launch, unread_values
from zoerefine.lab.search.script.study import LaunchedStudy, recorded_tree, with_options
from zoerefine.lab.search.space.reader import read_space
from zoerefine.lab.search.space.space import Parameter, Values
from zoerefine.lab.search.study.trials import settings_file
from zoerefine.lab.search.subject import Criteria, TrialRunner


class LaunchedScript:
    """What SEARCH lists, each trial a launch of the script.

    Args:
        folder: where the study is written.

    Raises `UserError` where there is nothing to search.
    """

    name_key = "--name"
    steps = 0

    def __init__(self, study: LaunchedStudy, folder: Path) -> None:
        self.study, self.plan, self.folder = study, study.plan, folder
        self.options, self.name, self.seed = study.options, study.plan.name, study.plan.seed
        self.tree = study.tree
        self.space = read_space(study.search, TreeKeys(self.tree))
        self.criteria = Criteria({study.metric: study.direction})
        self.processes = self.plan.job.processes
        self.devices = max(self.options.DEVICES, self.processes)  # torchrun's jobs take one each

    def identity(self) -> dict[str, Any]:
        """Commit, script, metric, the config's keys and the space."""
        job, study = self.plan.job, self.study
        found: dict[str, Any] = {
            one.option: getattr(job, one.field) for one in JOB_OPTIONS if one.holds is str
        }
        patterns = job.metric_patterns
        # One pattern is a text, as in studies of earlier versions.
        found["--metric-pattern"] = list(patterns) if len(patterns) > 1 else "".join(patterns)
        if job.processes > 1:  # only then, so that earlier studies stay the same
            found["--processes"] = job.processes
        if job.record_env:
            found["--record-env"] = list(job.record_env)
        if self.plan.inputs:
            found["--input"] = [dict(files) for files in self.plan.inputs.values()]
        if self.plan.included.copies:
            found["included configs"] = dict(self.plan.included.copies)
        found |= {
            "commit": self.plan.commit,
            "--metric": f"{study.metric}, {study.direction}",
            "KEY VALUE words": list(self.plan.override_arguments),
            "words after --": list(job.arguments),
        }
        return found | flatten(self.tree) | flatten({SEARCH: study.search})

    def data_digest(self) -> str:
        """Empty: which data a script reads is not known."""
        return ""

    def save(self, run: RunDir) -> None:
        """Write study.yaml, the config and the provenance."""
        self.study.save(run)
        job = self.plan.job
        provenance.add(
            run,
            repository=self.plan.address.url,
            commit=self.plan.commit,
            module=job.module,
            input=self.plan.input_name,
            overrides=list(job.overrides),
            metric=self.study.metric,
            direction=self.study.direction,
            seed=self.seed,
            **provenance.machine_facts(),
        )

    def runner(self, run: RunDir) -> TrialRunner:
        """Launches from this process."""
        return partial(run_launch, self.trial_plan, self.study.metric)

    def trial_plan(self, values: Values) -> LaunchPlan:
        """The launch of a trial. Raises `UserError` where the config cannot hold its values."""
        job, config = self.plan.job, self.plan.config
        words = self.words(values)
        if job.overrides_in in MERGED:
            config = self.plan.included.merge(job.config, config, words)
        job = replace(job, overrides=(*job.overrides, *words))
        return replace(self.plan, job=job, config=config)

    def tree_in(self, file: Path) -> Mapping[str, Any]:
        """A config of the script."""
        tree: Mapping[str, Any] = read_yaml(file).tree
        return tree

    def publish(self, study: RunDir, name: str, values: Values) -> None:
        """Write the config with the best values, and print the command that runs it."""
        job = self.plan.job
        words = self.words(values)
        file = study.path / f"{name}{Path(self.plan.input_name).suffix}"
        with replacing(file) as path:
            path.write_bytes(self.config_with(values))
        command = ["zoerefine", "run", "--repo", self.plan.address.url]
        command += ["--commit", self.plan.commit, "--name", self.name]
        if not self.study.has_options:
            command, words = [*command, "--config", str(file)], []
        elif job.config != NO_CONFIG:
            command += ["--config", str(study.path / self.plan.input_name)]
        if threads := trial_threads(study):
            job = replace(job, record_env=(*job.record_env, *threads))
        stays = self.study.has_options or job.overrides_in == IN_PLACE
        command += option_words(job, () if stays else ("overrides_in",))
        command += last_words(job, [*self.plan.override_arguments, *words])
        say(f"{name} again: {shlex.join(command)}")
        if note := unread_values(study):
            warn(note)

    def config_with(self, values: Values) -> bytes:
        """The config with these values; where they are options, these alone."""
        if not self.study.has_options:
            merge = self.plan.included.merge
            return merge(self.plan.job.config, self.plan.config, self.words(values))
        return dump_yaml(with_values(with_options({}, self.study.search), values)).encode()

    def words(self, values: Values) -> list[str]:
        """A trial's values as KEY VALUE words."""
        is_option = self.plan.job.overrides_in in OPTIONS
        return override_words(self.tree, values, as_option if is_option else as_word)


def trial_threads(study: RunDir) -> list[str]:
    """The threads of the study's trials as `NAME=VALUE`, where workers shared the cores.

    The number of threads decides the last bits of a result.
    """
    for trial in sorted(study.path.glob("trials/*")):
        recorded = RunDir(trial).read_json(RunDir(trial).provenance_file).get("variables", {})
        count = recorded.get(THREADS)
        return [f"{THREADS}={count}"] if count and count != os.environ.get(THREADS) else []
    return []


def override_words(
    tree: Mapping[str, Any], values: Values, written: Callable[[Any], str]
) -> list[str]:
    """Values as KEY VALUE words; a value inside a list is given with the whole list."""
    changed = with_values(tree, values)
    words: dict[str, str] = {}
    for key in values:
        node: Any = tree
        path = []
        for word in key.split("."):
            if not isinstance(node, Mapping):
                break
            path.append(word)
            node = node.get(word)
        outer = ".".join(path)
        words[outer] = written(value_at(changed, outer))
    return [word for pair in words.items() for word in pair]


def as_word(value: Any) -> str:
    """A value as one word that YAML reads, and YACS too: it takes Python's True, not true."""
    text = value if isinstance(value, str) else repr(value)
    try:
        exact = same_data(load_yaml(text), value)
    except YamlError:
        exact = False
    return text if exact else dump_value(value)


def as_option(value: Any) -> str:
    """A value as the word after `--KEY=`, where nothing takes YAML's quotes off a text."""
    return value if isinstance(value, str) else as_word(value)


def recorded_space(run: RunDir) -> tuple[dict[str, Any], tuple[Parameter, ...]]:
    """The config of a study without searched values, and its space. Neither is looked up anew."""
    if settings_file(run) != run.config_file:
        tree, search = recorded_tree(run)
        return tree, read_space(search, TreeKeys(tree))
    cfg = load_config(run.config_file)
    return to_dict(cfg), read_space(cfg.SEARCH)
