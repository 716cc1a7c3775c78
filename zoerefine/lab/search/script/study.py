"""A script of any repository as what a study searches: each trial is a launch at one commit.

The study's folder holds `study.yaml`, from which a worker on any machine knows the study, and
`input.yaml`, the script's config without SEARCH.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from zoerefine.base.config import load_config, to_dict
from zoerefine.base.config.schema import SEARCH
from zoerefine.base.config.searched_keys import OWN_KEYS, TreeKeys
from zoerefine.base.config.study_keys import StudyKeys
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing, write_text
from zoerefine.base.machine.cores import THREADS
from zoerefine.base.messages import say, warn
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.equal_values import same_data
from zoerefine.base.yaml.keys import flatten, value_at, with_facts, with_values
from zoerefine.base.yaml.read import YamlError, load_yaml, read_yaml
from zoerefine.base.yaml.script_overrides import YAML_SUFFIXES
from zoerefine.base.yaml.write import dump_value, dump_yaml
from zoerefine.lab.launch.git.changes import Changes
from zoerefine.lab.launch.git.mirror import mirrors_in_use
from zoerefine.lab.launch.home import home_folder
from zoerefine.lab.launch.included import read_included
from zoerefine.lab.launch.job import (
    IN_PLACE,
    JOB_OPTIONS,
    MERGED,
    NO_CONFIG,
    OPTIONS,
    Job,
    launch_words,
    usual_overrides,
    with_tuples,
)
from zoerefine.lab.launch.plan import LaunchPlan, kept_plan, make_plan
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.search.script.runner import run_launch, unread_values
from zoerefine.lab.search.space.reader import read_space
from zoerefine.lab.search.space.script_section import (
    SpaceSource,
    combined,
    read_config,
    searched_tree,
    space_in_config,
    takes_any_key,
    with_options,
    without_space,
)
from zoerefine.lab.search.space.space import Choice, Parameter, Range, Values, every
from zoerefine.lab.search.study.trials import SCRIPT_STUDY, Criteria, Direction, settings_file
from zoerefine.lab.search.subject import TrialRunner

# Keys of STUDY that concern our own training.
OWN_OPTIONS = ("EPOCHS", "OBJECTIVES", "CONSTRAINTS", "THEN", "SEEDS")


class LaunchedScript:
    """What SEARCH lists, each trial a launch of the script at one commit.

    Args:
        plan: the launch without searched values. Its config holds no SEARCH.
        tree: the keys of the config, see `searched_tree`.
        search: the checked SEARCH tree.
        metric: the name of the metric that trials are compared by.
        options: the keys of STUDY.
        folder: where the study is written.

    Raises `UserError` where there is nothing to search.
    """

    name_key = "--name"
    steps = 0

    def __init__(
        self,
        plan: LaunchPlan,
        tree: dict[str, Any],
        search: Mapping[str, Any],
        metric: str,
        direction: Direction,
        options: StudyKeys,
        folder: Path,
    ) -> None:
        self.plan, self.tree, self.search, self.folder = plan, tree, search, folder
        self.metric, self.direction, self.options = metric, direction, options
        self.name, self.seed = plan.name, plan.seed
        self.space = read_space(search, TreeKeys(tree))
        self.criteria = Criteria({metric: direction})
        self.processes = plan.job.processes
        self.devices = max(options.DEVICES, self.processes)  # torchrun's jobs take one each
        # Whether the script gets the values as words that no config need hold.
        self.has_options = takes_any_key(plan.job.config, plan.job.overrides_in)
        if plan.job.overrides_in == "options":
            refuse_branches(self.space)

    def number_notes(self) -> list[str]:
        """How a range of whole numbers is made one of all numbers, where the config has no value
        that shows which ones the script takes."""
        return [
            f"{one.key} tries whole numbers only: write {one.low}.0..{one.high} for fractions, too"
            for one in self.space
            if isinstance(one, Range) and one.is_whole and not one.step and one.low < one.high
            if value_at(self.tree, one.key) is None
        ]

    def identity(self) -> dict[str, Any]:
        """Commit, script, metric, the config's keys and the space."""
        job = self.plan.job
        found: dict[str, Any] = {
            one.metadata["words"][0]: getattr(job, one.name)
            for one in JOB_OPTIONS
            if one.type is str
        }
        found["--metric-pattern"] = list(job.metric_patterns)
        found["--processes"] = job.processes
        if job.record_env:
            found["--record-env"] = list(job.record_env)
        if self.plan.inputs:
            found["--input"] = [dict(files) for files in self.plan.inputs.values()]
        if self.plan.included.copies:
            found["included configs"] = dict(self.plan.included.copies)
        if self.plan.quoted_switches:
            found["in quotes"] = self.plan.quoted_switches
        found |= {
            "commit": self.plan.commit,
            "--metric": f"{self.metric}, {self.direction}",
            "KEY VALUE words": list(self.plan.override_arguments),
            "words after --": list(job.arguments),
        }
        keys = flatten(self.tree, keeps_empty=True) | flatten({SEARCH: self.search})
        return with_facts(keys, found)

    def data_digest(self) -> str:
        """Empty: which data a script reads is not known."""
        return ""

    def save(self, run: RunDir) -> None:
        """Write study.yaml, the config and the provenance."""
        job = self.plan.job
        with replacing(run.path / self.plan.input_name) as path:
            path.write_bytes(self.plan.config)
        self.plan.included.save(run.path)
        fields = asdict(job) | {"config": str(job.config), "caller": str(job.caller)}
        study = {
            "RUN": {"NAME": self.name},
            "METRIC": {"NAME": self.metric, "DIRECTION": self.direction},
            "STUDY": to_dict(self.options),  # type: ignore[arg-type]
            SEARCH: dict(self.search),
            "JOB": {k: list(one) if isinstance(one, tuple) else one for k, one in fields.items()},
        }
        write_text(run.path / SCRIPT_STUDY, dump_yaml(study))
        provenance.add(
            run,
            repository=self.plan.address.url,
            commit=self.plan.commit,
            module=job.module,
            input=self.plan.input_name,
            overrides=list(job.overrides),
            metric=self.metric,
            direction=self.direction,
            seed=self.seed,
            **provenance.machine_facts(),
        )

    def runner(self, run: RunDir) -> TrialRunner:
        """Launches from this process."""
        return partial(run_launch, self.trial_plan, self.metric)

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
        job, words = self.plan.job, self.words(values)
        file = study.path / f"{name}{Path(self.plan.input_name).suffix}"
        with replacing(file) as path:
            path.write_bytes(self.config_with(values))
        if not self.has_options:
            way = job.overrides_in if job.overrides_in == IN_PLACE else usual_overrides(file)
            job, words = replace(job, config=file, overrides_in=way), []
        elif job.config != NO_CONFIG:
            job = replace(job, config=study.path / self.plan.input_name)
        overrides = (*self.plan.override_arguments, *words)
        variables = (*job.record_env, *trial_threads(study))
        job = replace(job, overrides=overrides, record_env=variables)
        say(f"{name} again: {shlex.join(['zoerefine', 'run', *launch_words(job)])}")
        if note := unread_values(study, self.metric):
            warn(note)

    def config_with(self, values: Values) -> bytes:
        """The config with these values; where they are options, these alone."""
        if not self.has_options:
            merge = self.plan.included.merge
            return merge(self.plan.job.config, self.plan.config, self.words(values))
        return dump_yaml(with_values(with_options({}, self.search), values)).encode()

    def words(self, values: Values) -> list[str]:
        """A trial's values as KEY VALUE words."""
        is_option = self.plan.job.overrides_in in OPTIONS
        return override_words(self.tree, values, as_option if is_option else as_word)


