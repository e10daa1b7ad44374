"""The simulator: the real engine over a machine that only keeps time.

Scheduler, tree, ledger, policies, contexts and graphs are the engine's own; what is exchanged is
the model (`machine`), the arithmetic of logits and the clock. So it decides what the engine would
decide, at hundreds of thousands of requests a minute, without torch. Its door is
`python -m ramet.runtime.schedule.simulate`.
"""
