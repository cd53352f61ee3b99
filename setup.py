"""Builds the compiled parts. Each is optional: without a C compiler plain Python takes its place, far slower."""

from Cython.Build import cythonize
from setuptools import Extension, setup

EXTENSIONS = cythonize(
    [
        Extension("semel.metrics.*", ["src/semel/metrics/*kernel.py"], extra_compile_args=["-O3"]),
        Extension("semel.records.*", ["src/semel/records/*kernel.py"], extra_compile_args=["-O3"]),
        Extension("semel.log.*", ["src/semel/log/*kernel.py"], extra_compile_args=["-O3"]),
        Extension("semel.rpc.*", ["src/semel/rpc/*kernel.py"], extra_compile_args=["-O3"]),
        Extension("semel.replication.*", ["src/semel/replication/*kernel.py"], extra_compile_args=["-O3"]),
        Extension("semel.broker.*", ["src/semel/broker/*kernel.py"], extra_compile_args=["-O3"]),
        Extension("semel.host.*", ["src/semel/host/_*.pyx"], extra_compile_args=["-O2"]),
    ],
    language_level=3,
)
for extension in EXTENSIONS:
    extension.optional = True  # set here, because cythonize makes new ones and forgets it

setup(ext_modules=EXTENSIONS)
