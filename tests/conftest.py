"""In-process runs find our rooms loaded: pytester forgets what a run itself imports.

numpy cannot be loaded twice.
"""

import numpy  # noqa: F401

import pytest_llmserve._pytest.session
import pytest_llmserve.assertions
import pytest_llmserve.manifests.compose
import pytest_llmserve.manifests.kubernetes
import pytest_llmserve.policy_file
import pytest_llmserve.reporting.annotations
import pytest_llmserve.reporting.gitlab
import pytest_llmserve.reporting.json_report
import pytest_llmserve.reporting.markdown
import pytest_llmserve.reporting.properties
import pytest_llmserve.reporting.sarif
import pytest_llmserve.reporting.server_ledger
import pytest_llmserve.servers.assemble
import pytest_llmserve.servers.full_facts  # noqa: F401
