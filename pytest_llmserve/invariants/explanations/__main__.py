"""``python -m pytest_llmserve.invariants.explanations DIR``: write the pages anew."""

import sys
from pathlib import Path

from pytest_llmserve.invariants.explanations import write_pages

if len(sys.argv) != 2:
    sys.exit("usage: python -m pytest_llmserve.invariants.explanations docs/invariants")
write_pages(Path(sys.argv[1]))
