"""The version of the package, which is that of the library and the programs."""

__version__ = "0.1.0"
