"""The joint trace of forward and backward."""

from subclass_aot.trace.joint import JointTrace as JointTrace
from subclass_aot.trace.joint import is_tracing as is_tracing
from subclass_aot.trace.joint import one_at_a_time as one_at_a_time
from subclass_aot.trace.joint import trace_arguments as trace_arguments
from subclass_aot.trace.joint import trace_joint as trace_joint
from subclass_aot.trace.outputs import AliasOfLeaf as AliasOfLeaf
from subclass_aot.trace.outputs import ComputedSymints as ComputedSymints
from subclass_aot.trace.outputs import Constant as Constant
from subclass_aot.trace.outputs import InputLeaf as InputLeaf
from subclass_aot.trace.outputs import Output as Output
from subclass_aot.trace.outputs import SameAsInput as SameAsInput
from subclass_aot.trace.outputs import SameAsOutput as SameAsOutput
from subclass_aot.trace.outputs import Value as Value
from subclass_aot.trace.outputs import ViewOfBase as ViewOfBase
from subclass_aot.trace.outputs import ViewOfInput as ViewOfInput
from subclass_aot.trace.signature import JointSignature as JointSignature
from subclass_aot.trace.signature import MetadataMutation as MetadataMutation
from subclass_aot.trace.signature import TangentSpec as TangentSpec
