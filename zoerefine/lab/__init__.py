"""The laboratory: any script of any commit becomes a run that can be compared and repeated.

It knows git, processes and runs. It never imports zoerefine.depth, nor torch when it is imported.
"""
