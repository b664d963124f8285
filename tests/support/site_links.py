"""Links within a site: to which file and which place in it each leads."""

import re
from pathlib import Path
from urllib.parse import unquote, urldefrag


def broken_links(site: Path) -> list[tuple[str, str]]:
    """Return (page, target) for each link within the site that leads to no file, or to no place in it."""
    made = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    texts = {path: path.read_text(encoding="utf-8") for path in made}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in texts.items()}
    broken = []
    for path, text in texts.items():
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            if re.match(r"[a-z]+:", target):
                continue
            file, anchor = urldefrag(target)
            to = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            if not to.exists() or (anchor and to in anchors and unquote(anchor) not in anchors[to]):
                broken.append((path.name, target))
    return broken
