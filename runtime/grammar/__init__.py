"""Constraints on generated text: what may be said, which tokens may come next, and what was said.

`spec` is the order, `dialect` what a regex may contain, `compiler` makes matchers of it, `guide`
leads one sample. Masks come from `llguidance`, imported when the first constraint is compiled.
"""
