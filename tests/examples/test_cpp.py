"""The C++ example: built against the installed torch, it returns what Python returns."""

import ctypes
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from tests.depth.exporting.substitute_engine import compiled_substitute, embed
from tests.processes import run_program
from zoerefine.base.files.atomic import digest_file, digest_json
from zoerefine.depth.exporting.bundle.bundle import load_bundle, read_manifest

FILES = ["BUNDLE", "rgb.ppm", "zoe.pgm", "out.pgm"]
SOURCES = Path(__file__).resolve().parents[2] / "examples" / "cpp"


PROGRAMS = ("refine", "refine_pt2")
IN_OPEN, EVENT_BYTES = 0x20, 16  # of a watched file, whose events carry no name


@pytest.fixture(scope="module")
def programs(request):
    """The examples, built as the first lines of CMakeLists.txt say; kept in pytest's cache."""
    for tool in ("cmake", "c++"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool} on this machine: apt-get install cmake g++")
    if not (Path(torch.__file__).parent / "include" / "torch" / "script.h").exists():
        pytest.skip("the installed torch has no C++ headers")
    sources = [digest_file(path) for path in sorted(SOURCES.iterdir())]
    digest = digest_json([torch.__version__, torch.__file__, *sources])[:16]
    build = Path(request.config.cache.mkdir("cpp-example")) / digest
    built = [build / name for name in PROGRAMS]
    if all(path.exists() for path in built):
        return built
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (
        ["cmake", "-S", SOURCES, "-B", build, "-DCMAKE_BUILD_TYPE=Release", prefix],
        ["cmake", "--build", build, "--parallel", "2"],
    ):
        run_program(command)
    return built


@pytest.fixture
def program(programs):
    """The program for torchscript and tensorrt bundles."""
    return programs[0]


@pytest.fixture
def pt2_program(programs):
    """The program for aoti bundles."""
    return programs[1]


@pytest.fixture
def bundle(exported_run):
    """A torchscript bundle, which libtorch runs without Python."""
    return exported_run.bundle


@pytest.fixture
def frame(tmp_path):
    """A picture and its depth as netpbm files, and as arrays."""
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (50, 70, 3)).astype(np.uint8)
    zoe = rng.integers(100, 4000, (50, 70)).astype(np.uint16)
    zoe[:5] = 0
    assert cv2.imwrite(str(tmp_path / "rgb.ppm"), rgb[..., ::-1])
    assert cv2.imwrite(str(tmp_path / "zoe.pgm"), zoe)
    return rgb, zoe


def run(program, folder, *words, code=0, env=None):
    # As many threads as here: the order of summation depends on it.
    env = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())} | (env or {})
    return run_program([program, *words], code, cwd=folder, env=env)


