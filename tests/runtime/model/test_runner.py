"""The whole forward pass against transformers, however the rows are cut into batches."""

from __future__ import annotations

import collections
import random

import pytest
import torch

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights

SLOTS = 1024


def make(config, dtype=torch.float64):
    spec = ModelSpec.from_config(config)
    weights = tiny_weights(spec, dtype=torch.float64, seed=7)
    runner = ModelRunner(spec, weights, num_slots=SLOTS, dtype=dtype, device="cpu")
    return runner, weights


def ids(count, vocab, seed=0):
    source = random.Random(seed)
    return [source.randrange(vocab) for _ in range(count)]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=["f64", "f32"]
)
def test_logits_equal_transformers(family_config, forest, hf_logits, dtype, tolerance):
    runner, weights = make(family_config, dtype)
    prompt = ids(70, runner.vocab_size)
    (expected,) = hf_logits(family_config, weights, dtype, prompt)

    trees = forest(SLOTS)
    whole = trees.grow(None, prompt)
    runner.forward(trees.batch([(whole, 0, len(prompt))]))
    logits = runner.logits(whole.slots)
    assert logits.dtype == dtype
    assert logits.std() > 0.5
    torch.testing.assert_close(logits, expected, rtol=tolerance, atol=tolerance * 3)

    chunked = trees.grow(None, prompt)
    for start in range(0, len(prompt), 7):
        runner.forward(trees.batch([(chunked, start, min(start + 7, len(prompt)))]))
    torch.testing.assert_close(
        runner.logits(chunked.slots), expected, rtol=tolerance, atol=tolerance * 3
    )


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=["f64", "f32"]
)
@pytest.mark.parametrize("page_size", [1, 4])
def test_tree_in_one_batch_equals_transformers(
    family_config, forest, hf_logits, dtype, tolerance, page_size
):
    runner, weights = make(family_config, dtype)
    vocab = runner.vocab_size
    trees = forest(SLOTS, page_size=page_size, seed=3)
    root = trees.grow(None, ids(21, vocab, 1))
    left = trees.grow(root, ids(9, vocab, 2))
    leaf = trees.grow(left, ids(5, vocab, 3))
    right = trees.grow(root, ids(13, vocab, 4))
    other = trees.grow(None, ids(6, vocab, 5))
    runner.forward(
        trees.batch([(n, 0, len(n.token_ids)) for n in (root, left, leaf, right, other)])
    )
    ends = (leaf, right, other)
    expected = hf_logits(family_config, weights, dtype, *(node.path() for node in ends))
    for node, wanted in zip(ends, expected, strict=True):
        slots = [slot for above in node.lineage() for slot in above.slots]
        torch.testing.assert_close(runner.logits(slots), wanted, rtol=tolerance, atol=tolerance * 3)


def test_decode_rows_beside_a_prefill_chunk(forest):
    runner, _ = make(tiny_config())
    trees = forest(SLOTS)
    root = trees.grow(None, ids(40, 259, 1))
    runner.forward(trees.batch([(root, 0, 40)]))
    tails = [trees.grow(root, ids(6, 259, 10 + i)) for i in range(12)]
    fresh = trees.grow(None, ids(18, 259, 2))
    for step in range(6):
        rows = [(tail, step, step + 1) for tail in tails]
        runner.forward(trees.batch([*rows, (fresh, step * 3, step * 3 + 3)]))
    for node in [*tails, fresh]:
        alone = trees.grow(None, node.path())
        runner.forward(trees.batch([(alone, 0, len(alone.token_ids))]))
        start = len(alone.slots) - len(node.slots)
        torch.testing.assert_close(
            runner.logits(node.slots), runner.logits(alone.slots[start:]), rtol=1e-10, atol=1e-10
        )


def test_a_shared_segment_is_read_once_per_layer(forest):
    runner, _ = make(tiny_config())
    trees = forest(SLOTS, page_size=SLOTS)
    root = trees.grow(None, ids(30, 259))
    runner.forward(trees.batch([(root, 0, 30)]))
    tails = [trees.grow(root, [i]) for i in range(20)]
    runner.gathered = []
    runner.forward(trees.batch([(tail, 0, 1) for tail in tails]))
    reads = collections.Counter(runner.gathered)
    layers = tiny_config()["num_hidden_layers"]
    assert reads[root.slots[0], 30] == layers
    assert sum(length for (_, length), n in reads.items() for _ in range(n)) == layers * 50


def test_logits_of_old_rows_do_not_change(forest):
    runner, _ = make(tiny_config(), torch.float32)
    trees = forest(SLOTS)
    root = trees.grow(None, ids(17, 259))
    runner.forward(trees.batch([(root, 0, 17)]))
    before = runner.logits([root.slots[-1]])
    for i in range(5):
        child = trees.grow(root, ids(8, 259, i))
        runner.forward(trees.batch([(child, 0, 8)]))
    assert torch.equal(runner.logits([root.slots[-1]]), before)


@pytest.mark.parametrize("rows", [1, 3])
def test_logits_belong_to_the_caller(forest, rows):
    runner, _ = make(tiny_config(), torch.float32)
    trees = forest(SLOTS)
    root = trees.grow(None, ids(4, 259))
    runner.forward(trees.batch([(root, 0, 4)]))
    logits = runner.logits(root.slots[:rows])
    before = logits.clone()
    logits[0, 0] = -torch.inf
    assert torch.equal(runner.logits(root.slots[:rows]), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_float32(forest, dtype):
    prompt = ids(40, 259)
    results = []
    for each in (dtype, torch.float32):
        runner, _ = make(tiny_config(), each)
        trees = forest(SLOTS)
        root = trees.grow(None, prompt[:30])
        tail = trees.grow(root, prompt[30:])
        runner.forward(trees.batch([(root, 0, 30)]))
        runner.forward(trees.batch([(tail, 0, 10)]))
        results.append(runner.logits(tail.slots))
    assert results[0].dtype == torch.float32
    assert (results[0] - results[1]).abs().mean() < 0.05 * results[1].std()


def test_no_rows_and_no_slots(forest):
    runner, _ = make(tiny_config())
    runner.forward(forest(SLOTS).batch([]))
    assert runner.logits([]).shape == (0, 259)


def test_attributes_and_bytes_per_token():
    spec = ModelSpec.from_config(tiny_config())
    runner, weights = make(tiny_config())
    assert (runner.vocab_size, runner.max_context) == (259, 16384)
    assert ModelRunner.bytes_per_token(spec, torch.float32) == 4 * (2 * 2 * 2 * 16 + 64)
    with pytest.raises(InvalidArgument, match="num_slots=0"):
        ModelRunner(spec, weights, num_slots=0, dtype=torch.float32, device="cpu")
    del weights["model.norm.weight"]
    with pytest.raises(InvalidArgument, match=r"model\.norm\.weight"):
        ModelRunner(spec, weights, num_slots=8, dtype=torch.float32, device="cpu")
