"""Tests that alternatives of a page become tabs of the site."""

from __future__ import annotations

import pytest

from tools.docs_tabs import with_tabs

PAGE = """Before.

<!-- tabs -->
**Klamm**

```python
a = 1

b = 2
```

**asyncio**

Text.
<!-- end of tabs -->

After.
"""


def test_each_alternative_becomes_a_tab_with_its_name() -> None:
    assert with_tabs(PAGE) == (
        'Before.\n\n=== "Klamm"\n\n    ```python\n    a = 1\n\n    b = 2\n    ```\n\n'
        '=== "asyncio"\n\n    Text.\n\n\nAfter.\n'
    )


def test_a_page_without_alternatives_stays_as_it_is() -> None:
    assert with_tabs("Before.\n\n**bold**\n") == "Before.\n\n**bold**\n"


def test_text_before_the_first_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected the name of a tab, as \\*\\*asyncio\\*\\*, before 'lost'"):
        with_tabs("<!-- tabs -->\nlost\n**a**\nb\n<!-- end of tabs -->")
