"""What the words of a page mean: shown where a reader points at one, and in a list at its end."""

import re
import tomllib
from collections.abc import Sequence
from importlib import resources

TERMS: dict[str, str] = tomllib.loads((resources.files("musbo.reporting") / "glossary.toml").read_text())
"""Words of the field and of the paper, each with one sentence."""

_SPELLINGS = {
    spelling: term for term in TERMS for one in (term, f"{term}s") for spelling in (one, one[0].upper() + one[1:])
}
"""Also at the beginning of a sentence, and of several."""
_LONGEST_FIRST = "|".join(map(re.escape, sorted(_SPELLINGS, key=len, reverse=True)))
_WORD = re.compile(rf"(?<![\w/.-])(?:{_LONGEST_FIRST})(?![\w/-]|\.\w)")


def pieces(text: str, seen: set[str]) -> list[tuple[str, str | None]]:
    """`text` cut into words that are explained, each with its sentence, and what lies between them.

    A term is explained once: those that were are `seen`, which grows.
    """
    found: list[tuple[str, str | None]] = []
    end = 0
    for match in _WORD.finditer(text):
        term = _SPELLINGS[match[0]]
        if term in seen:
            continue
        seen.add(term)
        found += [(text[end : match.start()], None), (match[0], TERMS[term])]
        end = match.end()
    return [(part, about) for part, about in [*found, (text[end:], None)] if part]


def used(texts: Sequence[str]) -> dict[str, str]:
    """The terms that occur in `texts`, by the alphabet."""
    found = {_SPELLINGS[match[0]] for text in texts for match in _WORD.finditer(text)}
    return {term: TERMS[term] for term in sorted(found, key=str.lower)}
