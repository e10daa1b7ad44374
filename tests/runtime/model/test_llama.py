import pytest
import torch

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.model.attention_plan import build_plan
from ramet.runtime.model.kv_pool import KVPool
from ramet.runtime.model.llama import LlamaModel
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights


@pytest.mark.parametrize("tied", [False, True])
def test_hidden_rows_give_the_logits(forest, hf_logits, tied):
    config = {**tiny_config(), "tie_word_embeddings": tied}
    spec = ModelSpec.from_config(config)
    weights = tiny_weights(spec)
    model, pool = LlamaModel(spec, weights), KVPool(spec, 64, torch.float32, "cpu")
    trees = forest(64)
    node = trees.grow(None, list(b"a shared prefix"))
    batch = trees.batch([(node, 0, len(node.token_ids))])
    plan = build_plan(batch)
    rows = (torch.tensor(each) for each in (batch.token_ids, batch.positions, batch.slots))
    model.forward(*rows, plan, pool)
    (wanted,) = hf_logits(config, weights, torch.float32, node.token_ids)
    got = model.logits(pool.hidden[node.slots])
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=2e-5)


def test_a_misshapen_tensor_is_named():
    spec = ModelSpec.from_config(tiny_config())
    weights = {**tiny_weights(spec), "lm_head.weight": torch.zeros(2, 2)}
    with pytest.raises(InvalidArgument, match=r"lm_head\.weight"):
        LlamaModel(spec, weights)
