"""The fused decoder against the same numbers in plain torch, however the rows are cut."""

from __future__ import annotations

import random

import pytest
import torch
from quantised import QuantisedRunner, near

from ramet.kernels import reference
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights

SLOTS = 2048


def ids(count, vocab, seed=0):
    source = random.Random(seed)
    return [source.randrange(vocab) for _ in range(count)]


def fused(config, weights=None):
    spec = ModelSpec.from_config(config)
    weights = weights or tiny_weights(spec, seed=7)
    return ModelRunner(spec, weights, num_slots=SLOTS, dtype=torch.int8, device="cpu"), weights


@pytest.fixture
def pair(monkeypatch):
    """The fused decoder of a config, and the same in plain torch."""

    def make(config):
        ours, weights = fused(config)
        return ours, QuantisedRunner(ModelSpec.from_config(config), weights, SLOTS, monkeypatch)

    return make


def test_each_family_equals_plain_torch(family_config, forest, pair):
    ours, plain = pair(family_config)
    prompt = ids(70, ours.vocab_size)
    whole = forest(SLOTS).grow(None, prompt)
    for runner in (ours, plain):
        runner.forward(forest(SLOTS).batch([(whole, 0, len(prompt))]))
    wanted = plain.logits(whole.slots)
    assert wanted.std() > 0.5
    got = ours.logits(whole.slots)
    assert got.dtype == torch.float32
    near(got, wanted)


def test_in_pieces_it_computes_the_same(family_config, forest, pair):
    ours, plain = pair(family_config)
    prompt = ids(70, ours.vocab_size)
    trees = forest(SLOTS)
    pieces = trees.grow(None, prompt)
    for start in range(0, 70, 9):
        ours.forward(trees.batch([(pieces, start, min(start + 9, 70))]))
    plain.forward(trees.batch([(pieces, 0, 70)]))
    near(ours.logits(pieces.slots), plain.logits(pieces.slots))


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("seed", range(4))
def test_a_token_is_the_same_to_the_bit_however_it_was_computed(forest, seed, page_size):
    """As a prompt, in pieces, token by token beside its siblings."""
    source = random.Random(seed)
    ours, _ = fused(tiny_config())
    trees = forest(SLOTS, page_size=page_size, seed=seed)
    prefix = ids(source.choice([75, 300, 601]), 259, seed)
    root = trees.grow(None, prefix)
    for start in range(0, len(prefix), 90):
        ours.forward(trees.batch([(root, start, min(start + 90, len(prefix)))]))
    tails = [ids(source.randint(1, 30), 259, 10 + seed + i) for i in range(8)]
    nodes = [trees.grow(root, tail) for tail in tails]
    for step in range(30):
        rows = [
            (node, step, step + 1)
            for node, tail in zip(nodes, tails, strict=True)
            if step < len(tail)
        ]
        if rows:
            ours.forward(trees.batch(rows))
    for node, tail in zip(nodes, tails, strict=True):
        cold = forest(SLOTS)
        path = cold.grow(None, prefix + tail)
        wanted = ours.logits(root.slots + node.slots)
        other, _ = fused(tiny_config())
        other.forward(cold.batch([(path, 0, len(prefix) + len(tail))]))
        assert torch.equal(other.logits(path.slots), wanted)


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 13, 15, 29, 64, 100, 300])
def test_any_number_of_forks_over_a_prefix(forest, pair, rows, page_size):
    ours, plain = pair(tiny_config())
    trees = forest(SLOTS, page_size=page_size, seed=rows)
    root = trees.grow(None, ids(75, 259, 1))
    tails = [trees.grow(root, ids(3, 259, 10 + i)) for i in range(rows)]
    slots = [slot for tail in tails for slot in tail.slots]
    for runner in (ours, plain):
        runner.forward(trees.batch([(root, 0, 75)]))
        for step in range(3):
            runner.forward(trees.batch([(tail, step, step + 1) for tail in tails]))
    near(ours.logits(slots), plain.logits(slots))


def test_decode_rows_beside_a_prefill_chunk(forest, pair):
    ours, plain = pair(tiny_config())
    trees = forest(SLOTS)
    root = trees.grow(None, ids(40, 259, 1))
    tails = [trees.grow(root, ids(6, 259, 10 + i)) for i in range(12)]
    fresh = trees.grow(None, ids(18, 259, 2))
    for runner in (ours, plain):
        runner.forward(trees.batch([(root, 0, 40)]))
        for step in range(6):
            rows = [(tail, step, step + 1) for tail in tails]
            runner.forward(trees.batch([*rows, (fresh, step * 3, step * 3 + 3)]))
    for node in [*tails, fresh]:
        near(ours.logits(node.slots), plain.logits(node.slots))


def test_reads_of_a_shared_segment_are_told(forest):
    ours, _ = fused(tiny_config())
    trees = forest(SLOTS, page_size=SLOTS)
    root = trees.grow(None, ids(30, 259))
    ours.forward(trees.batch([(root, 0, 30)]))
    tails = [trees.grow(root, [i]) for i in range(20)]
    ours.gathered = []
    ours.forward(trees.batch([(tail, 0, 1) for tail in tails]))
    assert sum(length for _, length in ours.gathered) == tiny_config()["num_hidden_layers"] * 50


@pytest.mark.parametrize("rows", [1, 3])
def test_logits_belong_to_the_caller(forest, rows):
    ours, _ = fused(tiny_config())
    root = forest(SLOTS).grow(None, ids(4, 259))
    ours.forward(forest(SLOTS).batch([(root, 0, 4)]))
    logits = ours.logits(root.slots[:rows])
    before = logits.clone()
    logits[0, 0] = -torch.inf
    assert torch.equal(ours.logits(root.slots[:rows]), before)


