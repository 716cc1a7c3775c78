"""The kind `onnx`: without torch in the process, on several providers, as a model for Triton."""

import importlib.util
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.depth.exporting.sources import random_source
from tests.processes import run_program
from zoerefine.base.errors import UserError
from zoerefine.base.registries import NETWORKS
from zoerefine.depth.exporting.bundle.bundle import load_bundle, read_manifest, save_bundle
from zoerefine.depth.exporting.bundle.containers import ONNX, fields
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.triton import write_model_repository
from zoerefine.depth.infer import Refiner

kind = engine_kind("onnx")
pytestmark = pytest.mark.skipif(bool(kind.missing_requirement()), reason=kind.missing_requirement())


def bundle_from(source, precision, path):
    """A saved bundle of the source."""
    built = kind.build(source, precision)
    save_bundle(built, {"engine": "onnx", "precision": precision, "torch": "2"}, path)
    return path


def gaps(batch, height, width):
    """Pictures with invalid pixels: an empty part, and single ones."""
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (batch, height, width, 3)).astype(np.uint8)
    zoe = rng.integers(100, 2000, (batch, height, width)).astype(np.uint16)
    zoe[:, : height // 4] = 0
    zoe[rng.random(zoe.shape) < 0.3] = 0
    return rgb, zoe


def by_torch(source, core, rgb, zoe):
    """The outputs of the shipped module with a core."""
    with torch.inference_mode():
        outputs = source.shipped(core).eval()(torch.from_numpy(rgb), torch.from_numpy(zoe))
    return [output.numpy() for output in outputs]


@pytest.mark.numeric
@pytest.mark.parametrize("batch", [1, 2, 16])
def test_every_pixel_is_within_one_unit_of_eager_in_the_smallest_pictures(builder, batch):
    """test_engines.py has larger ones."""
    engine, eager = load_bundle(builder.bundle(kind, "fp32")), builder.eager(torch.device("cpu"))
    rgb, zoe = np.full((batch, 1, 1, 3), 70, np.uint8), np.full((batch, 1, 1), 500, np.uint16)
    with torch.inference_mode():
        expected = eager(torch.from_numpy(rgb), torch.from_numpy(zoe))
    for one, other in zip(engine.arrays(rgb, zoe), expected, strict=True):
        assert (one.dtype, one.shape) == (np.uint16, zoe.shape)
        assert np.abs(one.astype(int) - other.numpy()).max() <= 1


@pytest.mark.numeric
@pytest.mark.parametrize(
    ("network", "precision"),
    [
        *((name, "fp32") for name in NETWORKS if name != "small"),
        ("small", "int8"),
        ("small", "fp16"),
    ],
)
def test_every_network_and_precision_agrees_with_the_same_arithmetic_in_torch(
    tmp_path, network, precision
):
    """One of them without confidence, so that it has one output."""
    source = random_source(network, CONFIDENCE=network != "guided")
    engine = load_bundle(bundle_from(source, precision, tmp_path / "b"))
    assert list(engine.manifest["outputs"]) == ["depth", "spread"][: 1 + (network != "guided")]
    for size in ((24, 32), (48, 64), (37, 51)):
        rgb, zoe = gaps(2, *size)
        expected = by_torch(source, source.core(precision), rgb, zoe)
        changed = np.abs(expected[0].astype(float) - zoe).mean()
        for one, other in zip(engine.arrays(rgb, zoe), expected, strict=True):
            difference = np.abs(one.astype(float) - other).mean()
            assert difference < (0.01 if precision == "fp32" else 0.02 * changed)


def test_the_graph_is_valid_and_holds_no_path_and_int8_weights(tmp_path):
    import onnx

    built = kind.build(random_source("small"), "int8")
    model = onnx.load_from_string(built.content)
    onnx.checker.check_model(model, full_check=True)
    assert str(Path(__file__).parents[3]).encode() not in built.content
    assert b".py" not in built.content
    weights = [one for one in model.graph.initializer if one.data_type == onnx.TensorProto.INT8]
    quantized = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert len([one for one in weights if len(one.dims) == 4]) == len(quantized) > 10
    shapes = [[d.dim_param or d.dim_value for d in one.type.tensor_type.shape.dim]
              for one in (*model.graph.input, *model.graph.output)]  # fmt: skip
    assert shapes == [["B", "H", "W", 3], *[["B", "H", "W"]] * 3]


def test_its_metadata_can_be_read_with_onnx_and_by_the_printed_command(run, command):
    import onnx

    shutil.rmtree(run.engine)  # what an earlier test has built would be used again
    done = command("export", run.path, "--engine", "onnx", "--precision", "fp32")
    path = run.engine / "refiner.onnx"
    assert "ONNX Runtime" in done.err
    assert "computes on CPU, 1 thread" in done.err or torch.get_num_threads() > 1
    metadata = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    card = (run.engine / "MODEL_CARD.md").read_text()
    assert metadata["MODEL_CARD.md"] == card
    assert "zoerefine infer refiner.onnx" in card
    assert metadata["sha256"] == read_manifest(path)["digest"]
    printing = ONNX.print_command(path, "MODEL_CARD.md").replace("python", sys.executable, 1)
    assert run_program(printing, shell=True).stdout.strip() == card.strip()


@pytest.fixture
def exported(run):
    """An exported run's bundle of the kind onnx."""
    from zoerefine.depth.exporting.export import export

    return export(run, "onnx", "fp32")


# A process in which importing torch fails, and is noticed where the failure would be caught.
WITHOUT_TORCH = """
import sys
tried = []
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            tried.append(name)
            raise ImportError("torch is not for this process")
sys.meta_path.insert(0, Refuse())
{code}
assert not tried and "torch" not in sys.modules
print("without torch")
"""


def run_without_torch(code, *words):
    """Run code in such a process; returns its output."""
    done = run_program([sys.executable, "-c", WITHOUT_TORCH.format(code=code), *words])
    assert "without torch" in done.stdout
    return done


def test_refining_arrays_never_imports_torch(exported, tmp_path):
    code = (
        "import numpy as np\nfrom zoerefine.depth.infer import Refiner\n"
        "refiner = Refiner.load(sys.argv[1])\n"
        "rgb, zoe = np.load(sys.argv[2]).values()\n"
        "np.save(sys.argv[3], refiner(rgb, zoe))\n"
        "assert refiner.with_confidence(rgb[0], zoe[0] / 256)[1].dtype == np.float32\n"
    )
    rgb, zoe = gaps(2, 30, 40)
    np.savez(tmp_path / "in.npz", rgb=rgb, zoe=zoe)
    done = run_without_torch(code, exported, tmp_path / "in.npz", tmp_path / "out.npy")
    assert "computes on" in done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), Refiner.load(exported)(rgb, zoe))


