"""The cache: which tokens are known, which are computed, and which pool slots they fill.

`radix_tree` owns the paths, `page_pool` the ledger of pages, `eviction` the order of giving up.
Nothing here imports torch; tensors live in `runtime.model.kv_pool`.
"""
