"""State dicts with wrappers as flat dicts of dense tensors, and safetensors files of these.

`unwrap_state_dict` and `wrap_state_dict` are each other's inverse; `save_file` and `load_file` put a file in between.
`load_calibrated` reads what others have quantized with data.
"""

from subclass_aot.files.calibrated import load_calibrated as load_calibrated
from subclass_aot.files.dense import dense_state_dict as dense_state_dict
from subclass_aot.files.file import load_file as load_file
from subclass_aot.files.file import save_file as save_file
from subclass_aot.files.unwrap import unwrap_state_dict as unwrap_state_dict
from subclass_aot.files.wrap import wrap_state_dict as wrap_state_dict

__all__ = [
    "dense_state_dict",
    "load_calibrated",
    "load_file",
    "save_file",
    "unwrap_state_dict",
    "wrap_state_dict",
]
