"""A run directory that a test fills as a job would."""

import json

import pytest

from zoerefine.base.run_dir import RunDir


class FilledRun(RunDir):
    """A run with files that a test writes."""

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def record(self, **facts):
        self.provenance_file.write_text(json.dumps(facts))


@pytest.fixture
def run(tmp_path):
    """A finished run without any metrics."""
    made = FilledRun(tmp_path / "runs" / "mnist" / "0a1b2c3d-4e5f6a7b")
    made.create()
    made.record(commit="ab" * 20)
    made.set_status("running")
    made.set_status("finished")
    return made
