"""Writes the numbers that benchmarks have measured into the pages, for those who read them in the repository.

usage: python docs/numbers_in_pages.py     (after a benchmark; a test compares)

A page has the line `<!-- generated: NAME -->`; the text made for that name follows it, up to `<!-- end -->`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import measured
import results

TEXTS: Mapping[str, Callable[[], str]] = measured.TEXTS | results.TEXTS
# A mark, and what was written below it before: no mark of another text is in between.
PLACE = re.compile(
    r"^<!-- generated: (?P<name>.+) -->$(\n(?:(?!<!-- generated: ).*\n)*?<!-- end -->$)?", re.MULTILINE
)
HERE = Path(__file__).parent


def with_numbers(page: str) -> str:
    """Return the text of a page with today's numbers below their marks."""

    def written(match: re.Match[str]) -> str:
        if match["name"] not in TEXTS:  # made of the code, when Sphinx builds the page
            return match[0]
        text = TEXTS[match["name"]]().strip()
        return f"<!-- generated: {match['name']} -->\n\n{text}\n\n<!-- end -->"

    return PLACE.sub(written, page)


def main() -> None:
    """Write all pages whose numbers have changed."""
    for path in sorted(HERE.rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        if (new := with_numbers(page)) != page:
            path.write_text(new, encoding="utf-8")
            print(path.relative_to(HERE))


if __name__ == "__main__":
    main()
