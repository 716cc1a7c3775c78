"""From files to batches on the device: layouts, packed cache, loader, prefetcher."""

ZOEDEPTH_MODEL = "Intel/zoedepth-nyu-kitti"  # the usual one, on the Hugging Face hub