def refuse_branches(space: Sequence[Parameter]) -> None:
    """Raises `UserError` for values that are mappings: an option, `--KEY=VALUE`, cannot be one."""
    for choice in (one for one in every(space) if isinstance(one, Choice)):
        values = (value for option in choice.options for value in option.fixed.values())
        if any(isinstance(value, Mapping) for value in values):
            raise UserError(
                f"SEARCH.{choice.name} lists mappings, and the script's options are single values: "
                "search one option after the other, or give a config that has this group"
            )


def plan_study(
    job: Job,
    home: Path,
    runs: Path | None,
    spaces: Sequence[SpaceSource],
    replaces_config: bool,
    metric: str,
    direction: Direction,
    study_words: Sequence[str],
) -> LaunchedScript:
    """Look up everything that a study needs. Only mirrors are written.

    Args:
        job: with the overrides that every trial gets.
        runs: where run directories are made, as for `launch`.
        spaces: given beside the config; later ones replace keys of earlier ones.
        replaces_config: the space in the config does not count.
        study_words: KEY VALUE words of STUDY.

    Raises `UserError` for anything that is wrong with the repository, the commit, the config or the
    space.
    """
    if job.allow_dirty:
        raise UserError("a study cannot use --allow-dirty: commit the changes first")
    options = study_options(study_words)
    with mirrors_in_use(home):
        way = IN_PLACE if job.overrides_in == IN_PLACE else "arguments"
        plan = make_plan(replace(job, overrides_in=way), home, merge=False)
    os.environ.update({name: value for name, value in plan.address.login().items() if value})
    document = read_config(job.config, plan.config, takes_any_key(job.config, job.overrides_in))
    config = without_space(document).encode() if document.tree else plan.config
    if job.overrides_in in MERGED:
        config = plan.included.merge(job.config, config, job.overrides)
    # Workers look the commit up again: the branch may have moved, and the user's files changed.
    fixed = replace(job, repo=plan.address.url, ref=plan.commit, branch="", name=plan.name)
    plan = replace(plan, job=fixed, config=config)
    own = space_in_config(document)
    sources = [*([own] if own and not replaces_config else []), *spaces]
    given = combined([source.tree for source in sources])
    tree = searched_tree(job.config, job.overrides_in, config, plan.included, given)
    search = combined([source.read(TreeKeys(tree)) for source in sources])
    folder = plan.run(runs).path.parent / "study"
    return LaunchedScript(plan, tree, search, metric, direction, options, folder)


