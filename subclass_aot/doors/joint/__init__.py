"""The joint graph as compiler authors take it: inputs and outputs by name, passes between, compiled apart."""

from subclass_aot.doors.joint.compiled import BoundJoint as BoundJoint
from subclass_aot.doors.joint.compiled import CompiledJoint as CompiledJoint
from subclass_aot.doors.joint.compiled import compile_joint as compile_joint
from subclass_aot.doors.joint.joint import Joint as Joint
from subclass_aot.doors.joint.joint import trace_joint as trace_joint
from subclass_aot.doors.joint.records import JointInput as JointInput
from subclass_aot.doors.joint.records import JointOutput as JointOutput

__all__ = ["BoundJoint", "CompiledJoint", "Joint", "JointInput", "JointOutput", "compile_joint", "trace_joint"]
