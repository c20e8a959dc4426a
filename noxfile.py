"""The matrix: each Python that the machine has with the oldest, a middle and the newest pytest."""

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PYTESTS = ["8.4.*", "9.0.*", ""]

nox.options.sessions = ["tests"]
nox.options.error_on_missing_interpreters = False


@nox.session(python=PYTHONS)
@nox.parametrize("pytest", PYTESTS, ids=["8.4", "9.0", "newest"])
def tests(session: nox.Session, pytest: str) -> None:
    """The tests, as the README runs them."""
    session.install(".[test]", f"pytest=={pytest}" if pytest else "pytest")
    session.run("pytest", "-n", "2", *session.posargs)