def study_options(words: Sequence[str]) -> StudyKeys:
    """STUDY with these KEY VALUE words. Raises `UserError` for keys of our own training."""
    for key in words[::2]:
        name = key.partition(".")[2]
        if name in OWN_OPTIONS:
            raise UserError(
                f"{key} is for zoerefine's own training: a script is searched by --metric, and its "
                "own keys say how long a trial is"
            )
    options: StudyKeys = load_config(None, list(words)).STUDY
    return options


def open_study(run: RunDir) -> LaunchedScript:
    """The study in a folder, its commit fetched to this machine."""
    document = read_yaml(run.path / SCRIPT_STUDY).tree
    fields = document["JOB"]
    fields["config"] = config_in(run, fields)
    fields["caller"] = Path(fields["caller"])
    job, home = Job(**with_tuples(fields)), home_folder()
    with mirrors_in_use(home):
        included = read_included(run.path)
        plan = kept_plan(job, job.config.read_bytes(), Changes(), included, home)
    metric, search = document["METRIC"], document[SEARCH]
    options = load_config({"STUDY": document["STUDY"]}).STUDY
    tree = searched_tree(job.config, job.overrides_in, plan.config, plan.included, search)
    judged = (metric["NAME"], metric["DIRECTION"])
    return LaunchedScript(plan, tree, search, *judged, options, run.path)


def config_in(run: RunDir, job: Mapping[str, Any]) -> Path:
    """Where a study's folder has the script's config."""
    given = Path(job["config"])
    if given == NO_CONFIG:
        return NO_CONFIG
    return run.path / ("input.yaml" if given.suffix in YAML_SUFFIXES else f"input{given.suffix}")


def recorded_tree(run: RunDir) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config of a study without searched values, and its SEARCH tree, as it was recorded.

    A script's has the words that every trial gets.
    """
    if settings_file(run) == run.config_file:
        cfg = load_config(run.config_file)
        return to_dict(cfg), cfg.SEARCH
    document = read_yaml(run.path / SCRIPT_STUDY).tree
    job, search = document["JOB"], document[SEARCH]
    file = config_in(run, job)
    data = b"" if file == NO_CONFIG else file.read_bytes()
    words, included = job["overrides"], read_included(run.path)
    return searched_tree(file, job["overrides_in"], data, included, search, words), search


def recorded_space(run: RunDir) -> tuple[dict[str, Any], tuple[Parameter, ...]]:
    """As `recorded_tree`, with SEARCH as parameters."""
    tree, search = recorded_tree(run)
    is_script = settings_file(run) != run.config_file
    return tree, read_space(search, TreeKeys(tree) if is_script else OWN_KEYS)


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
