"""Check that every internal link and image of a built site exists.

python docs/check_links.py FOLDER
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the ids of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the attributes of a tag."""
        for name, value in attrs:
            if value and name == "id":
                self.ids.add(value)
            elif value and name in ("href", "src"):
                self.links.append(value)


def broken(folder: Path) -> list[str]:
    """List the internal links of all pages that lead nowhere."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue  # another site
            target = path.parent / unquote(parts.path) if parts.path else path
            target = target.resolve()
            is_anchor = bool(parts.fragment) and target in pages
            is_missing = is_anchor and unquote(parts.fragment) not in pages[target].ids
            if is_missing or not target.exists():
                found.append(f"{path.relative_to(folder.resolve())}: {link}")
    return found


if __name__ == "__main__":
    links = broken(Path(sys.argv[1]))
    print("\n".join(links) or "every internal link leads somewhere")
    sys.exit(bool(links))
