"""Refiners: networks that correct metric depth."""
