"""From logits to tokens to text: streams, processors, the sampler, stops and `select`'s scoring.

`sampler`, `logits` and `logprobs` are arithmetic on tensors; `streams`, `stops`, `output`,
`scoring` and `border` are policy on numbers and text and import no torch. The engine calls all of
them; the user's process calls `border` to turn a `select` into token ids.
"""
