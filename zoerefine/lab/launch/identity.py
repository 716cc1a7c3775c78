"""What makes two launches the same: the digest of everything that decides what runs.

The same command finds its finished run by it, and goes on with its interrupted one. A folder with
the run of another job is refused.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zoerefine.base.config_roles import OWN_MODULES, Role, role_of
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_json
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.keys import flatten
from zoerefine.base.yaml.read import FLAG_WORDS, load_yaml
from zoerefine.base.yaml.script_overrides import read_value
from zoerefine.lab.launch.included import Included
from zoerefine.lab.launch.job import IN_PLACE, JOB_OPTIONS, OPTIONS, Job
from zoerefine.lab.launch.workspace.workspace import Inputs

# What decides what a launched job does: where the data are stands for the data, which are not read
# yet, and a search that is given a larger budget has more to do.
DECIDES = {Role.RESULT, Role.SEARCH, Role.BUDGET, Role.DATA}


def launch_identity(
    job: Job, commit: str, changes: str, settings: Any, included: Included, inputs: Inputs
) -> str:
    """SHA-256 of everything that decides what runs, in hex: equal jobs have equal identities.

    Args:
        changes: the digest of the uncommitted changes.
        settings: what `launch_settings` gives for the job.
    """
    what = [commit, changes, settings, job.module]
    what += [job.config_flag, job.arguments, job.environment]
    # Only where they are set, so that the identities of earlier runs stay.
    usual = {one.name: one.default for one in JOB_OPTIONS if one.metadata["decides"]}
    chosen = {name: getattr(job, name) for name in usual}
    if (job.overrides_in in OPTIONS and job.overrides) or job.overrides_in == IN_PLACE:
        chosen["overrides_in"] = job.overrides_in
    if included.place:
        chosen["included"] = {"": included.place, **included.copies}
    if inputs:
        chosen["inputs"] = [dict(files) for files in inputs.values()]
    if chosen != usual:
        what.append({k: value for k, value in chosen.items() if value != usual.get(k)})
    return digest_json(what)


def launch_settings(
    config: Mapping[str, Any] | str, overrides: Sequence[str], module: str
) -> dict[str, Any]:
    """What decides what a launched job does, besides its commit, module and arguments.

    The keys of another repository's job are not known: all of them decide, as they are written.

    Args:
        config: its tree, or for a file that is not YAML its content.
    """
    if not module.startswith(OWN_MODULES) or isinstance(config, str):
        # As JSON has it: keys that are numbers could not be sorted beside words.
        return {"config": json.loads(json.dumps(config)), "overrides": list(overrides)}
    flat = flatten(config)
    for key, text in zip(overrides[::2], overrides[1::2], strict=True):
        flat = {k: v for k, v in flat.items() if k != key and not k.startswith(f"{key}.")}
        flat |= flatten({key: read_value(text)})
    return {key: value for key, value in flat.items() if role_of(key) in DECIDES}


def quoted_switches(tree: Mapping[str, Any], data: bytes) -> list[str]:
    """The keys of a YAML config with texts that are switches without their quotes, as PyYAML reads
    them: `no` is false, and "no" is not, though both are one text in `tree`.
    """
    if not tree:  # of another kind of file
        return []
    found = flatten(load_yaml(data.decode(), has_switches=True))
    texts = {key: value if isinstance(value, list) else [value] for key, value in found.items()}
    return [
        key
        for key, values in texts.items()
        if any(isinstance(one, str) and one.lower() in FLAG_WORDS for one in values)
    ]


def refuse_another_job(identity: str, run: RunDir) -> None:
    """Raises `UserError` where the folder holds the run of another job."""
    recorded = run.recorded().get("identity")
    if recorded is not None and recorded != identity:
        raise UserError(
            f"{run.path} belongs to another job: its commit, config or words differ; remove that "
            "folder, or give another --name"
        )