def test_the_infer_command_never_imports_torch(exported, world, tmp_path):
    rgb = world / "habitat_sim_DAVIS" / "JPEGImages" / "480p"
    words = ["infer", exported, "--rgb", rgb, "--depth", world / "zoe_depth_raw",
             "--out", tmp_path / "out", "--confidence", "--colors", "--clouds",
             "--picture", tmp_path / "a.png", "--video", tmp_path / "a.mp4"]  # fmt: skip
    done = run_without_torch(
        "from zoerefine.cli import main\nassert main(sys.argv[1:]) == 0\n", *words
    )
    assert "0 left out" in done.stdout
    assert list((tmp_path / "out" / "depth").rglob("*.png"))


def test_an_onnx_runtime_that_cannot_run_the_file_is_one_line():
    with pytest.raises(UserError, match=r"ONNX Runtime .* cannot run this engine: "):
        kind.open_session(b"no model")


@pytest.mark.parametrize(
    ("provider", "words"),
    [("CUDAExecutionProvider", "CUDA"), ("TensorrtExecutionProvider", "TensorRT"),
     ("CPUExecutionProvider", "CPU, 3 threads")],
)  # fmt: skip
def test_the_provider_is_named(monkeypatch, provider, words):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert kind.description("1.31", provider) == f"ONNX Runtime 1.31 computes on {words}"


CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"


@pytest.fixture
def offered(monkeypatch):
    """What ONNX Runtime was asked for where it offers these: offered(providers, broken).

    A broken provider is left out of a session, or its session raises.
    """
    import onnxruntime

    asked = []

    class Session:
        def __init__(self, model, options, providers, enable_fallback):
            names = [one if isinstance(one, str) else one[0] for one in providers]
            asked.append((options.intra_op_num_threads, providers))
            if "raises" in self.broken and names[0] in self.broken:
                raise RuntimeError("a library\nis not there")
            self.names = [name for name in names if name not in self.broken]
            assert enable_fallback == 0  # it prints to standard output

        def get_providers(self):
            return self.names

    def open_one(providers, broken=()):
        asked.clear()
        Session.broken = broken
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
        kind.open_session(b"")
        return asked

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv(kind.ASKED, raising=False)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    return open_one


ALL = [TENSORRT, CUDA, "OtherExecutionProvider", CPU]  # as wheels for GPUs list them


