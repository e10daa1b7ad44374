import torch

from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights


def test_config():
    spec = ModelSpec.from_config(tiny_config())
    assert (spec.vocab_size, spec.max_context, spec.eos_ids) == (259, 16384, (258, 256))
    assert spec.bos_id is None
    assert ModelSpec.from_config(tiny_config(vocab_size=300)).vocab_size == 300


def test_weights_are_seeded_and_the_same_model_in_every_dtype():
    spec = ModelSpec.from_config(tiny_config())
    wide, again = tiny_weights(spec, torch.float64), tiny_weights(spec, torch.float64)
    narrow, other = tiny_weights(spec, torch.float32), tiny_weights(spec, torch.float64, seed=1)
    for name, tensor in wide.items():
        assert torch.equal(tensor, again[name])
        assert torch.equal(tensor.float(), narrow[name])
        assert not torch.equal(tensor, other[name])


def test_greedy_text_varies_and_is_rarely_close(forest):
    spec = ModelSpec.from_config(tiny_config())
    runner = ModelRunner(spec, tiny_weights(spec), num_slots=400, dtype=torch.float64, device="cpu")
    trees = forest(400)
    node = trees.grow(None, list(b"Question: what is a tree?"))
    runner.forward(trees.batch([(node, 0, len(node.token_ids))]))
    tokens, gaps = [], []
    for _ in range(60):
        best = runner.logits([node.slots[-1]])[0].topk(2)
        gaps.append(float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
        node = trees.grow(node, tokens[-1:])
        runner.forward(trees.batch([(node, 0, 1)]))
    assert len(set(tokens)) > 20
    assert sorted(gaps)[len(gaps) // 2] > 0.1
    assert min(gaps) > 1e-5
