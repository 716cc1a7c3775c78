"""Writes a synthetic world in HabitatDyn's layout; the same settings give the same bytes."""

import glob
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing_folder, write_json
from zoerefine.base.files.file_lock import lock
from zoerefine.base.files.images import check_pixels, jpeg_bytes, png_bytes
from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.messages import say
from zoerefine.base.progress import bar
from zoerefine.depth.data.depth_codec import HABITATDYN, ZOEDEPTH
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.data.networks.pseudo_source import SYNTHETIC, write_source
from zoerefine.depth.data.synthetic import world
from zoerefine.depth.data.synthetic.errors import (
    ClipErrors,
    SceneErrors,
    clip_errors,
    pseudo_depth,
    scene_errors,
)
from zoerefine.depth.data.synthetic.render import SyntheticCamera, render

VERSION = 1
STRIDE = 4  # every fourth frame at 24 Hz, so that short clips show motion
SEMANTIC = "habitat_sim_DAVIS/Annotations/480p"
STATS = "stats_info/480p"
FIELDS = (
    habitatdyn.RGB, SEMANTIC, habitatdyn.DEPTH, habitatdyn.OBJECTS, habitatdyn.ZOE, STATS
)  # fmt: skip
SENSOR_NOISE = 3.0  # standard deviation, of 255
JPEG_QUALITY = 95


@dataclass(frozen=True)
class ClipPlan:
    """Everything that the frames of one clip are computed from."""

    name: str
    title: str
    speed: int
    scene: world.Scene
    errors: SceneErrors
    drifts: ClipErrors
    movers: tuple[world.Mover, ...]
    poses: list[world.Pose]
    seed: tuple[int, ...]


def synthesize(
    root: str | Path,
    scenes: int,
    clips: int,
    frames: int,
    seed: int,
    height: int = 480,
    width: int = 640,
    workers: int = 0,
    family_b_scenes: int = 0,
) -> None:
    """Write a world, or keep the one at `root` if it has the same settings.

    The whole world appears at once, by a rename. What an earlier writer left when it was killed is
    removed; another writer of `root` that still runs is waited for.

    Args:
        scenes, clips, frames: number of scenes, of clips in a scene, of frames in a clip.
        height, width: of the pictures, pixels.
        workers: threads; 0: one a core.
        family_b_scenes: how many of the last scenes have errors of the second family.

    Raises:
        UserError: impossible numbers, or something else at `root`.
    """
    root = Path(root)
    if min(scenes, clips, frames) < 1 or clips > habitatdyn.CLIPS_PER_SCENE:
        raise UserError(
            f"a world has 1 or more scenes, 1 or more frames a clip and 1 to "
            f"{habitatdyn.CLIPS_PER_SCENE} clips a scene; got {scenes}, {frames} and {clips}"
        )
    if not root.name:
        raise UserError(f"{root} cannot be replaced by a world: name a folder, as data/synthetic")
    check_pixels(width, height, "a frame")
    settings = {
        "what": "a synthetic world in HabitatDyn's layout; its numbers say nothing of HabitatDyn",
        "version": VERSION,
        "seed": seed,
        "scenes": {
            f"scene{k:02d}": "b" if k >= scenes - family_b_scenes else "a" for k in range(scenes)
        },
        "clips": clips,
        "frames": frames,
        "height": height,
        "width": width,
    }
    if exists(root, settings):
        say(f"using the synthetic world in {root}")
        return
    lock_file = root.with_name(f".{root.name}.lock")
    with lock(lock_file):
        try:
            if exists(root, settings):  # another process has written it meanwhile
                return
            remove_leftovers(root)
            camera = SyntheticCamera(height, width)
            write_settings(root, settings, camera, workers or usable_cores())
        finally:
            lock_file.unlink(missing_ok=True)


def remove_leftovers(root: Path) -> None:
    """Remove the temporary folders of killed writers of `root` that hold only what we write."""
    ours = {Path(name).parts[0] for name in (habitatdyn.TITLES, habitatdyn.SYNTHETIC_MARK, *FIELDS)}
    half_written = f".{habitatdyn.SYNTHETIC_MARK}."
    for folder in root.parent.glob(f".{glob.escape(root.name)}.????????.tmp"):
        if folder.is_symlink() or not folder.is_dir():
            continue
        names = (path.name for path in folder.iterdir())
        if all(name in ours or name.startswith(half_written) for name in names):
            shutil.rmtree(folder)


