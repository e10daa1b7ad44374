"""Scheduling: who waits, who runs, and what the next step computes. Torch-free."""
