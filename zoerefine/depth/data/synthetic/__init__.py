"""A small synthetic world in HabitatDyn's layout, for tests, demos and CI; never its numbers."""

from zoerefine.depth.data.synthetic.write import synthesize

__all__ = ["synthesize"]
