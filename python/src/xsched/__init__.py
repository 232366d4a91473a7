"""XSched's names for giveway's library: static methods of `XSched`, and the constants of the headers.

Part of giveway, an independent implementation of XSched's public interface. `xsched.hip` has `XSchedHip`.

Each method returns an XResult, or a pair of an XResult and a value where the C function writes one. Without the preloaded
library each returns kXSchedErrorNotSupported, and a warning says so once.
"""

from . import _constants
from ._calls import XSched
from ._constants import *  # noqa: F403

__all__ = ["XSched", *_constants.__all__]
