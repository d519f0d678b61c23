"""Settings from the command line: every field of the dataclasses has a flag, and a wrong flag a helpful sentence."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import pytest

from musbo.algorithms import recipes
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.campaign import flags
from musbo.core import registry
from musbo.core.errors import UserError
from musbo.learning.explore import Plain
from musbo.learning.handover import Guarded, NotWorse
from musbo.learning.label import Disagreement, Trust

MUSBO = recipes.recipe("musbo", "quick", "pendulum")


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path to every plain setting inside a dataclass."""
    found = []
    for field in fields(value):
        child, where = getattr(value, field.name), (*path, field.name)
        found += leaves(child, where) if is_dataclass(child) else [where]
    return found


@pytest.mark.parametrize("algo", list(recipes.ALGORITHMS))
@pytest.mark.parametrize("preset", list(recipes.PRESETS))
def test_every_setting_of_every_method_has_a_flag(algo, preset):
    method = recipes.recipe(algo, preset, "hopper")
    named = {"--" + ".".join(path).replace("_", "-") for path in leaves(method)}
    assert len(named) > 40 or not isinstance(method, ImaginedTRPO)
    assert named <= set(flags.known_flags())
    assert flags.parse(method, []) == method


@pytest.mark.parametrize("algo", list(recipes.ALGORITHMS))
@pytest.mark.parametrize("preset", list(recipes.PRESETS))
def test_the_difference_between_two_methods_turns_one_into_the_other(algo, preset):
    method = recipes.recipe(algo, preset, "hopper")
    for other in recipes.ALGORITHMS:
        base = recipes.recipe(other, "quick", "pendulum")
        if type(base) is type(method):
            words = flags.difference(method, base)
            kinds = {word[2:]: words[i + 1] for i, word in enumerate(words) if word[2:] in flags.parts()}
            rest = words[2 * len(kinds) :]
            assert flags.parse(flags.with_kinds(base, kinds), rest) == method
    assert flags.difference(method, method) == []


def test_a_flag_of_another_method_is_refused():
    sac = recipes.recipe("sac", "quick", "pointmass")
    with pytest.raises(UserError, match="--imagine.horizon is a setting of another method"):
        flags.parse(sac, ["--imagine.horizon", "5"])
    with pytest.raises(UserError, match="no --label trust"):
        flags.with_kinds(sac, {"label": "trust"})
    changed = flags.with_kinds(sac, {"regulariser": "nearness"})
    assert changed == flags.parse(changed, ["--regulariser.coefficient", "0.1"])


def test_the_value_that_a_flag_shows_is_read_back():
    """Each setting, written out as a word and parsed into a method that has another value there."""
    other = recipes.recipe("musbo", "paper", "hopper")
    for path in leaves(MUSBO):
        if path[0] in ("handover", "baseline"):  # of another kind there
            continue
        value = MUSBO
        for name in path:
            value = getattr(value, name)
        words = [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
        parsed = flags.parse(other, ["--" + ".".join(path).replace("_", "-"), *words])
        for name in path:
            parsed = getattr(parsed, name)
        assert parsed == value, path


def test_no_flags_change_nothing():
    assert flags.parse(MUSBO, []) == MUSBO


def test_values_of_every_type():
    words = "--label.alpha auto --dynamics.hidden 3 4 --dynamics.max-steps None --trpo.literal-delta False"
    parsed = flags.parse(MUSBO, words.split())
    assert parsed.label == Disagreement(alpha="auto")
    assert parsed.dynamics == replace(MUSBO.dynamics, hidden=(3, 4), max_steps=None)
    assert parsed.trpo == replace(MUSBO.trpo, literal_delta=False)


def test_parts_come_in_kinds():
    whole = {"label", "start", "explore", "baseline", "handover", "regulariser"}
    of_two = {*(f"first.{name}" for name in whole - {"regulariser"}), "second.handover"}
    assert set(flags.parts()) == whole | of_two
    both: Any = recipes.recipe("together", "quick", "pointmass")
    assert flags.with_kinds(both, {"first.label": "trust"}).first.label == Trust()
    assert flags.parse(both, ["--second.handover.caution", "0.5"]).second.handover == NotWorse(caution=0.5)
    with pytest.raises(UserError, match="--first.label.k is a setting of --first.label continuation, but here"):
        flags.parse(both, ["--first.label.k", "1"])
    changed = flags.with_kinds(MUSBO, {"label": "trust", "explore": "plain", "handover": "guarded"})
    assert (changed.label, changed.explore, changed.handover) == (Trust(), Plain(), Guarded())
    tuned = replace(MUSBO, label=Disagreement(alpha=0.5))
    assert flags.with_kinds(tuned, {"label": "disagreement"}) == tuned  # of that kind already: its settings stay
    assert flags.parse(changed, ["--handover.multiple", "2"]).handover == Guarded(multiple=2.0)


def test_a_flag_of_another_kind_says_which():
    with pytest.raises(UserError, match="--label.alpha is a setting of --label disagreement or continuation, but"):
        flags.parse(recipes.recipe("bremen", "quick", "pendulum"), ["--label.alpha", "0.1"])


@pytest.mark.parametrize(
    ("word", "meant"),
    [("--alpha", "--label.alpha"), ("--label.alpah=3", "--label.alpha"), ("--update", "--updates")],
)
def test_an_unknown_flag_finds_what_was_meant(word, meant):
    assert f"Did you mean {meant}" in flags.unknown_flag(word, flags.known_flags())


def test_help_shows_the_symbols_of_the_paper():
    text = flags.help_text(MUSBO)
    for symbol in ("alpha:", "L: TRPO updates", "H: imagined steps", "delta:", "gamma:", "lambda of GAE", "zeta:"):
        assert symbol in text
    assert f"(default: {MUSBO.updates})" in " ".join(text.split())


def test_impossible_values_are_refused_in_a_sentence():
    for words, sentence in (
        (["--label.alpha", "-1"], "alpha must be at least 0"),
        (["--imagine.horizon", "0"], "horizon"),
        (["--updates", "0"], "updates"),
        (["--discount.gamma", "1"], "gamma"),
    ):
        with pytest.raises(UserError, match=sentence):
            flags.parse(MUSBO, words)


def test_a_value_that_is_no_number_ends_the_program(capsys):
    with pytest.raises(SystemExit) as left:
        flags.parse(MUSBO, ["--updates", "many"])
    assert left.value.code == 2
    assert "--updates" in capsys.readouterr().err
    assert isinstance(MUSBO, ImaginedTRPO)


def test_a_part_that_lacks_a_method_is_named(monkeypatch):
    monkeypatch.setattr(registry, "_by_name", dict(registry._by_name))
    monkeypatch.setattr(registry, "_by_class", dict(registry._by_class))

    @registry.stored("handover/never")
    @dataclass(frozen=True)
    class Never:
        """It has no `choose`."""

    with pytest.raises(UserError, match="handover/never is registered and lacks a method that every handover has"):
        flags.parts()
