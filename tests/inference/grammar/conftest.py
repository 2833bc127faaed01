"""What tests of grammars share."""

import pytest

from specmesh.inference.grammar import grammars


@pytest.fixture
def patient_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer to compile a grammar than a draft waits for it."""
    monkeypatch.setattr(grammars, "DRAFT_SECONDS", 10.0)
