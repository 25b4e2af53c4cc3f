#!/usr/bin/env python3
"""Checks the pages of the site: every link inside leads to a page and, with an anchor, to an element; nothing is loaded
from another host; every public name of Python, every function of C and every command has its place.

    check_links.py SITE SOURCE
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

LOADING = {
    "script": ["src"],
    "link": ["href"],
    "img": ["src", "srcset"],
    "iframe": ["src"],
    "source": ["src", "srcset"],
    "video": ["src"],
    "audio": ["src"],
    "object": ["data"],
    "embed": ["src"],
    "form": ["action"],
}
NOT_LOADED = {"canonical", "search", "next", "prev", "index", "genindex", "author", "copyright"}  # of <link rel>


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag == "link" and attrs.get("rel") in NOT_LOADED:
            self.links.append(attrs["href"])
        else:
            self.loads += [attrs[name] for name in LOADING.get(tag, []) if attrs.get(name)]


def target_of(page, link):
    """The file and the anchor that a link of the page leads to."""
    path, _, anchor = link.partition("#")
    path = urllib.parse.unquote(path.partition("?")[0])
    return ((page.parent / path).resolve() if path else page), urllib.parse.unquote(anchor)


def wrong_links(site, pages):
    for path, page in pages.items():
        for link in page.links + page.loads:
            if re.match(r"[a-z]+:|//", link):
                if link in page.loads and not link.startswith("data:"):
                    yield f"{path.relative_to(site)}: loads {link}"
                continue
            target, anchor = target_of(path, link)
            if not target.is_relative_to(site) or not target.is_file():
                yield f"{path.relative_to(site)}: no such file: {link}"
            elif anchor and target in pages and anchor not in pages[target].ids:
                yield f"{path.relative_to(site)}: no such anchor: {link}"


def loads_of_styles(site):
    for path in site.rglob("*.css"):
        for url in re.findall(r"url\(\s*['\"]?([^)'\"]+)|@import\s+['\"]([^'\"]+)", path.read_text()):
            if re.match(r"(https?:)?//", "".join(url)):
                yield f"{path.relative_to(site)}: loads {''.join(url)}"


def missing_names(pages, source):
    """Public names without a place in the reference."""
    ids = set().union(*(page.ids for page in pages.values()))
    init = (source / "python" / "cubinery" / "__init__.py").read_text()
    names = re.findall(r'^    "(\w+)",$', init[init.index("__all__ = [") :], re.MULTILINE)
    for module in ("conv", "gdn", "problems"):
        listed = re.search(
            r"__all__ = \[(.*?)\]", (source / "python" / "cubinery" / f"{module}.py").read_text(), re.DOTALL
        )
        names += re.findall(r'"(\w+)"', listed[1])
    yield from (f"Python's {name}" for name in names if f"cubinery.{name}" not in ids)
    functions = re.findall(
        r"^CUBINERY_C_API [^;]*?\b(cubinery_\w+)\(", (source / "include/cubinery/c_api.h").read_text(), re.MULTILINE
    )
    yield from (f"C's {name}" for name in functions if f"c.{name}" not in ids)
    classes = []
    for header in (source / "include/cubinery").glob("*.h"):
        text = re.sub(
            r"^namespace internal \{.*?^\}  // namespace internal",
            "",
            header.read_text(),
            flags=re.DOTALL | re.MULTILINE,
        )
        if not header.stem.startswith("c_"):
            classes += re.findall(
                r"^(?:class|struct|enum class) (?:\[\[nodiscard\]\] )?(\w+)[^;<({]*\{", text, re.MULTILINE
            )
    cpp = [anchor for anchor in ids if anchor.startswith("_CPPv4")]
    yield from (f"C++'s {name}" for name in classes if not any(f"{len(name)}{name}" in anchor for anchor in cpp))
    options = ("prewarm-dry-run", "prewarm-q-heads", "tune-budget", "cache-export-o")
    yield from (f"the option {name}" for name in options if f"cmdoption-cubinery-{name}" not in ids)
    if len(names) < 25 or len(functions) < 50 or len(classes) < 50:
        yield f"only {len(names)} names of Python, {len(functions)} of C and {len(classes)} of C++ were looked for"


def main():
    site, source = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    wrong = [*wrong_links(site, pages), *loads_of_styles(site)]
    wrong += [f"the reference lacks {name}" for name in missing_names(pages, source)]
    links = sum(len(page.links) for page in pages.values())
    print(f"{len(pages)} pages, {links} links")
    if len(pages) < 60 or links < 2000:
        wrong.append("fewer pages or links than the documents have")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
