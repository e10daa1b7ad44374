"""The front end of `json_schema`: what a schema's text means, and a grammar of its documents.

`normal` reads a schema of any draft into one graph.
"""