@pytest.mark.parametrize("broken", [(CUDA,), (CUDA, "raises")])
def test_the_first_provider_that_works_is_taken(offered, capsys, broken):
    assert offered([CPU]) == [(2, [CPU])]
    assert offered(ALL) == [(2, [CUDA, CPU])]
    assert kind.precisions() == ("fp16", "fp32", "int8")
    capsys.readouterr()
    assert offered(ALL, broken) == [(2, [CUDA, CPU]), (2, [CPU])]
    left_out, chosen = capsys.readouterr().err.splitlines()
    assert "does not compute on CUDA: " in left_out and chosen.endswith(
        "computes on CPU, 2 threads"
    )


def test_tensorrt_is_taken_if_it_is_asked_for_and_keeps_its_engines(offered, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(kind.ASKED, "tensorrt")
    [(_, [(name, options), *rest])] = offered(ALL)
    assert (name, rest) == (TENSORRT, [CUDA, CPU])
    assert options["trt_engine_cache_enable"] == "1"
    assert options["trt_engine_cache_path"].startswith(f"{tmp_path}/zoerefine/onnx-tensorrt-")
    with pytest.raises(UserError, match=r"cannot run this engine: its libraries are missing or of"):
        offered(ALL, (TENSORRT,))
    with pytest.raises(UserError, match=r"is 'tensorrt'; this machine's ONNX Runtime has cuda, cp"):
        offered([CUDA, CPU])


PLUGIN = """
from zoerefine.depth.exporting.engines import onnx_engine
import onnxruntime
print(onnx_engine.providers(), onnx_engine.rtx_cards())
"""


def test_nvidias_plugin_for_rtx_cards_is_left_out_where_it_cannot_be_loaded(tmp_path):
    """As that of NVIDIA's wheel without a driver."""
    package = tmp_path / kind.PLUGIN
    package.mkdir()
    library = package / "plugin.so"
    library.write_bytes(b"no library")
    code = f"def get_library_path():\n    return {str(library)!r}\n"
    (package / "__init__.py").write_text(code)
    words = [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{PLUGIN}"]
    done = run_program(words)
    assert done.stdout == "['CPUExecutionProvider'] []\n"
    assert f"{kind.PLUGIN} is left out: " in done.stderr and "Traceback" not in done.stderr


def triton_definition():
    """Triton's own definition of model configurations."""
    folder = Path(sys.prefix) / "torch-tensorrt" / "tritonclient"
    path = folder / "grpc" / "model_config_pb2.py"
    if not path.exists():
        pytest.skip("tritonclient is not installed: see requirements-torch-tensorrt.lock")
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_model_for_triton_has_the_names_types_and_sizes_of_the_graph(run, command, tmp_path):
    import onnxruntime

    definition = triton_definition()
    from google.protobuf import text_format

    done = command("export", run.path, "--triton", tmp_path / "models", "--precision", "fp32")
    model = tmp_path / "models" / "refiner"
    assert done.out.splitlines()[-1] == str(model)
    config = text_format.Parse((model / "config.pbtxt").read_text(), definition.ModelConfig())
    assert (config.name, config.backend, config.max_batch_size) == ("refiner", "onnxruntime", 16)
    assert config.HasField("dynamic_batching")
    assert read_manifest(model / "1" / "model.onnx") == read_manifest(run.bundle)
    session = onnxruntime.InferenceSession(
        model / "1" / "model.onnx", providers=["CPUExecutionProvider"]
    )
    types = {definition.TYPE_UINT8: "tensor(uint8)", definition.TYPE_UINT16: "tensor(uint16)"}
    for declared, actual in (
        (config.input, session.get_inputs()),
        (config.output, session.get_outputs()),
    ):
        assert [one.name for one in declared] == [one.name for one in actual]
        for one, other in zip(declared, actual, strict=True):
            assert types[one.data_type] == other.type
            sizes = [size if isinstance(size, int) else -1 for size in other.shape]
            assert [-1, *one.dims] == sizes  # Triton adds the batch


def test_only_onnx_bundles_become_models_for_triton(run, command, tmp_path):
    with pytest.raises(UserError, match="Triton takes bundles of the kind onnx"):
        write_model_repository(run.bundle, tmp_path)
    done = command("export", run.path, "--triton", tmp_path, "--engine", "torchscript", code=2)
    assert "--triton exports the engine onnx" in done.err
    assert not list(tmp_path.glob("refiner*"))


@pytest.mark.parametrize(
    ("data", "fault"),
    [(b"\x08", "within a number"), (b"\x72\x05ab", "within a field"), (b"\x0f", "no field"),
     (b"\x08" + b"\xff" * 11, "without an end")],
)  # fmt: skip
def test_a_damaged_message_is_an_error(data, fault):
    with pytest.raises(ValueError, match=fault):
        list(fields(data))
