"""From a program to graphs of dense tensors."""

from subclass_aot.trace.arguments import ArgumentPlace as ArgumentPlace
from subclass_aot.trace.arguments import Arguments as Arguments
from subclass_aot.trace.arguments import ModulePlace as ModulePlace
from subclass_aot.trace.arguments import flatten as flatten
from subclass_aot.trace.joint import JointTrace as JointTrace
from subclass_aot.trace.joint import one_at_a_time as one_at_a_time
from subclass_aot.trace.joint import trace_arguments as trace_arguments
from subclass_aot.trace.joint import trace_joint as trace_joint
from subclass_aot.trace.outputs import AliasOfLeaf as AliasOfLeaf
from subclass_aot.trace.outputs import Computed as Computed
from subclass_aot.trace.outputs import Constant as Constant
from subclass_aot.trace.outputs import InputLeaf as InputLeaf
from subclass_aot.trace.outputs import Output as Output
from subclass_aot.trace.outputs import SameAsInput as SameAsInput
from subclass_aot.trace.outputs import SameAsOutput as SameAsOutput
from subclass_aot.trace.outputs import Value as Value
from subclass_aot.trace.outputs import ViewOfBase as ViewOfBase
from subclass_aot.trace.outputs import ViewOfInput as ViewOfInput
from subclass_aot.trace.partition import default_partition as default_partition
from subclass_aot.trace.sharing import Base as Base
from subclass_aot.trace.sharing import flat_base as flat_base
from subclass_aot.trace.sharing import has_storage as has_storage
from subclass_aot.trace.sharing import storage_groups as storage_groups
from subclass_aot.trace.signature import Input as Input
from subclass_aot.trace.signature import JointSignature as JointSignature
