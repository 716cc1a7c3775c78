"""What a study of a script is made of: planned from a command, and kept in the study's folder.

The folder holds `study.yaml`, from which a worker on any machine knows the study, and `input.yaml`,
the script's config without SEARCH.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from zoerefine.base.config import load_config, to_dict
from zoerefine.base.config.schema import SEARCH
from zoerefine.base.config.search import TreeKeys
from zoerefine.base.config.study_keys import StudyKeys
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing, write_text
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.keys import merged
from zoerefine.base.yaml.read import Document, parse_mapping, read_yaml
from zoerefine.base.yaml.write import NEW_KEY, YAML_SUFFIXES, dump_yaml, read_value, with_value
from zoerefine.lab.launch.git.changes import Changes
from zoerefine.lab.launch.git.mirror import home_folder, mirrors_in_use
from zoerefine.lab.launch.included import Included, read_included
from zoerefine.lab.launch.job import (
    IN_PLACE,
    MERGED,
    NO_CONFIG,
    OPTIONS,
    Job,
    with_lists,
    with_tuples,
)
from zoerefine.lab.launch.plan import LaunchPlan, kept_plan, make_plan
from zoerefine.lab.runs.metrics import recorded_patterns
from zoerefine.lab.search.space.sources import (
    SpaceSource,
    combined,
    is_group,
    space_in_config,
    without_space,
)
from zoerefine.lab.search.study.trials import SCRIPT_STUDY
from zoerefine.lab.search.subject import Direction

# Keys of STUDY that concern our own training.
OWN_OPTIONS = ("EPOCHS", "OBJECTIVES", "CONSTRAINTS", "THEN", "SEEDS")


@dataclass(frozen=True)
class LaunchedStudy:
    """A study of a script.

    Attributes:
        plan: the launch without searched values. Its config holds no SEARCH.
        search: the checked SEARCH tree.
        metric: the name of the metric that trials are compared by.
        options: the keys of STUDY.
    """

    plan: LaunchPlan
    search: Mapping[str, Any]
    metric: str
    direction: Direction
    options: StudyKeys

    @property
    def tree(self) -> dict[str, Any]:
        """The script's config with what it includes, see `searched_tree`."""
        job, plan = self.plan.job, self.plan
        return searched_tree(
            job.config, job.overrides_in, plan.config, plan.included, [], self.search
        )

    @property
    def has_options(self) -> bool:
        """Whether the script gets the values as words that no config need hold."""
        return takes_any_key(self.plan.job.config, self.plan.job.overrides_in)

    def save(self, run: RunDir) -> None:
        """Write study.yaml and the config."""
        with replacing(run.path / self.plan.input_name) as path:
            path.write_bytes(self.plan.config)
        self.plan.included.save(run.path)
        fields = asdict(self.plan.job)
        for name in ("config", "caller"):
            fields[name] = str(fields[name])
        study = {
            "RUN": {"NAME": self.plan.name},
            "METRIC": {"NAME": self.metric, "DIRECTION": self.direction},
            "STUDY": to_dict(self.options),  # type: ignore[arg-type]
            SEARCH: dict(self.search),
            "JOB": with_lists(fields),
        }
        write_text(run.path / SCRIPT_STUDY, dump_yaml(study))


