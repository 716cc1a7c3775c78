"""From files to batches on the device: layouts, packed cache, loader, prefetcher."""

ZOEDEPTH_MODEL = "Intel/zoedepth-nyu-kitti"  # the usual one, on the Hugging Face hub

# What other packages import from here; the rest is this package's own.
OPEN = (
    "area_mean",
    "cache",
    "dataset",
    "depth_codec",
    "depth_unit",
    "frame_names",
    "inspect",
    "intrinsics",
    "layouts",
    "loading",
    "metric_points",
    "networks",
    "split",
    "synthetic",
)
