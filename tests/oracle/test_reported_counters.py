"""What `Runtime` reports, prompt ids and counters, adds up to the same account."""

from __future__ import annotations

from oracle import Trie

from ramet.runtime.runtime import Runtime


def test_the_reported_ids_of_a_runtime_add_up() -> None:
    """As a user sees it: `meta` alone tells what had to be computed."""
    trie = Trie()
    with Runtime(model="tiny", dtype="float64", isolation="thread", pool_tokens=4096) as runtime:
        text = "Q: what grows on the tree by the gate?\nA: pears\n" * 2
        prompts = [f"{text}Q: number {i}?\nA:" for i in range(40)]
        results = runtime.generate(prompts, {"max_tokens": 6, "temperature": 0, "ignore_eos": True})
        for result in results:
            trie.demand(result["meta"]["prompt_token_ids"])
        for result in results:
            meta = result["meta"]
            trie.demand([*meta["prompt_token_ids"], *meta["output_token_ids"][:-1]], sampled=True)
        stats = runtime.stats()
    assert (stats["edge_tokens"], stats["decode_tokens"]) == (trie.edges, trie.decodes)
    assert stats["computed_tokens"] == trie.edges + trie.decodes
    assert stats["recomputed_tokens"] == 0
    assert sum(result["meta"]["prompt_tokens"] for result in results) == stats["prompt_tokens"]
    charged = sum(r["meta"]["prompt_tokens"] - r["meta"]["cached_tokens"] for r in results)
    assert charged == trie.edges