def plan_study(
    job: Job,
    home: Path,
    spaces: Sequence[SpaceSource],
    replaces_config: bool,
    metric: str,
    direction: Direction,
    study_words: Sequence[str],
) -> LaunchedStudy:
    """Look up everything that a study needs. Only mirrors are written.

    Args:
        job: with the overrides that every trial gets.
        spaces: given beside the config; later ones replace keys of earlier ones.
        replaces_config: the space in the config does not count.
        study_words: KEY VALUE words of STUDY.

    Raises:
        UserError: anything that is wrong with the repository, the commit, the config or the space.
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
    tree = searched_tree(job.config, job.overrides_in, config, plan.included, [], given)
    search = combined([source.read(TreeKeys(tree)) for source in sources])
    return LaunchedStudy(plan, search, metric, direction, options)


def open_study(run: RunDir) -> LaunchedStudy:
    """The study in a folder, its commit fetched to this machine."""
    document = read_yaml(run.path / SCRIPT_STUDY).tree
    fields = document["JOB"]
    fields["config"] = config_in(run, fields)
    fields["caller"] = Path(fields["caller"])
    fields["metric_patterns"] = recorded_patterns(fields)
    fields.pop("metric_pattern", None)  # of an earlier version
    job, home = Job(**with_tuples(fields)), home_folder()
    with mirrors_in_use(home):
        plan = kept_plan(job, job.config.read_bytes(), Changes(), run.path, home)
    metric = document["METRIC"]
    options = load_config({"STUDY": document["STUDY"]}).STUDY
    return LaunchedStudy(plan, document[SEARCH], metric["NAME"], metric["DIRECTION"], options)


def config_in(run: RunDir, job: Mapping[str, Any]) -> Path:
    """Where a study's folder has the script's config."""
    given = Path(job["config"])
    if given == NO_CONFIG:
        return NO_CONFIG
    return run.path / ("input.yaml" if given.suffix in YAML_SUFFIXES else f"input{given.suffix}")


def recorded_tree(run: RunDir) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config of a study with the words that every trial gets, and its SEARCH tree."""
    document = read_yaml(run.path / SCRIPT_STUDY).tree
    job, search = document["JOB"], document[SEARCH]
    file = config_in(run, job)
    data = b"" if file == NO_CONFIG else file.read_bytes()
    words, included = job["overrides"], read_included(run.path)
    return searched_tree(file, job["overrides_in"], data, included, words, search), search


def searched_tree(
    config: Path,
    overrides_in: str,
    data: bytes,
    included: Included,
    words: Sequence[str],
    search: Mapping[str, Any],
) -> dict[str, Any]:
    """The keys of a config, of the files that it includes and of KEY VALUE words.

    Where only the script knows its keys, each searched one is there without a value.
    """
    any_key = takes_any_key(config, overrides_in)
    own = read_config(config, data, any_key).tree
    tree = with_words(config, merged(included.tree or {}, own), words)
    return with_options(tree, search) if any_key or included.has_unknown_keys else tree


def takes_any_key(config: Path, overrides_in: str) -> bool:
    """Whether only the script knows which keys there are."""
    return overrides_in in OPTIONS or config == NO_CONFIG


def with_words(file: Path, tree: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """A config's tree with the values of KEY VALUE words."""
    for key, text in zip(words[::2], words[1::2], strict=True):
        with suppress(UserError):  # LOSS.1.weight, which only the script can place
            keys = key.removeprefix(NEW_KEY).split(".")
            tree = with_value(file, tree, keys, read_value(text))
    return tree


def with_options(config: Mapping[str, Any], search: Mapping[str, Any]) -> dict[str, Any]:
    """A config's tree, and without a value every key of a SEARCH tree that it does not have."""
    tree = dict(config)
    for key, value in search.items():
        if is_group(value):
            inner = tree.get(key)
            tree[key] = with_options(inner if isinstance(inner, Mapping) else {}, value)
        else:
            tree.setdefault(key, None)
    return tree


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


def read_config(path: Path, data: bytes, any_key: bool = False) -> Document:
    """A script's config with the place of each value.

    Raises `UserError` for another format than YAML and JSON, unless the script takes any key.
    """
    is_known = path.suffix in (*YAML_SUFFIXES, ".json")
    if path == NO_CONFIG or (any_key and not is_known):
        return Document({}, {})
    if not is_known:
        raise UserError(f"config {path} is neither YAML nor JSON: its keys cannot be searched")
    if path.suffix == ".json":
        try:
            json.loads(data)
        except ValueError as error:
            raise UserError(f"config {path} is not valid JSON: {error}") from None
    return parse_mapping(data.decode(), path)  # JSON is YAML
