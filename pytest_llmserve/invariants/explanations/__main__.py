"""``python -m pytest_llmserve.invariants.explanations docs/invariants``: write the pages anew."""

import sys
from pathlib import Path

from pytest_llmserve.invariants.explanations import write_pages

write_pages(Path(sys.argv[1]))
