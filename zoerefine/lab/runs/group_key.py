"""What makes two runs one group: all that decides the result but the seed, as a digest."""

import shlex
from collections.abc import Mapping
from typing import Any

from zoerefine.base.config_roles import WEIGHT_KEYS
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_json
from zoerefine.base.machine.processor import INSTRUCTIONS
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.job import NO_CONFIG
from zoerefine.lab.launch.workspace.workspace import read_inputs

# A run's code in its settings: runs of two commits are no seeds of one.
CODE = COMMIT, CHANGES = "commit", "uncommitted changes"
# Of what decides a training beside commit and config, a fact with its digest.
OUTSIDE = {fact: f"weights of {group}.{key}" for group, key, fact in WEIGHT_KEYS}
OUTSIDE |= {"split_file": "file of DATA.SPLIT", "network": "files of MODEL.NAME"}
# Where a tracker keeps a run, and whose it is: other methods may have the same config.
PLACES = EXPERIMENT, PROJECT, GROUP, SCRIPT = "experiment", "project", "group", "script"
DIGITS = 8  # of a commit or digest in a name
# The last part of a key, in lower case; `seed_everything` is Lightning's.
SEED_NAMES = ("seed", "random_seed", "rng_seed", "manual_seed", "global_seed", "seed_everything")


def group_key(settings: Any) -> str:
    """The group of a run by all that decides its result; the seed is not in it."""
    return digest_json(settings)[:DIGITS]


def origin_settings(recorded: Mapping[str, Any]) -> dict[str, str]:
    """The code of a run, its files from outside and the variables that choose its instructions, by
    names that no config key has."""
    code = recorded.get("commit") or "unknown", recorded.get("dirty_digest") or "none"
    found = dict(zip(CODE, code, strict=True))
    facts = {name: recorded.get(fact) for fact, name in OUTSIDE.items()}
    found |= {name: fact.get("sha256") for name, fact in facts.items() if isinstance(fact, dict)}
    if (processes := recorded.get("processes", 1)) != 1:
        found["--processes"] = processes
    variables = recorded.get("variables", recorded.get("environment", {}))
    chosen = {f"variable {name}": variables[name] for name in INSTRUCTIONS if name in variables}
    return {name: str(value)[:DIGITS] for name, value in found.items()} | chosen


def command_settings(run: RunDir, recorded: Mapping[str, Any], has_config: bool) -> dict[str, Any]:
    """What decides the result besides the config's keys: the script, and options of its launch."""
    found: dict[str, Any] = {"module": str(recorded.get("module", ""))}
    for word in recorded_words(recorded, "record_env"):
        name, _, value = word.partition("=")
        found[f"--record-env {name}"] = value
    if inputs := read_inputs(run):
        found["--input"] = digest_json(list(inputs.values()))[:DIGITS]
    for option, name in (("--cwd", "cwd"), ("--environment", "environment_kind")):
        if (given := recorded.get(name)) not in (None, "workspace", "current"):  # the usual ones
            found[option] = str(given)
    if arguments := recorded_words(recorded, "arguments"):
        found["arguments"] = shlex.join(arguments)
    if not has_config and recorded.get("config") != str(NO_CONFIG):
        found["config"] = str(recorded.get("input_digest", ""))[:8]
    return found


def recorded_words(recorded: Mapping[str, Any], name: str) -> list[str]:
    """A list of words in provenance.json. Raises `UserError` where it is something else."""
    words = recorded.get(name) or []
    if not isinstance(words, list):
        raise UserError(f"provenance.json is damaged: {name} is not a list")
    return [str(word) for word in words]


def seed_key(settings: Mapping[str, Any]) -> str:
    """The key whose name and type are a seed's, the shortest of several; empty without one."""
    last = {key: key.replace("/", ".").rpartition(".")[2].lower() for key in settings}
    keys = [key for key in settings if last[key] in SEED_NAMES and type(settings[key]) is int]
    return min(keys, key=len, default="")
