"""The page of the client's settings is made from the declarations, and the committed one is the latest."""

from __future__ import annotations

from pathlib import Path

from semel.client.document import page

ROOT = Path(__file__).parent.parent.parent.parent


def test_the_page_is_what_the_declarations_say() -> None:
    committed = (ROOT / "docs" / "client-settings.md").read_text()
    assert committed == page(), "run: python -m semel.client.document > docs/client-settings.md"