def error_of(program, folder, *words, env=None):
    """What it prints when it fails: one line."""
    done = run(program, folder, *words, code=2, env=env)
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def check_output(program, bundle, frame, folder, *more):
    """The program's results are those of Python, bit by bit."""
    done = run(program, folder, bundle, "rgb.ppm", "zoe.pgm", "refined.pgm", *more)
    assert done.stderr == ""
    rgb, zoe = frame
    expected = load_bundle(bundle).arrays(rgb[None], zoe[None])
    for name, output in zip(("refined.pgm", "refined.pgm.confidence.pgm"), expected, strict=True):
        found = cv2.imread(str(folder / name), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(found, output[0])


def test_its_output_is_bit_exact_with_pythons(program, bundle, frame, tmp_path):
    check_output(program, bundle, frame, tmp_path)


def test_an_aoti_bundle_gives_the_same_bits_as_in_python(pt2_program, aoti_bundle, frame, tmp_path):
    check_output(pt2_program, aoti_bundle, frame, tmp_path)


def test_a_bundle_with_a_tensorrt_engine_runs_once_the_runtime_is_loaded(
    program, frame, tmp_path, request
):
    """A substitute takes the place of Torch-TensorRT's runtime and engine."""
    runtime = compiled_substitute(request.config.cache)
    torch.ops.load_library(runtime)
    bundle = embed(tmp_path / "r.ts")
    words = (bundle, "rgb.ppm", "zoe.pgm", "refined.pgm", "cpu")
    done = run(program, tmp_path, *words, code=2)
    assert "Unknown type name '__torch__.torch.classes.tensorrt.Engine'" in done.stderr
    assert run(program, tmp_path, *words, runtime).stderr == ""
    refined = cv2.imread(str(tmp_path / "refined.pgm"), cv2.IMREAD_UNCHANGED)
    rgb, zoe = frame
    np.testing.assert_array_equal(refined, load_bundle(bundle)(rgb[None], zoe[None])[0])


def test_a_package_with_a_tensorrt_engine_runs_once_the_runtime_is_loaded(
    pt2_program, tensorrt_pt2_bundles, frame, tmp_path, request
):
    bundle = tensorrt_pt2_bundles / "2.pt2"
    runtime = compiled_substitute(request.config.cache)
    torch.ops.load_library(runtime)
    check_output(pt2_program, bundle, frame, tmp_path, runtime)
    line = error_of(pt2_program, tmp_path, bundle, "rgb.ppm", "zoe.pgm", "refined.pgm")
    assert "2.pt2: " in line and "torch.classes.tensorrt.Engine" in line


@contextmanager
def counted_openings(path):
    """A list that has, at the end, as many items as the file was opened meanwhile (inotify(7))."""
    libc, found = ctypes.CDLL(None, use_errno=True), []
    events = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(events, os.fsencode(path), IN_OPEN) >= 0
    yield found
    with suppress(BlockingIOError):
        while True:
            found += [None] * (len(os.read(events, EVENT_BYTES * 100)) // EVENT_BYTES)
    os.close(events)


@pytest.mark.parametrize("number", [0, 1], ids=PROGRAMS)
def test_a_bundle_is_read_once_verified_and_only_loaded_if_it_is_trusted(
    programs, request, frame, tmp_path, number
):
    """So what is verified and trusted is what is loaded, whatever replaces the file meanwhile."""
    bundle = shutil.copy(request.getfixturevalue(("bundle", "aoti_bundle")[number]), tmp_path / "b")
    digest = read_manifest(bundle)["digest"]
    words = programs[number], tmp_path, bundle, "rgb.ppm", "zoe.pgm", "refined.pgm"
    with counted_openings(bundle) as openings:
        run(*words)
    assert len(openings) == 1

    trusted = tmp_path / "trusted.txt"
    env = {"ZOEREFINE_TRUSTED": str(trusted)}
    assert f"add the line {digest} to {trusted}" in error_of(*words, env=env)
    trusted.write_text(f"{digest[:-1]}0 x\n{digest}\n")
    run(*words, env=env)

    data = bytearray(bundle.read_bytes())
    altered = f"error: {bundle} is no engine bundle, or was altered after it was built\n"
    for place in (0, len(data) // 2, len(data) - 65, len(data) - 1):
        data[place] ^= 1
        bundle.write_bytes(data)
        data[place] ^= 1
        assert error_of(*words) == altered


@pytest.mark.parametrize("number", [0, 1], ids=PROGRAMS)
def test_a_pipe_and_a_folder_are_one_line(programs, frame, tmp_path, number):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        line = error_of(programs[number], tmp_path, path, "rgb.ppm", "zoe.pgm", "out.pgm")
        assert line == f"error: {path} is not a regular file that can be read\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_one_line(program, bundle, frame, tmp_path):
    line = error_of(program, tmp_path, bundle, "rgb.ppm", "zoe.pgm", "out.pgm", "cuda")
    assert line == "error: cuda: this machine, or the libtorch in use, has no GPU\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.ts", "rgb.ppm", "zoe.pgm", "out.pgm"], "error: absent.ts: "),
        (["BUNDLE", "absent.ppm", "zoe.pgm", "out.pgm"], "error: absent.ppm cannot be read"),
        (["BUNDLE", "zoe.pgm", "zoe.pgm", "out.pgm"], "error: zoe.pgm is not of kind P6 255"),
        (["BUNDLE", "cut.ppm", "zoe.pgm", "out.pgm"], "error: cut.ppm is cut short"),
        (["BUNDLE", "text.ppm", "zoe.pgm", "out.pgm"], "text.ppm has bytes beyond its pixels"),
        (["BUNDLE", "huge.ppm", "zoe.pgm", "out.pgm"], "error: huge.ppm is cut short"),
        (["BUNDLE", "small.ppm", "small.pgm", "/dev/full"], "error: /dev/full cannot be written"),
        (["BUNDLE", "small.ppm", "zoe.pgm", "out.pgm"], "small.ppm and zoe.pgm differ in size"),
        (["BUNDLE", "rgb.ppm", "zoe.pgm", "no/out.pgm"], "error: no/out.pgm cannot be written"),
        (["BUNDLE"], "usage: refine BUNDLE RGB.ppm ZOE.pgm REFINED.pgm [DEVICE [RUNTIME]]"),
        ([*FILES, "tpu"], "error: unknown device tpu: cpu, cuda or cuda:1"),
        ([*FILES, "cpu", "absent.so"], "error: absent.so: cannot open shared object file"),
    ],
)
def test_its_errors_are_one_line(program, bundle, frame, tmp_path, words, message):
    (tmp_path / "cut.ppm").write_bytes((tmp_path / "rgb.ppm").read_bytes()[:-100])
    (tmp_path / "text.ppm").write_bytes(b"P6\r\n1 1\r\n255\r\nRGB")  # of Windows
    (tmp_path / "huge.ppm").write_bytes(b"P6 9999999999 9999999999 255\nRGB")
    cv2.imwrite(str(tmp_path / "small.ppm"), np.zeros((4, 4, 3), np.uint8))
    cv2.imwrite(str(tmp_path / "small.pgm"), np.full((4, 4), 600, np.uint16))
    words = (bundle if word == "BUNDLE" else word for word in words)
    assert message in error_of(program, tmp_path, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.pt2", "rgb.ppm", "zoe.pgm", "out.pgm"], "error: absent.pt2: "),
        (["rgb.ppm", "rgb.ppm", "zoe.pgm", "out.pgm"], "error: rgb.ppm is no engine bundle"),
        (["absent.pt2", "zoe.pgm", "zoe.pgm", "out.pgm"], "error: zoe.pgm is not of kind P6 255"),
        (["absent.pt2"], "usage: refine_pt2 BUNDLE RGB.ppm ZOE.pgm REFINED.pgm"),
    ],
)
def test_errors_with_packages_are_one_line(pt2_program, frame, tmp_path, words, message):
    assert message in error_of(pt2_program, tmp_path, *words)
