"""Finishes the site of the manual, in the folder that is named: scripts that stand in pages become files, and every
link within the site is followed."""
import hashlib
import html.parser
import pathlib
import re
import sys
import urllib.parse

TOP = pathlib.Path(sys.argv[1])
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
LINK = re.compile(r'<a href="([^":]+)">(.*?)</a>', re.DOTALL)


def source(page: pathlib.Path) -> pathlib.Path:
    """Where in the repository a page comes from, as a folder."""
    match page.relative_to(TOP).parts[:-1]:
        case [("adr" | "measured") as folder, *_]:
            return REPOSITORY / "docs" / folder
        case ["repo", *rest]:
            return REPOSITORY.joinpath(*rest)
        case _ if (REPOSITORY / "docs" / page.with_suffix(".md").name).exists():
            return REPOSITORY / "docs"
        case _:
            return REPOSITORY / "docs/manual"


def finish(page: pathlib.Path) -> None:
    """Has the scripts of a page be loaded where they stood, and its links lead to pages by their names."""
    up = "../" * (len(page.relative_to(TOP).parts) - 1)
    # a page that stands for any address names files from the top
    up = "/" if page.name == "404.html" else up

    def script(found: re.Match) -> str:
        text = found.group(1).strip()
        name = f"page-{hashlib.sha256(text.encode()).hexdigest()[:12]}.js"
        (TOP / name).write_text(text + "\n")
        return f'<script src="{up}{name}"></script>'

    def link(found: re.Match) -> str:
        path, sign, place = found.group(1).partition("#")
        if path.endswith("README.html"):
            path = path.removesuffix("README.html") + "index.html"
        if not path or path.startswith("/") or (page.parent / path).exists():
            return f'<a href="{path}{sign}{place}">{found.group(2)}</a>'
        # what only the repository has is no page
        there = source(page) / re.sub(r"(index)?\.html$", lambda end: "README.md" if end[1] else ".md", path)
        if there.exists() or (source(page) / path).exists():
            return f'<span title="in the repository">{found.group(2)}</span>'
        return found.group(0)

    text = INLINE.sub(script, page.read_text())
    text = LINK.sub(link, text).replace(' style="clear: both"', ' class="clear"')
    page.write_text(text)


class Links(html.parser.HTMLParser):
    """What a page links to, and the places in it that may be linked to; scripts and styles in it."""

    def __init__(self) -> None:
        super().__init__()
        self.links, self.places, self.inline = [], set(), []

    def handle_starttag(self, tag, attributes) -> None:
        given = dict(attributes)
        self.places.update(value for name, value in attributes if name in ("id", "name") and value)
        for name in ("href", "src"):
            if given.get(name):
                self.links.append(given[name])
        if tag == "script" and "src" not in given and given.get("type", "text/javascript") == "text/javascript":
            self.inline.append("a script")
        if tag == "style" or "style" in given:
            self.inline.append(f"a style of <{tag}>")
        self.inline += [name for name in given if name.startswith("on")]


def main() -> int:
    pages = {}
    for page in sorted(TOP.rglob("*.html")):
        finish(page)
        pages[page] = Links()
        pages[page].feed(page.read_text())
    for style in TOP.glob("css/general-*.css"):
        style.write_text(style.read_text() + "\n.clear { clear: both; }\n")
    wrong = []
    for page, found in pages.items():
        shown = page.relative_to(TOP)
        wrong += [f"{shown}: {what} in the page" for what in found.inline]
        for link in found.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                if parts.scheme not in ("http", "https", "mailto") or not link.startswith("http"):
                    wrong.append(f"{shown}: {link}")
                continue
            path = urllib.parse.unquote(parts.path)
            target = TOP / path[1:] if path.startswith("/") else page.parent / path
            target = (page if not path else target).resolve()
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                wrong.append(f"{shown}: {link} leads nowhere")
            elif parts.fragment and target in pages:
                if urllib.parse.unquote(parts.fragment) not in pages[target].places:
                    wrong.append(f"{shown}: {link} has no such heading")
    for line in wrong:
        print(f"scripts/manual-site: {line}", file=sys.stderr)
    print(f"scripts/manual-site: {len(pages)} pages in {TOP}, {len(wrong)} wrong links", file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
