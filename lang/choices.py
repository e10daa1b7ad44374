"""The rules by which `select` picks one of its choices.

The arithmetic is the runtime's; a program only names the rule.
"""

from __future__ import annotations

import enum

from ramet.lang.errors import InvalidArgument


class ChoicesMethod(enum.StrEnum):
    """A rule for scoring choices from the log-probabilities of their tokens ("entries")."""

    TOKEN_LENGTH_NORMALIZED = "token_length_normalized"
    """The largest mean entry. Favours a long choice whose tail follows from its head."""
    GREEDY_TOKEN_SELECTION = "greedy_token_selection"
    """Token by token from the left, keeping the choices whose entry is the best."""
    UNCONDITIONAL_LIKELIHOOD_NORMALIZED = "unconditional_likelihood_normalized"
    """The largest mean of entry minus the same token's log-probability without the prompt."""
    EXACT_LIKELIHOOD = "exact_likelihood"
    """The largest probability of the whole choice, ending included; gives probabilities, and with
    a temperature above 0 the choice is sampled from them."""

    @classmethod
    def of(cls, value: object) -> ChoicesMethod:
        """The rule that `value` is or names; raises InvalidArgument for anything else."""
        try:
            return cls(value)  # type: ignore[arg-type]
        except ValueError:
            known = ", ".join(method.value for method in cls)
            raise InvalidArgument(f"choices_method={value!r}: must be one of {known}") from None


token_length_normalized = ChoicesMethod.TOKEN_LENGTH_NORMALIZED
greedy_token_selection = ChoicesMethod.GREEDY_TOKEN_SELECTION
unconditional_likelihood_normalized = ChoicesMethod.UNCONDITIONAL_LIKELIHOOD_NORMALIZED
exact_likelihood = ChoicesMethod.EXACT_LIKELIHOOD
