"""In-process runs find our rooms loaded: pytester forgets what a run itself imports.

Loaded twice, numpy fails and our enums differ from themselves.
"""

import importlib
import pkgutil

import numpy  # noqa: F401

import pytest_llmserve

for _room in pkgutil.walk_packages(pytest_llmserve.__path__, "pytest_llmserve."):
    if not _room.name.endswith("__main__"):
        importlib.import_module(_room.name)
