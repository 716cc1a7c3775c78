"""Bundles from elsewhere: code waits for the user's trust, and no manifest ends in a traceback."""

import os
import tracemalloc
import zipfile
from functools import partial

import numpy as np
import pytest
import torch

from zoerefine.base.errors import UserError
from zoerefine.depth.exporting.build import EngineBuilder
from zoerefine.depth.exporting.bundle import bundle as bundles
from zoerefine.depth.exporting.bundle import trust as trust_module
from zoerefine.depth.exporting.bundle.containers import LENGTH, TORCHSCRIPT, seal
from zoerefine.depth.exporting.bundle.trust import is_trusted
from zoerefine.depth.exporting.engine_kinds import BuiltEngine, engine_kind
from zoerefine.depth.exporting.engines.torchscript_engine import archive
from zoerefine.depth.exporting.show import show_bundle
from zoerefine.depth.infer import Refiner

OTHER_TYPES = [None, True, "\x1b[31m", "\ud800", [None], {"a": None}, -1, 2**70, float("nan")]

DEPTH = np.full((1, 24, 32), 512, np.uint16)


class WritesWhileLoading(torch.nn.Module):
    """TorchScript that writes a file as soon as it is loaded."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def forward(self, rgb: torch.Tensor) -> torch.Tensor:
        return rgb

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.path, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.path = state[0]
        # Its result is used, because TorchScript drops what has no effect inside the program.
        self.training = bool(torch.from_file(self.path, shared=True, size=4).fill_(1.0)[0] < 0)


@pytest.fixture
def written(tmp_path, trust_list):
    """The file that is written when the bundle `evil.ts` beside it is loaded; nobody trusts it."""
    file = tmp_path / "written"
    content = archive(torch.jit.script(WritesWhileLoading(str(file))))
    manifest = {"engine": "torchscript", "precision": "fp32", "run": "a", "commit": "b" * 40}
    bundles.save_bundle(BuiltEngine(content), manifest, tmp_path / "evil.ts")
    file.unlink(missing_ok=True)
    trust_list.unlink()
    return file


def test_code_of_an_unknown_bundle_does_not_run_before_it_is_accepted(written, trust_list):
    bundle = written.with_name("evil.ts")
    message = r"evil\.ts is a program .* run a at commit bbb.* --trust"
    with pytest.raises(UserError, match=message) as of:
        bundles.load_bundle(bundle)
    assert "torchscript" in str(of.value) and "trust=True" in str(of.value)
    assert not (written.exists() or trust_list.exists())
    bundles.load_bundle(bundle, trust=True)
    assert written.exists()


def test_a_program_that_takes_the_place_of_a_trusted_one_while_it_is_loaded_does_not_run(
    run, written, monkeypatch
):
    evil = written.with_name("evil.ts")
    trust_module.trust(bundles.read_manifest(run.bundle)["digest"], run.bundle)
    kind = engine_kind("torchscript")
    facts = kind.machine_facts()
    monkeypatch.setattr(kind, "machine_facts", lambda: evil.replace(run.bundle) and facts)
    refined = bundles.load_bundle(run.bundle)(np.zeros((1, 24, 32, 3), np.uint8), DEPTH)
    assert refined.shape == DEPTH.shape
    assert not written.exists()
    monkeypatch.setattr(kind, "machine_facts", lambda: facts)
    with pytest.raises(UserError, match="is a program"):
        bundles.load_bundle(run.bundle)


def test_a_received_bundle_is_refused_until_it_is_accepted_once(
    run, command, trust_list, world, tmp_path
):
    rgb, zoe = world / "habitat_sim_DAVIS/JPEGImages/480p/0000", world / "zoe_depth_raw/0000"
    words = ("infer", run.bundle, "--rgb", rgb, "--depth", zoe, "--out")
    refused = command(*words, tmp_path / "out", code=2)
    assert len(refused.err.splitlines()) == 1
    assert "is a program" in refused.err
    assert not (tmp_path / "out").exists()
    assert "unknown to you, see --trust" in command("show", run.bundle).out
    with pytest.raises(UserError, match="trust=True"):
        Refiner.load(run.bundle)
    command(*words, tmp_path / "out", "--trust")
    command(*words, tmp_path / "again")
    assert Refiner.load(run.bundle)
    assert "with your rights; you trust it" in command("show", run.bundle).out


def test_what_the_user_exports_is_trusted_by_itself(run, command, trust_list):
    command("export", run.path, "--engine", "torchscript", "--precision", "fp32")
    assert bundles.load_bundle(run.bundle)


def test_a_kept_build_of_unknown_origin_is_built_again(run, trust_list, capsys):
    builder, kind = EngineBuilder(run), engine_kind("torchscript")
    builder.bundle(kind, "fp32")
    assert "building torchscript in fp32" in capsys.readouterr().err
    builder.bundle(kind, "fp32")
    assert "built before" in capsys.readouterr().err


def test_a_copy_is_trusted_only_if_its_source_is(run, trust_list, tmp_path):
    bundles.copy_bundle(bundles.read_bundle(run.bundle), tmp_path / "copy.ts", {"run": "other"}, {})
    assert not is_trusted(bundles.read_manifest(tmp_path / "copy.ts")["digest"])
    bundles.load_bundle(run.bundle, trust=True)
    bundles.copy_bundle(bundles.read_bundle(run.bundle), tmp_path / "copy.ts", {"run": "other"}, {})
    assert bundles.load_bundle(tmp_path / "copy.ts")


def test_a_bundle_that_is_only_data_needs_no_trust(builder, trust_list):
    kind = engine_kind("openvino")
    if kind.missing_requirement():
        pytest.skip("OpenVINO is not installed here")
    path = builder.bundle(kind, "fp32")
    trusted = trust_list.read_text() if trust_list.exists() else ""
    assert bundles.read_manifest(path)["digest"] not in trusted
    assert bundles.load_bundle(path)
    assert "only data" in show_bundle(path)


def outcome(path):
    """The errors of reading, showing and loading a bundle; other exceptions are not caught."""
    messages = []
    for use in (bundles.read_manifest, show_bundle, partial(bundles.load_bundle, trust=True)):
        try:
            use(path)
        except UserError as error:
            messages.append(str(error))
    return messages


@pytest.fixture
def facts(run):
    """The manifest of the run's bundle without its digest."""
    manifest = bundles.read_manifest(run.bundle)
    return {name: manifest[name] for name in manifest if name != "digest"}


