"""provenance.json: enough about a run that a stranger can run it again, and no secret."""

import os
import platform
import re
import socket
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from zoerefine.files import digest_json, write_json
from zoerefine.launch.git import git_bytes, head_commit, uncommitted_files
from zoerefine.run_dir import RunDir

SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE", re.I)
URL_CREDENTIALS = re.compile(r"(\w+://)[^/\s\"'@]+@")
HIDDEN = "***"


def add(run: RunDir, **facts: Any) -> None:
    """Merge facts into the run's provenance.json; what is there and not named stays."""
    known: dict[str, Any] = {}
    if run.provenance_file.exists():
        known = run.read_json(run.provenance_file)
    write_json(run.provenance_file, without_secrets(known | facts))


def source_facts(folder: Path) -> dict[str, Any]:
    """Commit and state of the tree that a run comes from, where no launcher says."""
    commit = head_commit(folder)
    dirty = uncommitted_files(folder) if commit else []
    facts: dict[str, Any] = {"repository": str(folder), "commit": commit, "dirty_files": dirty}
    if dirty:
        facts["dirty_digest"] = digest_json(git_bytes("diff", "HEAD", folder=folder).hex())
    return facts


def machine_facts() -> dict[str, Any]:
    """Python, packages and host: cheap, and without importing torch."""
    return {
        "python": platform.python_version(),
        "environment_digest": environment_digest(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
    }


def device_facts() -> dict[str, Any]:
    """torch and what it computes on."""
    import torch

    facts: dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        facts |= {
            "cuda": torch.version.cuda,
            "gpu": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        }
    return facts


def environment_digest() -> str:
    """A digest of every installed distribution and its version."""
    return digest_json(sorted(f"{d.name}=={d.version}" for d in metadata.distributions()))


def job_facts(argv: Sequence[str] = sys.argv) -> dict[str, Any]:
    """What a job adds about itself: its command line and the variables that steer results."""
    steering = ("CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED", "OMP_NUM_THREADS")
    return {
        "job_argv": list(argv),
        "environment": {key: os.environ[key] for key in steering if key in os.environ},
    }


def without_secrets(value: Any) -> Any:
    """The same JSON value with URL credentials and the environment's secrets blotted out."""
    if isinstance(value, str):
        return hide_secrets(value)
    if isinstance(value, dict):
        return {key: without_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    return value


def hide_secrets(text: str) -> str:
    """A text with URL credentials and the values of variables named like a secret blotted out."""
    values = {v for k, v in os.environ.items() if SECRET_NAME.search(k) and len(v) >= 4}
    for secret in sorted(values, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return URL_CREDENTIALS.sub(rf"\1{HIDDEN}@", text)


def without_credentials(url: str) -> str:
    """A URL without user and password; anything else as it is."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
