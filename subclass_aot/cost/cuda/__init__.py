"""What CUDA does that a CPU does not, of tensors that claim to be there."""

import subclass_aot.cost.cuda.shapes  # noqa: F401  # whose rules are registered
from subclass_aot.cost.cuda.answers import answers as answers
from subclass_aot.cost.cuda.kernels import RULES as RULES
from subclass_aot.cost.cuda.kernels import on_claim as on_claim
from subclass_aot.cost.cuda.profile import claimed as claimed
from subclass_aot.cost.cuda.profile import profile as profile
