"""The Python objects that a call reaches: what they hold, and how it is compared with what they held."""

from subclass_aot.engine.objects import nodes as nodes
from subclass_aot.engine.objects.access_path import AccessPath as AccessPath
from subclass_aot.engine.objects.access_path import Entry as Entry
from subclass_aot.engine.objects.access_path import Named as Named
from subclass_aot.engine.objects.comparisons import kept as kept
from subclass_aot.engine.objects.comparisons import same_constant as same_constant
from subclass_aot.engine.objects.comparisons import same_kept as same_kept
from subclass_aot.engine.objects.holders import Entries as Entries
from subclass_aot.engine.objects.holders import Holder as Holder
from subclass_aot.engine.objects.nodes import sized as sized
from subclass_aot.engine.objects.object_guards import ObjectGuards as ObjectGuards
from subclass_aot.engine.objects.stepped import NotStepped as NotStepped
from subclass_aot.engine.objects.walk import Objects as Objects
from subclass_aot.engine.objects.walk import parts_of as parts_of
from subclass_aot.engine.objects.walk import refuse_key as refuse_key
