"""Sizes of a call that are symbols, and traced fakes that have them."""

from subclass_aot.engine.sizes.dynamic_policy import DynamicPolicy as DynamicPolicy
from subclass_aot.engine.sizes.dynamic_sizes import DynamicSizes as DynamicSizes
from subclass_aot.engine.sizes.dynamic_sizes import first_results as first_results
from subclass_aot.engine.sizes.dynamic_sizes import mark_dynamic as mark_dynamic
from subclass_aot.engine.sizes.dynamic_sizes import marked_sizes as marked_sizes
from subclass_aot.engine.sizes.dynamic_sizes import tensors_of as tensors_of
from subclass_aot.engine.sizes.fakes import fake_with_sizes as fake_with_sizes
from subclass_aot.engine.sizes.fakes import plan_of_fakes as plan_of_fakes
from subclass_aot.engine.sizes.fakes import symbolic_fakes as symbolic_fakes
from subclass_aot.engine.sizes.given_sizes import GivenSizes as GivenSizes
from subclass_aot.engine.sizes.given_sizes import symbols_of as symbols_of
