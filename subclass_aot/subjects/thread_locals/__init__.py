"""Objects of `threading.local` that a function reaches: what this thread has there is read and put as in eager mode.

A class that derives from it is walked as any class of the user's is.
"""

from subclass_aot.engine.tables import holders

holders.HOLDERS["_thread._local"] = vars
