"""zoerefine: make, ship and compare networks that mend ZoeDepth metric depth."""

__version__ = "0.1.0"
