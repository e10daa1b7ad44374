"""The parts of `programs/bench.py`."""