def write_settings(
    root: Path, settings: dict[str, Any], camera: SyntheticCamera, workers: int
) -> None:
    """Write the world of these settings."""
    with replacing_folder(root) as folder:
        plans = [
            plan_clip(settings["seed"], scene, clip, settings["frames"], family)
            for scene, family in enumerate(settings["scenes"].values())
            for clip in range(settings["clips"])
        ]
        write_world(folder, plans, camera, workers)
        write_source(folder / habitatdyn.ZOE, SYNTHETIC)
        write_json(folder / habitatdyn.SYNTHETIC_MARK, settings)


def exists(root: Path, settings: dict[str, Any]) -> bool:
    """Whether the world of these settings is at `root`.

    Raises `UserError` where something else is.
    """
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    mark = root / habitatdyn.SYNTHETIC_MARK
    with suppress(OSError, ValueError):
        if json.loads(mark.read_text(encoding="utf-8")) == settings:
            return True
    raise UserError(f"{root} holds something else: delete it, or choose another folder")


def plan_clip(seed: int, scene_number: int, clip: int, frames: int, family: str) -> ClipPlan:
    """Draw a clip's motion and errors; each clip has its own random numbers."""
    scene = world.make_scene(seed, scene_number)
    number = scene_number * habitatdyn.CLIPS_PER_SCENE + clip
    rng = np.random.default_rng([seed, scene_number, clip])
    movers = world.make_movers(rng, scene.size, int(rng.choice([3, 6])))
    speed = int(rng.integers(1, 4))
    kinds = sorted({mover.kind for mover in movers})
    return ClipPlan(
        name=f"{number:04d}",
        title=f"scene{scene_number:02d}_{'_'.join(kinds)}_{len(movers)}_{speed}",
        speed=speed,
        scene=scene,
        errors=scene_errors(np.random.default_rng([seed, scene_number, 0, 1]), family),
        drifts=clip_errors(rng, frames, STRIDE),
        movers=movers,
        poses=world.camera_path(rng, scene, frames, STRIDE),
        seed=(seed, scene_number, clip),
    )


def write_world(root: Path, plans: list[ClipPlan], camera: SyntheticCamera, workers: int) -> None:
    """Render and write all clips, in parallel."""
    titles = "".join(f"{plan.name}\t{plan.title}\n" for plan in plans)
    (root / habitatdyn.TITLES).write_text(titles, encoding="utf-8")
    for plan in plans:
        for field in FIELDS:
            (root / field / plan.name).mkdir(parents=True)
        names = {"0": "background"} | {str(i): m.kind for i, m in enumerate(plan.movers, 1)}
        write_json(root / STATS / plan.name / "semantic_id_to_name.json", names)
    jobs = [(plan, frame) for plan in plans for frame in range(len(plan.poses))]
    with bar(len(jobs), "synthesizing", "frame") as progress, ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(lambda job: write_frame(root, camera, *job), jobs):
            progress.update()


def write_frame(root: Path, camera: SyntheticCamera, plan: ClipPlan, frame: int) -> None:
    """Render one frame and write its five files."""
    rng = np.random.default_rng([*plan.seed, frame])
    seconds = frame * STRIDE / world.FRAME_RATE
    solids = [world.place(mover, seconds, plan.speed) for mover in plan.movers]
    view = render(camera, plan.scene, plan.poses[frame], solids)
    noise = rng.standard_normal(view.rgb.shape, np.float32)
    rgb = np.clip(view.rgb + SENSOR_NOISE * noise, 0, 255).astype(np.uint8)
    zoe_m = pseudo_depth(view.depth_m, rgb, view.ids, plan.errors, plan.drifts, frame, rng)
    name = f"{frame:05d}"
    rgb_path = root / habitatdyn.RGB / plan.name / f"{name}.jpg"
    rgb_path.write_bytes(jpeg_bytes(rgb, JPEG_QUALITY))
    for field, pixels in (
        (SEMANTIC, (view.ids > 0).astype(np.uint8)),
        (habitatdyn.DEPTH, HABITATDYN.encode(view.depth_m)),
        (habitatdyn.OBJECTS, view.ids),
        (habitatdyn.ZOE, ZOEDEPTH.encode(zoe_m)),
    ):
        # The whole world is published by one rename, so a file need not be.
        (root / field / plan.name / f"{name}.png").write_bytes(png_bytes(pixels))
