"""From a cache to batches on the device: order, gathering, tiers, prefetching, augmentation."""

# What other packages import from here; the rest is this package's own.
OPEN = ("augment", "batches", "loader", "prefetch", "sampler", "tiers")
