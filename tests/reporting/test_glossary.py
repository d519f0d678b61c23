"""Words that a page explains."""

import pytest

from musbo.reporting.glossary import TERMS, pieces, used
from musbo.reporting.page import explain


def test_terms_of_the_field_and_of_the_paper_are_there():
    assert {"U", "zeta", "imagined return", "deployment", "held-out", "labeler", "IQM", "novelty"} <= set(TERMS)
    for term, about in TERMS.items():
        assert about.endswith(".") and about[0].isupper(), term
        assert "doubt" not in about


def test_a_term_is_explained_once_and_nothing_is_lost():
    text = "Two deployments: U of a deployment, and the batch return (zeta)."
    seen: set[str] = set()
    found = pieces(text, seen)
    assert "".join(part for part, _ in found) == text
    assert [part for part, about in found if about] == ["deployments", "U", "batch return", "zeta"]
    assert [about for _, about in pieces("a deployment", seen) if about] == []


@pytest.mark.parametrize("text", ["--explore.zeta-max", "runs/batch/x", "returned", "U-turn", "figures/return.png"])
def test_names_of_other_things_are_left_alone(text: str):
    assert pieces(text, set()) == [(text, None)]


def test_a_term_may_begin_a_sentence():
    assert pieces("Zeta is large.", set())[0] == ("Zeta", TERMS["zeta"])
    assert used(["Novelty and U", "the novelty"]) == {"novelty": TERMS["novelty"], "U": TERMS["U"]}


def test_flags_are_kept_in_one_piece():
    assert explain("raise --batch-size, or (--label.alpha)", set()) == (
        "raise <code>--batch-size</code>, or (<code>--label.alpha</code>)"
    )
    assert explain("a -- b", set()) == "a -- b"


def test_markup_in_a_text_is_text():
    assert explain("<b>U</b>", set()) == (
        f'&lt;b&gt;<span class="term" tabindex="0" data-about="{TERMS["U"]}">U</span>&lt;/b&gt;'
    )
