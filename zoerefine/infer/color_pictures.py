"""colors/NAME.png: refined depth in colours, all frames in one range."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from zoerefine.data.decode import read_zoe
from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.image_files import png_text, write_png
from zoerefine.infer.depth_range import DepthRange
from zoerefine.infer.results import BUNDLE, COMMIT, INPUTS, ResultFolder, has_provenance
from zoerefine.own_files import refuse_foreign
from zoerefine.pictures import depth_colors
from zoerefine.processor_use import usable_cores
from zoerefine.progress import track


def write_colors(results: ResultFolder, done: Iterable[str], shown: DepthRange) -> None:
    """Write the colour picture of every finished frame that has none of this range yet.

    Raises `UserError` where another program's file is there.
    """
    names = sorted(done)
    with ThreadPoolExecutor(usable_cores()) as pool:
        written = pool.map(lambda name: write_color_picture(results, name, shown), names)
        list(track(written, len(names), "colouring", "frame"))


def write_color_picture(results: ResultFolder, name: str, shown: DepthRange) -> None:
    """Write one picture, with the provenance of the depth that it shows."""
    path, depth = results.colors(name), results.depth(name)
    origin = {key: text for key, text in png_text(depth).items() if key in (BUNDLE, COMMIT, INPUTS)}
    provenance = origin | {"colors": f"viridis, {shown}"}
    if has_provenance(path, provenance):
        return
    refuse_foreign([path], "--out")
    depth_m = read_zoe(depth) * ZOE_UNIT_M
    write_png(path, depth_colors(depth_m, shown.far_m, shown.near_m), provenance)
