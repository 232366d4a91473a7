"""The tag of the wheel. pyproject.toml has everything else."""

from __future__ import annotations

from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

# scripts/wheel puts the library and the programs there; `pip install .` of the source tree installs Python only.
PREFIX = Path(__file__).resolve().parent / "src" / "giveway" / "_prefix"


class WithPrograms(Distribution):
    def has_ext_modules(self) -> bool:
        """The files belong to one platform."""
        return PREFIX.is_dir()


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        """Programs for Linux and glibc 2.28, and Python files for every Python 3."""
        return ("py3", "none", "manylinux_2_28_x86_64") if PREFIX.is_dir() else super().get_tag()


setup(cmdclass={"bdist_wheel": Wheel}, distclass=WithPrograms)
