"""Closing a JSON document within its budget: the shortest text that makes a partial one whole.

`closer` is the door: a `Closer` knows a schema's shortest values, a `Walk` follows one document,
and `closing_for` finds a closing text that a matcher accepts. `pace` keeps documents from running
away in white space and digits.
"""
