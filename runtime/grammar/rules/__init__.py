"""Grammars of rules, exact over characters: the front ends of `ebnf=` and `lark=`.

Doors: `ebnf.ebnf_source` and `lark_rules.lark_source` turn a text into a `Source` for the mask
engine; `tree.parse_tree` gives the tree of a finished text. On the way the rules are read (`book`),
rid of recursion where that can be (`solving`), divided into terminals and rules so that the
engine's way of reading loses no text (`plan`, `lexing`), and written out (`writing`).
"""
