"""The model: what its config says, its weights, its memory, and the forward pass of one step.

`runner.ModelRunner` is what the engine calls; `spec.ModelSpec` is what everyone may read.
"""
