"""From files to batches on the device: readers, packed cache, loader, prefetch."""
