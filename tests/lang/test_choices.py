from __future__ import annotations

import pytest

import ramet.lang as rm
from ramet.lang.choices import ChoicesMethod


def test_the_rules_are_found_by_constant_and_by_name() -> None:
    assert ChoicesMethod.of("exact_likelihood") is rm.exact_likelihood
    assert ChoicesMethod.of(rm.greedy_token_selection) is rm.greedy_token_selection
    assert str(rm.token_length_normalized) == "token_length_normalized"
    assert len({*ChoicesMethod}) == 4


@pytest.mark.parametrize("value", ["best", None, 3])
def test_an_unknown_rule_names_the_known_ones(value: object) -> None:
    with pytest.raises(rm.InvalidArgument, match="unconditional_likelihood_normalized"):
        ChoicesMethod.of(value)
