"""Depth that is corrected: frames, cache, loader, refiner, engine bundle, refined depth.

Its trainings and searches are runs of zoerefine.lab.
"""
