"""The decoder for CPUs as one function: Numba kernels, with next to nothing between them.

`decoder` is the door. Numba may be missing or of no use here: `ops.why_no_decoder` finds out.
"""
