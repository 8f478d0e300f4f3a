"""Files of compiled functions: signatures and graphs as data that names classes, functions and operators.

`write_file` and `read_file` are each other's inverse, but for what belongs to one process: guards and entries are
generated again, for the first call that fits.
"""

from subclass_aot.files.compiled.file import SavedFile as SavedFile
from subclass_aot.files.compiled.file import read_document as read_document
from subclass_aot.files.compiled.file import read_file as read_file
from subclass_aot.files.compiled.file import refusals as refusals
from subclass_aot.files.compiled.file import write_file as write_file
from subclass_aot.files.compiled.key import FactsToTell as FactsToTell
from subclass_aot.files.compiled.key import Key as Key
from subclass_aot.files.compiled.key import key_of as key_of
from subclass_aot.files.compiled.key import told as told
from subclass_aot.files.compiled.key import told_later as told_later
from subclass_aot.files.compiled.specializations import NO_TRACE as NO_TRACE
from subclass_aot.files.compiled.specializations import SavedSpecialization as SavedSpecialization
from subclass_aot.files.compiled.specializations import key_of_call as key_of_call
