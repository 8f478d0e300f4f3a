"""Views as data: operators one after the other, or sizes, strides and a place."""

from subclass_aot.kit.views.chain import Chain as Chain
from subclass_aot.kit.views.chain import FunctionStep as FunctionStep
from subclass_aot.kit.views.chain import JaggedStep as JaggedStep
from subclass_aot.kit.views.chain import RaggedSize as RaggedSize
from subclass_aot.kit.views.chain import Step as Step
from subclass_aot.kit.views.chain import SymintAt as SymintAt
from subclass_aot.kit.views.strided import Strided as Strided
from subclass_aot.kit.views.strided import opens as opens
from subclass_aot.kit.views.strided import regenerated_view as regenerated_view
from subclass_aot.kit.views.strided import windows as windows
