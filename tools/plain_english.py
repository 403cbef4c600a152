"""Finds turns of phrase that a reader has to translate, in docstrings, comments, messages and pages.

Run: python tools/plain_english.py [--count] [FILE or FOLDER ...]

Without arguments it reads everything that people write in this repository. Of Python files it reads docstrings,
comments, and the texts of errors and log lines, by `ast` and `tokenize`; names and data of tests are never judged.
Text between backticks is code, and is not judged either.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent

PRODUCT: Final = ("klamm", "klamm_cli", "proto", "services", "spark")
"""Folders in which all patterns are searched for. The others still have such places."""

GENERATED: Final = ("build", "deploy/wheels", "dist", "klamm-data", "klamm/wire/v1", "spark-warehouse")
"""Folders of files that programs write."""


class Pattern(NamedTuple):
    """A turn of phrase that is refused."""

    name: str
    """The name under which findings are counted."""
    expression: re.Pattern[str]
    """Matches the faulty words in a passage. They may be on two lines."""
    advice: str
    """The advice on how to rewrite the passage."""
    of_docstrings: bool = False
    """Whether only docstrings are searched."""
    of_product: bool = False
    """Whether only the folders of `PRODUCT` are searched."""


_NO_NOUN: Final = (
    "about|after|against|as|at|because|before|between|by|except|for|from|how|if|in|into|of|on|once|only|over|since|so|than|that"
    "|though|to|under|unless|until|upon|what|when|where|which|while|with|without"
)
"""Words after which "who" has no noun that it could refer to."""

_FRAGMENT: Final = (
    "Also|As|At|Between|But|Each|For|From|In|Neither|Newly|None|Nor|Not|On|Only|That|Those|To|Until|With|Without"
)
"""Words with which a docstring does not begin that is a sentence."""

_VERB: Final = r"\w+s|are|had|may|can|will|would"

_DIALECT: Final = (
    r"be\sof\sno\suse|gives?\sup|goes?\son|heard?\sof|hears\sof|heeds?|if\snot\sotherwise|is\sno\smore|is\stold|are\stold|looks?\sagain"
    r"|of\sbefore|says?\sso|stands?\sstill|takes?\sup|the\sone\sbefore|was\snot\sto\sbe\shad"
)
"""Phrases for which the field has a word: continue, learn, obey, retry, stop, the previous one."""

_NAME: Final = "name the client, member, caller or reader"

PATTERNS: Final = (
    Pattern("begins with Of", re.compile(r"\AOf\b"), "say what the thing is", of_docstrings=True),
    Pattern("begins with By", re.compile(r"\ABy\b"), "say what the thing is", of_docstrings=True),
    Pattern("whoever", re.compile(r"\bwho(?:so)?m?ever\b", re.IGNORECASE), _NAME),
    Pattern("anew", re.compile(r"\banew\b", re.IGNORECASE), 'write "again", or "a new one"'),
    Pattern("is otherwise", re.compile(r"\b(?:is|are|was|were)\s+otherwise(?=[.,;:)]|\s*\Z)"), "say what changed"),
    Pattern("is its", re.compile(r"\b(?:is|are|was|were)\s+its(?=[.,;:)]|\s*\Z)"), "say what it belongs to"),
    Pattern(
        "so many",
        re.compile(r"\bso\s+many\b(?![^.;:]*\s(?:that|as)\s)", re.IGNORECASE),
        "say the number, or what counts",
    ),
    Pattern("Who ...", re.compile(r"(?:(?:\A|[.!?*|]\s+|\()Who|[:;]\s+[Ww]ho)\b(?![^.!|]*\?)"), _NAME),
    Pattern("of who ...", re.compile(rf"\b(?:{_NO_NOUN})\s+who\b(?![^.!|]*\?)", re.IGNORECASE), "give who a noun"),
    Pattern(
        "fragment",
        re.compile(rf"\A(?:{_FRAGMENT})\b"),
        "write a sentence of its own: Returns ..., The offset after ..., True while ...",
        of_docstrings=True,
        of_product=True,
    ),
    Pattern(
        "what ... is",
        re.compile(
            rf"(?:\A|[.;:,]\s|\b(?:and|but|that|so|for|if|when)\s)(?:what|nobody|somebody|everybody)\s+(?:{_VERB})\b(?![^.!|]*\?)",
            re.IGNORECASE,
        ),
        "name the actor or the thing",
        of_product=True,
    ),
    Pattern("dialect", re.compile(rf"\b(?:{_DIALECT})\b", re.IGNORECASE), "use the field's word", of_product=True),
)


class Passage(NamedTuple):
    """Text that belongs together: a docstring, a block of comments, or a paragraph."""

    line: int
    """The number of its first line, from 1."""
    text: str
    is_docstring: bool = False


class Finding(NamedTuple):
    """A turn of phrase that was found."""

    line: int
    pattern: Pattern
    words: str
    """The words found, with a few of those around them."""


def findings(text: str, suffix: str, *, of_product: bool = False) -> Iterator[Finding]:
    """Returns what is refused in a text, passage by passage. `suffix` is the end of its file's name, such as ".py"."""
    patterns = [pattern for pattern in PATTERNS if of_product or not pattern.of_product]
    if suffix == ".py" and not (_MAY_FIND_IN_PRODUCT if of_product else _MAY_FIND).search(text):
        return
    for passage in passages(text, suffix):
        plain = _without_code(passage.text)
        for pattern in patterns:
            if pattern.of_docstrings and not passage.is_docstring:
                continue
            for match in pattern.expression.finditer(plain):
                around = plain[max(0, match.start() - 30) : match.end() + 40]
                yield Finding(passage.line + plain.count("\n", 0, match.end()), pattern, " ".join(around.split()))


