"""Tensors made of other tensors: declared fields, generated methods, operator rules.

`WrapperTensor` is the base of such classes; `Outer` is what their rule
`outer_metadata` returns, and `structure` marks fields.
"""

from subclass_aot.kit.wrapper import gather as gather
from subclass_aot.kit.wrapper.base import WrapperTensor as WrapperTensor
from subclass_aot.kit.wrapper.declare.fields import structure as structure
from subclass_aot.kit.wrapper.declare.outer import Outer as Outer
from subclass_aot.kit.wrapper.layout.shared_fields import shares_fields as shares_fields
from subclass_aot.kit.wrapper.layout.shared_fields import sharing_base as sharing_base
from subclass_aot.kit.wrapper.serialize import rebuild_by_name as rebuild_by_name
from subclass_aot.kit.wrapper.serve.builtin import built_in as built_in
from subclass_aot.kit.wrapper.serve.namespaces import SERVED as SERVED
from subclass_aot.kit.wrapper.serve.plain import plain_tangent as plain_tangent
from subclass_aot.kit.wrapper.service import Service as Service
from subclass_aot.kit.wrapper.service import place_of as place_of
from subclass_aot.kit.wrapper.service import service_of as service_of
from subclass_aot.kit.wrapper.train_fields import train_fields as train_fields
from subclass_aot.kit.wrapper.view_of import ViewOf as ViewOf
