"""Kernels of these tests are kept like the others: they take a minute to compile."""

from __future__ import annotations

from ramet.kernels.cpu import fused
from ramet.runtime.config import cache_dir

collect_ignore_glob = ["test_*.py"] if fused.prepare(cache_dir() / "kernels") else []
