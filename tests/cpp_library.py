"""Small C++ libraries that tests load, compiled against the installed torch's headers."""

import shutil
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths, library_paths

from tests.processes import run_program
from zoerefine.base.files.atomic import digest_file, digest_json, replacing


def compiled_library(source, cache):
    """The library of a C++ file; kept in pytest's cache."""
    if shutil.which("g++") is None:
        pytest.skip(f"no g++ on this machine, which compiles {source.name}")
    digest = digest_json([torch.__version__, torch.__file__, digest_file(source)])[:16]
    path = Path(cache.mkdir(f"cpp-{source.stem}")) / f"{digest}.so"
    if not path.exists():
        folders = [f"-I{folder}" for folder in include_paths()]
        flags = ["-std=c++20", "-O0", "-fPIC", "-shared"]
        libraries = [*(f"-L{folder}" for folder in library_paths()), "-ltorch_cpu", "-lc10"]
        with replacing(path) as temporary:
            words = ["g++", *flags, *folders, source, "-o", temporary, *libraries]
            run_program(words)
    return path
