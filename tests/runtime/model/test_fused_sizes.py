"""The fused decoder's memory: rows, positions, pools and vocabularies of any size, and two at once.

Its kernels check nothing, so what they may touch is checked here.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from quantised import QuantisedRunner, near

from ramet.kernels.cpu import fused
from ramet.runtime.config import cache_dir
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights

if reason := fused.prepare(cache_dir() / "kernels"):
    pytest.skip(reason, allow_module_level=True)


def ids(count, vocab=259, seed=0):
    source = random.Random(seed)
    return [source.randrange(vocab) for _ in range(count)]


def decoder(config, num_slots):
    spec = ModelSpec.from_config(config)
    weights = tiny_weights(spec, seed=7)
    return ModelRunner(spec, weights, num_slots=num_slots, dtype=torch.int8, device="cpu"), weights


@pytest.fixture
def pair(monkeypatch):
    def make(config, num_slots):
        ours, weights = decoder(config, num_slots)
        spec = ModelSpec.from_config(config)
        return ours, QuantisedRunner(spec, weights, num_slots, monkeypatch)

    return make


def test_rows_may_grow_and_shrink(forest, pair):
    ours, plain = pair(tiny_config(), 1024)
    trees = forest(1024)
    nodes = [trees.grow(None, ids(count, seed=count)) for count in (1, 70, 300, 5, 64, 65)]
    for node in nodes:
        for runner in (ours, plain):
            runner.forward(trees.batch([(node, 0, len(node.slots))]))
        near(ours.logits(node.slots), plain.logits(node.slots))
    # What was computed before the buffers grew is still there.
    slots = [slot for node in nodes for slot in node.slots]
    near(ours.logits(slots), plain.logits(slots))


def test_logits_of_more_rows_than_were_ever_computed_at_once(forest):
    ours, _ = decoder(tiny_config(), 64)
    node = forest(64).grow(None, ids(3))
    ours.forward(forest(64).batch([(node, 0, 3)]))
    few = ours.logits(node.slots)
    many = ours.logits(node.slots * 100)
    torch.testing.assert_close(many.view(100, 3, -1), few.expand(100, 3, -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [None, 9])
def test_positions_may_jump(forest, pair, window):
    config = tiny_config()
    if window:
        config |= {"model_type": "mistral", "architectures": None, "sliding_window": window}
    ours, plain = pair(config, 512)
    trees = forest(512)
    for start in (0, 2046, 2047, 2048, 4090, 5000, 16_370, 3):
        node = trees.grow(None, ids(14, seed=start))
        node.start = start
        for runner in (ours, plain):
            runner.forward(trees.batch([(node, 0, 5)]))
            for i in range(5, 14):
                runner.forward(trees.batch([(node, i, i + 1)]))
        near(ours.logits(node.slots), plain.logits(node.slots))


def untouched(runner, num_slots):
    """Whether the pool is zero behind its last slot."""
    from ramet.kernels.cpu.fused.tile import PAIR

    pool = runner._model._decoder._kept["pool"]
    layers, _, kv_heads, padded, slots = pool.shape
    keys = pool[:, 0].reshape(layers, kv_heads, slots // 16, padded // PAIR, 16, PAIR)
    keys = keys.transpose(3, 4).reshape(layers, kv_heads, slots, padded)
    values = pool[:, 1].reshape(layers, kv_heads, padded // 16, slots // PAIR, 16, PAIR)
    values = values.transpose(4, 5).reshape(layers, kv_heads, padded // 16, slots, 16)
    assert keys[:, :, :num_slots].any()
    assert values[:, :, :, :num_slots].any()
    return not keys[:, :, num_slots:].any() and not values[:, :, :, num_slots:].any()


@pytest.mark.parametrize("num_slots", [1, 2, 15, 16, 17, 33, 100, 127])
def test_a_pool_is_used_to_its_last_slot(forest, pair, num_slots):
    ours, plain = pair(tiny_config(), num_slots)
    for page_size in {1, min(16, num_slots)}:
        trees = forest(num_slots, page_size=page_size)
        count = num_slots // page_size * page_size
        node = trees.grow(None, ids(count))
        # The last page is the last of the pool.
        node.slots = [slot + num_slots - count for slot in node.slots]
        assert max(node.slots) == num_slots - 1
        for runner in (ours, plain):
            for start in range(0, count, 40):
                runner.forward(trees.batch([(node, start, min(start + 40, count))]))
        near(ours.logits(node.slots), plain.logits(node.slots))
        assert untouched(ours, num_slots)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("vocab", [2, 31, 32, 33, 48, 61, 100])
def test_any_vocabulary_to_its_ends(forest, pair, vocab, tied):
    config = tiny_config(vocab) | {"tie_word_embeddings": tied, "eos_token_id": 0}
    ours, plain = pair(config, 64)
    trees = forest(64)
    node = trees.grow(None, [0, vocab - 1, 0, vocab - 1, vocab // 2, *ids(20, vocab)])
    for runner in (ours, plain):
        runner.forward(trees.batch([(node, 0, 25)]))
    for slots in (node.slots, node.slots[:1], node.slots[3:5]):
        got = ours.logits(slots)
        assert got.shape == (len(slots), vocab)
        torch.testing.assert_close(got, plain.logits(slots), rtol=0, atol=0.3)
        if len(slots) > 2:
            near(got, plain.logits(slots))


@pytest.mark.parametrize(("hidden", "inner"), [(61, 101), (64, 63), (130, 1), (65, 192)])
def test_sizes_that_are_no_multiples_of_a_block(forest, pair, hidden, inner):
    config = {**tiny_config(), "hidden_size": hidden, "intermediate_size": inner, "head_dim": 18}
    ours, plain = pair(config, 200)
    node = forest(200).grow(None, ids(90))
    for runner in (ours, plain):
        runner.forward(forest(200).batch([(node, 0, 90)]))
    near(ours.logits(node.slots), plain.logits(node.slots))


def test_two_decoders_take_turns(forest):
    """Two sizes, two Python threads, one team: each computes what it computes alone."""
    configs = [
        tiny_config(),
        tiny_config(61) | {"eos_token_id": 0, "hidden_size": 96, "intermediate_size": 50,
                           "num_hidden_layers": 3, "num_attention_heads": 6},
    ]  # fmt: skip
    wanted, found, errors = {}, {}, []

    def work(config, out):
        ours, _ = decoder(config, 600)
        trees = forest(600)
        for count in (1, 30, 3, 100, 15, 200, 1):
            node = trees.grow(None, ids(count, ours.vocab_size, count))
            ours.forward(trees.batch([(node, 0, count)]))
            out.append(ours.logits(node.slots).clone())

    def guarded(*arguments):
        try:
            work(*arguments)
        except Exception as error:
            errors.append(error)

    for number, config in enumerate(configs):
        work(config, wanted.setdefault(number, []))
    threads = [
        threading.Thread(target=guarded, args=(config, found.setdefault((turn, number), [])))
        for turn in range(2)
        for number, config in enumerate(configs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for (_, number), results in found.items():
        assert all(map(torch.equal, results, wanted[number]))
        assert len(results) == len(wanted[number])


TEAM = """
import sys
import pytest
from ramet.kernels.cpu import fused
from ramet.runtime.config import cache_dir
fused.prepare(cache_dir() / "kernels")
from ramet.kernels.cpu.fused.team import the_team
assert the_team(int(sys.argv[1])).size == int(sys.argv[1])
sys.exit(pytest.main(["-q", "-x", sys.argv[2], "-k", sys.argv[3]]))
"""


@pytest.mark.parametrize("threads", [1, 3, 11])
def test_fewer_or_more_threads_than_cores_and_tasks(threads):
    chosen = "grow_and_shrink or last_slot and (1 or 100) or vocabulary and (2 or 61) or take_turns"
    here = Path(__file__).resolve()
    done = subprocess.run(
        [sys.executable, "-c", TEAM, str(threads), str(here), chosen],
        env=dict(os.environ), cwd=here.parents[3], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