def _without_code(text: str) -> str:
    """The text with an "x" for every character between backticks, except ends of lines."""
    return re.sub(r"`[^`]*`", lambda match: re.sub(r"[^\n`]", "x", match.group()), text)


def passages(text: str, suffix: str) -> Iterator[Passage]:
    """What people have written for people in the text of a file whose name ends in `suffix`."""
    if suffix == ".py":
        tree = ast.parse(text)
        yield from _docstrings(tree)
        yield from _messages(tree)
        yield from _blocks(_python_comments(text))
    elif suffix == ".md":
        yield from _paragraphs(text)
    elif suffix in _COMMENT_SIGNS:
        yield from _blocks(_line_comments(text, _COMMENT_SIGNS[suffix]))


_GAP: Final = r"""[\s#"'f]+"""
"""Matches between two words of a phrase, if they are on two lines of a comment or of a string."""

_MAY_FIND: Final = re.compile(
    rf"""\bwho(?:(?:so)?m?ever)?\b|\banew\b|\bso{_GAP}many\b|\b(?:is|are|was|were){_GAP}(?:otherwise|its)\b"""
    rf"""|["'#]\s*(?:Of|By)\b""",
    re.IGNORECASE,
)
"""Matches in each Python file with a finding. The others need not be parsed, which takes most of the time."""

_MAY_FIND_IN_PRODUCT: Final = re.compile(
    rf"""{_MAY_FIND.pattern}|["'#]\s*(?-i:{_FRAGMENT})\b|\b(?:what|nobody|somebody|everybody){_GAP}(?:{_VERB})\b|"""
    + _DIALECT.replace(r"\s", _GAP),
    re.IGNORECASE,
)
"""The same for the folders of `PRODUCT`."""

_COMMENT_SIGNS: Final = {
    ".proto": "//",
    ".java": "//",
    ".sh": "#",
    ".toml": "#",
    ".yml": "#",
    ".yaml": "#",
    ".in": "#",
    "Makefile": "#",
    "Dockerfile": "#",
}
"""What a line of comment begins with, by the end of a file's name."""


def _docstrings(tree: ast.Module) -> Iterator[Passage]:
    """All strings that stand alone: docstrings, those of fields and constants among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Passage(node.lineno, node.value.value, is_docstring=True)


def _messages(tree: ast.Module) -> Iterator[Passage]:
    """The texts of errors that are raised where they are made, and of lines for a log."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOG_LEVELS
        ):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield Passage(part.lineno, part.value)


_LOG_LEVELS: Final = ("debug", "info", "warning", "error", "exception", "critical")


def _python_comments(text: str) -> Iterator[tuple[int, str]]:
    """The number of a line and the comment on it."""
    if "#" not in text:
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#:! ")


def _line_comments(text: str, sign: str) -> Iterator[tuple[int, str]]:
    """The number of a line and the comment on it, where comments have lines or ends of lines to themselves."""
    for number, line in enumerate(text.splitlines(), 1):
        before, found, comment = line.partition(sign)
        if found and (not before or before[-1].isspace()):
            yield number, comment.lstrip(sign + " ")


def _blocks(comments: Iterator[tuple[int, str]]) -> Iterator[Passage]:
    """Comments on lines that follow each other, as one passage."""
    first = 0
    block: list[str] = []
    for number, comment in comments:
        if block and number != first + len(block):
            yield Passage(first, "\n".join(block))
            block = []
        if not block:
            first = number
        block.append(comment)
    if block:
        yield Passage(first, "\n".join(block))


def _paragraphs(text: str) -> Iterator[Passage]:
    """The paragraphs of a page. Blocks of code are left out."""
    lines = text.splitlines()
    is_code = False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            is_code = not is_code
            lines[number] = ""
        elif is_code:
            lines[number] = ""
    yield from _blocks((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())


def files(paths: list[Path]) -> Iterator[Path]:
    """The files among and below the paths that people write, in the order of their names."""
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        if path.name.startswith(".") or name in GENERATED:
            continue
        if path.is_dir():
            # Caches of programs that run beside this one come and go.
            with suppress(FileNotFoundError):
                yield from files(list(path.iterdir()))
        elif _kind(path) in (".py", ".md", *_COMMENT_SIGNS):
            yield path


def findings_in(path: Path) -> Iterator[Finding]:
    """Returns what is refused in the file, or nothing if the file was deleted."""
    with suppress(FileNotFoundError):
        of_product = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PRODUCT
        yield from findings(path.read_text(encoding="utf-8"), _kind(path), of_product=of_product)


def _kind(path: Path) -> str:
    """The end of the file's name that says what it holds."""
    return path.suffix or path.name


def main() -> int:
    """See the module. Returns 1 if anything was found, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--count", action="store_true", help="print how often each is found, and nothing else")
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT], metavar="FILE or FOLDER")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for path in files([each.resolve() for each in arguments.paths]):
        for finding in findings_in(path):
            counts[finding.pattern.name] += 1
            if not arguments.count:
                place = f"{path.relative_to(ROOT)}:{finding.line}"
                print(f'{place}: "{finding.pattern.name}": {finding.pattern.advice}: {finding.words}')
    if arguments.count:
        print("\n".join(f"{pattern.name:<16}{counts[pattern.name]:>5}" for pattern in PATTERNS))
    return min(counts.total(), 1)


if __name__ == "__main__":
    sys.exit(main())
