"""What predicted pseudo depth: it is stated beside the files and travels into the packed cache."""

import json
import os
import shutil

import numpy as np
import pytest

from tests.depth.data.conftest import constant_network
from zoerefine.base.errors import UserError
from zoerefine.depth.data.cache.cache import open_cache, write_header
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.inspect.inspection import inspect
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.networks import pseudo_source as source
from zoerefine.depth.data.networks.add_pseudo import add_pseudo_depth

ZOE = "zoe_depth_raw"


def state(folder, **facts):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pseudo.json").write_text(json.dumps(facts))


def pack(root, folder):
    return build_cache(open_dataset(root), 24, 32, folder)


def test_the_nearest_pseudo_json_above_a_file_states_its_source(tmp_path):
    state(tmp_path, name="outer", digest="o")
    state(tmp_path / "a" / "b", name="inner", digest="i")
    outer, inner = source.PseudoSource("outer", "o"), source.PseudoSource("inner", "i")
    assert source.source_of(tmp_path / "a") == outer
    assert source.source_of(tmp_path / "a" / "b" / "c") == inner  # a folder that is not there yet
    files = [tmp_path / "a" / "0.png", tmp_path / "a" / "b" / "0.png"]
    assert source.sources_of(files) == {outer, inner}


def test_a_pipe_in_the_place_of_the_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pseudo.json")
    with pytest.raises(UserError, match="is not a regular file"):
        source.source_of(tmp_path)


def test_names_are_compared_where_a_digest_is_unknown():
    assert source.PseudoSource("a", "1").is_like(source.PseudoSource("b", "1"))
    assert not source.PseudoSource("a", "1").is_like(source.PseudoSource("a", "2"))
    assert source.PseudoSource("a", "1").is_like(source.PseudoSource("a"))
    assert not source.PseudoSource("a").is_like(source.PseudoSource("b"))


def test_the_source_travels_into_the_cache_and_its_digest(copied_world, tmp_path):
    synthetic = pack(copied_world, tmp_path / "caches")
    assert synthetic.pseudo == open_cache(synthetic.folder).pseudo == source.SYNTHETIC
    state(copied_world / ZOE, name="my network", digest="1234")
    named = pack(copied_world, tmp_path / "caches")
    assert named.pseudo == source.PseudoSource("my network", "1234")
    assert named.pseudo_label == "my network"
    assert "  my network: AbsRel" in inspect(open_dataset(copied_world))[0]
    (copied_world / ZOE / "pseudo.json").unlink()
    unknown = pack(copied_world, tmp_path / "caches")
    assert unknown.pseudo == source.UNKNOWN
    assert len({one.digest for one in (synthetic, named, unknown)}) == 3
    np.testing.assert_array_equal(synthetic.read(3)["zoe"], unknown.read(3)["zoe"])


def test_a_cache_of_an_earlier_version_is_of_an_unknown_network(copied_world, tmp_path):
    (copied_world / ZOE / "pseudo.json").unlink()
    cache = pack(copied_world, tmp_path / "caches")
    header = json.loads((cache.folder / "cache.json").read_text())
    later = ("pseudo", "schema", "header_sha256", "frames_sha256")
    write_header(cache.folder, {name: header[name] for name in header if name not in later})
    again = pack(copied_world, tmp_path / "caches")  # it has the same digest, so it is opened
    assert (again.folder, again.pseudo) == (cache.folder, source.UNKNOWN)


def test_a_data_set_of_two_networks_is_refused_unless_its_scenes_are_of_one(
    copied_world, tmp_path, data_command, refused, tiny
):
    state(copied_world / ZOE / "0054", name="other", digest="1")
    words = ["pack", "--config", tiny, "DATA.ROOT", copied_world]
    assert "mixes pseudo depth of other (1) and of synthetic" in refused(*words)
    report = data_command("inspect", copied_world)
    assert "network of the pseudo depth: other (1), synthetic (" in report.out
    data_command(*words, "DATA.SCENES", "[scene00, scene02, scene03]")


def test_a_complete_set_names_the_network_that_made_it(copied_world, data_command):
    """No network is loaded then, so it may be another than the one that was asked for."""
    done = data_command("pseudo", copied_world, "--model", "no/such-network")
    assert "0 of 16 frames got pseudo depth, the others had it, of: synthetic (" in done.out


def test_unknown_parts_make_the_whole_unknown(copied_world, tmp_path, capsys):
    (copied_world / ZOE / "pseudo.json").unlink()
    state(copied_world / ZOE / "0054", name="other", digest="1")
    assert pack(copied_world, tmp_path / "caches").pseudo == source.UNKNOWN
    assert "a part of the pseudo depth is of other (1), the rest" in capsys.readouterr().err


@pytest.mark.parametrize("text", [
    "[1]", "{}", '{"name": 3}', "{", '{"digest": "1"}', '{"name": "  "}',
    '{"name": "' + 1000 * "n" + '"}',
])  # fmt: skip
def test_a_pseudo_json_that_states_no_network_is_one_line(copied_world, text, refused):
    (copied_world / ZOE / "pseudo.json").write_text(text)
    line = refused("inspect", copied_world)
    assert "pseudo.json" in line and len(line) < 500


def test_a_networks_depth_is_never_mixed_with_that_of_another(copied_world):
    shutil.rmtree(copied_world / ZOE / "0054")
    dataset = open_dataset(copied_world)
    with pytest.raises(UserError, match=r"has pseudo depth of synthetic .*, which constant \(c0\)"):
        add_pseudo_depth(dataset, constant_network(), 4)
    assert not (copied_world / ZOE / "0054").exists()
    (copied_world / ZOE / "pseudo.json").unlink()
    assert add_pseudo_depth(dataset, constant_network(), 4) == 4
    assert source.source_of(copied_world / ZOE / "0054") == source.PseudoSource("constant", "c0")
    assert source.source_of(copied_world / ZOE / "0000") == source.UNKNOWN


def test_a_folder_with_files_of_unknown_origin_stays_unknown(copied_world, capsys):
    (copied_world / ZOE / "pseudo.json").unlink()
    (copied_world / ZOE / "0054" / "00002.png").unlink()
    assert add_pseudo_depth(open_dataset(copied_world), constant_network(), 4) == 1
    assert source.source_of(copied_world / ZOE / "0054") == source.UNKNOWN
    assert "has files of an unknown network" in capsys.readouterr().err
