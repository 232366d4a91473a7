"""The same as `xsched.hip`."""

from xsched.hip import XSchedHip, hipStream_t

__all__ = ["XSchedHip", "hipStream_t"]
