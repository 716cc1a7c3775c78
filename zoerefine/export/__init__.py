"""From a run to one file that runs the refiner: engines, bundles, verification."""
