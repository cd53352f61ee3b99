"""Builds the compiled parts. Each is optional: without a C compiler the same sources run as plain Python, far slower."""

from Cython.Build import cythonize
from setuptools import Extension, setup

EXTENSIONS = [
    Extension("semel.records.kernel", ["src/semel/records/kernel.py"], optional=True, extra_compile_args=["-O3"]),
    Extension("semel.host._native", ["src/semel/host/_native.pyx"], optional=True, extra_compile_args=["-O2"]),
]

setup(ext_modules=cythonize(EXTENSIONS, language_level=3))
