from .expectation.exact import ExactExpectation as ExactExpectation
from .expectation.provider import (
    ExpectationProvider as ExpectationProvider,
    MonteCarloExpectation as MonteCarloExpectation,
)
from .p_values import log_p_value as log_p_value, p_value as p_value
