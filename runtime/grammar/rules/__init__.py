"""Grammars of rules: the front ends of `ebnf=` and `lark=`."""
