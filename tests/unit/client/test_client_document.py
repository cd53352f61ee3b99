"""The pages of the client's settings and errors are made from the declarations; the committed ones are the latest."""

from __future__ import annotations

from pathlib import Path

from semel.client import document, document_errors

ROOT = Path(__file__).parent.parent.parent.parent


def test_the_page_is_what_the_declarations_say() -> None:
    committed = (ROOT / "docs" / "client-settings.md").read_text()
    assert committed == document.page(), "run: python -m semel.client.document > docs/client-settings.md"


def test_the_page_of_errors_is_what_the_classes_say() -> None:
    committed = (ROOT / "docs" / "errors.md").read_text()
    assert committed == document_errors.page(), "run: python -m semel.client.document_errors > docs/errors.md"