def mask_of(tokens, vocab):
    bits = sum(1 << token for token in set(tokens))
    return bits.to_bytes((vocab + 31) // 32 * 4, "little")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_logits_of_a_few_tokens_have_the_same_bits(forest, rows, tied):
    vocab = 2500
    config = {**tiny_config(), "vocab_size": vocab, "tie_word_embeddings": tied}
    ours, _ = fused(config)
    root = forest(SLOTS).grow(None, ids(rows, vocab))
    ours.forward(forest(SLOTS).batch([(root, 0, rows)]))
    wanted = ours.logits(root.slots).clone()
    for tokens in (
        [[0]],
        [[vocab - 1]],
        [[31, 32], [33]],
        [range(64, 130), [2400, vocab - 1]],
        [range(0, vocab, 150)] * rows,
        [range(0, vocab, 3)],
        [[]],
    ):
        got = ours.logits(root.slots, [mask_of(some, vocab) for some in tokens])
        asked = sorted(token for some in tokens for token in some)
        assert torch.equal(got[:, asked], wanted[:, asked])
        same = got == wanted
        assert (got[~same] == -torch.inf).all()
    some = ours.logits(root.slots, [mask_of([5], vocab)])
    assert (some == -torch.inf).sum() > rows * vocab * 0.9
    assert torch.equal(ours.logits(root.slots), wanted)


def test_the_same_step_gives_the_same_bits(forest):
    ours, _ = fused(tiny_config())
    trees = forest(SLOTS)
    found = []
    for _ in range(3):
        node = trees.grow(None, ids(60, 259))
        ours.forward(trees.batch([(node, 0, 60)]))
        found.append(ours.logits(node.slots).clone())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_logits_are_the_same_whenever_and_beside_whatever_they_are_asked_for(forest):
    ours, _ = fused(tiny_config())
    trees = forest(SLOTS)
    node, other = trees.grow(None, ids(60, 259)), trees.grow(None, ids(90, 259, 1))
    ours.forward(trees.batch([(node, 0, 60)]))
    wanted = ours.logits(node.slots).clone()
    ours.forward(trees.batch([(other, 0, 90)]))
    for slots in ([node.slots[7]], node.slots[5:30], node.slots[3:4] * 3):
        rows = [node.slots.index(slot) for slot in slots]
        assert torch.equal(ours.logits(slots), wanted[rows])


@pytest.mark.parametrize("vocab", [5, 31, 32, 33, 259])
@pytest.mark.parametrize("rows", [1, 7, 16, 40, 70])
def test_the_likeliest_tokens_are_those_of_the_logits(forest, rows, vocab):
    config = {**tiny_config(), "vocab_size": vocab}
    _, weights = fused(config)
    embedding = weights["model.embed_tokens.weight"]
    embedding[vocab // 2 :] = embedding[: vocab - vocab // 2].clone()  # Each token has an equal.
    ours, _ = fused(config, weights)
    trees = forest(SLOTS)
    node = trees.grow(None, ids(rows, vocab))
    ours.forward(trees.batch([(node, 0, rows)]))
    slots = random.Random(rows).sample(node.slots, rows)
    tokens, best = ours.likeliest(slots)
    assert (tokens, best) == reference.greedy(ours.logits(slots), range(rows))


def test_a_row_with_a_logit_that_is_no_number_says_so(forest):
    config = tiny_config()
    _, weights = fused(config)
    weights["model.embed_tokens.weight"][7, 3] = 3e38
    ours, _ = fused(config, weights)
    trees = forest(SLOTS)
    broken, sound = trees.grow(None, [7, 1]), trees.grow(None, [5, 1])
    ours.forward(trees.batch([(broken, 0, 2), (sound, 0, 2)]))
    slots = [broken.slots[0], sound.slots[1]]
    wanted = ours.logits(slots).amax(-1)
    _, best = ours.likeliest(slots)
    assert torch.equal(torch.tensor(best).isfinite(), wanted.isfinite())
    assert not wanted[0].isfinite()


def test_no_rows_and_no_slots(forest):
    ours, _ = fused(tiny_config())
    ours.forward(forest(SLOTS).batch([]))
    assert ours.logits([]).shape == (0, 259)
    assert ours.likeliest([]) == ([], [])


def test_an_overflow_stays_with_its_own_rows(forest):
    config = tiny_config()
    _, weights = fused(config)
    weights["model.embed_tokens.weight"][7, 3] = 3e38
    ours, _ = fused(config, weights)
    trees = forest(SLOTS)
    broken, sound = trees.grow(None, [7, 1, 2]), trees.grow(None, [5, 1, 2])
    ours.forward(trees.batch([(sound, 0, 3)]))
    wanted = ours.logits(sound.slots).clone()
    ours.forward(trees.batch([(broken, 0, 3), (sound, 0, 3)]))
    assert not torch.isfinite(ours.logits(broken.slots)).all()
    torch.testing.assert_close(ours.logits(sound.slots), wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        ("model.layers.1.mlp.down_proj.weight", r"layers\.1.*not all.*finite"),
        ("model.layers.1.input_layernorm.weight", r"layers\.1\.input_norm: not all.*finite"),
        ("model.norm.weight", r"final_norm: not all.*finite"),
    ],
)
def test_weights_that_are_not_finite_are_refused(tensor, said):
    _, weights = fused(tiny_config())
    weights[tensor].view(-1)[5] = torch.nan
    with pytest.raises(InvalidArgument, match=said):
        fused(tiny_config(), weights)


def test_bytes_per_token_are_of_bfloat16_and_a_final_row_of_float32():
    spec = ModelSpec.from_config(tiny_config())
    assert ModelRunner.bytes_per_token(spec, torch.int8) == 2 * (2 * 2 * 2 * 16) + 4 * 64
