"""Triton kernels, one file for each operator; only what runs on a GPU imports them.

Each launch function takes what `reference.py` takes and means what it says there. Kernels read
their sizes from `configs`; every `variants` function lists what its file may launch on an
architecture, so that all of it can be compiled ahead of time.
"""
