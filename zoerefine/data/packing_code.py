"""Which code a packed cache was made by."""

import ast
from functools import cache
from inspect import getfile
from pathlib import Path

import cv2
import numpy
import PIL
import simplejpeg

from zoerefine import image_files
from zoerefine.data import decode, depth_codec
from zoerefine.files import digest_json

MODULES = (decode, depth_codec, image_files)  # decide what a record holds
LIBRARIES = (cv2, numpy, PIL, simplejpeg)


@cache
def packing_code() -> str:
    """A digest of the code and library versions that decide records, 16 hex digits.

    Comments and line breaks do not count.
    """
    sources = [ast.unparse(ast.parse(Path(getfile(module)).read_bytes())) for module in MODULES]
    versions = [f"{library.__name__} {library.__version__}" for library in LIBRARIES]
    return digest_json([sources, versions])[:16]