def test_an_absent_field_is_one_line_that_names_it(run, facts, tmp_path):
    for name in facts:
        rest = {key: value for key, value in facts.items() if key != name}
        bundles.write(TORCHSCRIPT, run.bundle.read_bytes(), {}, rest, tmp_path / "r.ts")
        for message in outcome(tmp_path / "r.ts"):
            assert name in message
            assert len(message) < 300


def test_a_field_of_another_type_is_one_line_or_is_shown(run, facts, tmp_path):
    for number, name in enumerate(facts):
        for value in OTHER_TYPES[number % 3 :: 3]:  # each field gets another third of them
            changed = facts | {name: value}
            bundles.write(TORCHSCRIPT, run.bundle.read_bytes(), {}, changed, tmp_path / "r.ts")
            for message in outcome(tmp_path / "r.ts"):
                assert message.isprintable()
                assert len(message) < 400


@pytest.mark.parametrize("value", ["[" * 100_000, "[]", "7", "null", '{"schema": 6}', "\xff"])
def test_a_manifest_that_is_no_object_of_fields_is_one_line(run, tmp_path, value):
    path = with_manifest(run.bundle, tmp_path / "r.ts", value.encode("latin-1"))
    messages = outcome(path)
    assert len(messages) == 3
    assert all("is a damaged engine bundle" in message for message in messages)


def test_a_manifest_that_unpacks_to_much_takes_no_memory(run, tmp_path):
    path = with_manifest(run.bundle, tmp_path / "r.ts", b" " * 2**28, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 2**25
    tracemalloc.start()
    messages = outcome(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26
    assert all("is a damaged engine bundle" in message for message in messages)
    path = with_manifest(run.bundle, tmp_path / "r.ts", b"{}", zipfile.ZIP_DEFLATED)
    assert all("bundle (manifest.json is compressed)" in message for message in outcome(path))


def test_large_manifests_and_files_are_refused(run, tmp_path):
    path = with_manifest(run.bundle, tmp_path / "r.ts", b" " * 2**21)
    assert all("manifest.json has more than 1048576 bytes" in line for line in outcome(path))
    with open(tmp_path / "large.ts", "wb") as file:
        file.truncate(2**31 + 1)
    too_large = "has 2147483649 bytes; up to 2147483648 are read"
    assert all(too_large in line for line in outcome(tmp_path / "large.ts"))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert all("is not a regular file" in line for line in outcome(tmp_path / "pipe"))


def with_manifest(source, path, text, compression=zipfile.ZIP_STORED):
    """A sealed bundle whose manifest has these bytes."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            is_manifest = name.endswith(bundles.MANIFEST)
            kind = compression if is_manifest else zipfile.ZIP_STORED
            new.writestr(name, text if is_manifest else old.read(name), kind)
        new.comment = b"0" * LENGTH
    path.write_bytes(seal(path.read_bytes()))
    return path
