"""Tests that each example is a page of the site."""

from __future__ import annotations

from pathlib import Path

from tools.docs_cookbook import EXAMPLES, page_of, pages


def test_each_example_has_a_page_and_the_first_page_links_to_it() -> None:
    overview, *examples = pages()
    assert overview.uri == "cookbook/index.md"
    assert overview.text.startswith("# Cookbook")
    assert {page.uri for page in examples} == {
        f"cookbook/{readme.parent.name}.md" for readme in EXAMPLES.glob("*/README.md")
    }
    for page in examples:
        assert f"({page.uri.removeprefix('cookbook/')})" in overview.text


def test_a_page_has_the_readme_then_the_program_then_its_test(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Count\n\nIt counts.\n")
    (tmp_path / "test_count.py").write_text("def test(): pass\n")
    (tmp_path / "z_count.py").write_text("count = 1\n")
    assert page_of(tmp_path / "README.md") == (
        "# Count\n\nIt counts.\n\n## `z_count.py`\n\n```python\ncount = 1\n```\n\n"
        "## `test_count.py`\n\n```python\ndef test(): pass\n```\n"
    )
