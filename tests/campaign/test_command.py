"""The words of `musbo run`: what campaign they ask for, and what a study takes from them."""

import argparse
import shlex
from dataclasses import replace

import pytest

from musbo.algorithms import recipes
from musbo.campaign import command, flags
from musbo.campaign.settings import campaign, shape_of, task_like
from musbo.core.errors import UserError
from musbo.field.find import find_task

MUSBO = recipes.recipe("musbo", "fast", "hopper")


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="musbo run", allow_abbrev=False)
    command.add_arguments(parser)
    return parser.parse_args(words)


def test_words_become_a_campaign():
    assert command.read([])[0] == campaign()
    found, arguments = command.read(shlex.split("hopper --seed 3 --batch-size 70 --updates 5 --data a b --out there"))
    assert found == campaign("hopper", seed=3, batch_size=70, method=replace(MUSBO, updates=5))
    assert (arguments.data, str(arguments.out), arguments.json) == (["a", "b"], "there", False)


def test_the_names_of_version_0_1_are_still_understood():
    found, _ = command.read(shlex.split("hopper --deployments 3 --batch 70"))
    assert (found.budget, found.batch_size) == (3, 70)


@pytest.mark.parametrize("flag", [name for name in flags.known_flags() if "-" in name[2:]])
def test_both_spellings_of_a_setting(flag: str):
    lined = "--" + flag[2:].replace("-", "_")
    assert command._own_settings(parsed(lined, "3")) == command._own_settings(parsed(flag, "3")) == [flag, "3"]


def test_what_means_nothing_is_refused_with_what_was_meant():
    with pytest.raises(UserError, match="--label.alpah means nothing here. Did you mean --label.alpha"):
        command.read(["--label.alpah", "3"])
    for word in ("--help", "-h", "--import=x.py"):  # those are of the command line, and not of a campaign
        with pytest.raises(UserError, match=f"{word.partition('=')[0]} means nothing here"):
            command.read([word])


def test_the_words_of_a_study_s_runs_are_read_back():
    words = shlex.split("--label trust --episodes 7 --updates 3 --dynamics.hidden 4 5")
    assert command.setting_words(parsed(*reversed_pairs(words))) == tuple(words)
    assert command.setting_words(parsed("hopper", "--seed", "3")) == ()
    assert command.read(words)[0].episodes == 7


def reversed_pairs(words: list[str]) -> list[str]:
    """The first three flags with their values in another order: it is not the order of the call that counts."""
    return [*words[2:4], *words[:2], *words[4:]]


def test_help_says_whole_sentences_about_the_kinds_of_a_part():
    text = " ".join(command.settings_help(parsed("hopper"), every=True).split())
    assert "--explore plain: Constant Gaussian noise around the policy's mean --explore seeking: " in text
    assert "seeking: Noise that grows with the disagreement of the labeler (eq. 16) --baseline" in text
    assert "--regulariser" not in text  # a part of other methods


def test_the_settings_of_a_method_are_those_of_the_kinds_asked_for():
    assert "--label.alpha" in command.settings_help(parsed("hopper"), every=True)
    assert "  --label.      (disagreement) alpha auto, " in command.settings_help(parsed("hopper"))
    assert "  --label       (trust)\n" in command.settings_help(parsed("hopper", "--label", "trust"))
    other = command.settings_help(parsed("hopper", "--label", "trust", "--preset", "paper"), every=True)
    assert "settings of musbo, with the defaults of preset paper on hopper:" in other and "--label.alpha" not in other


def test_help_says_what_follows_from_the_task():
    text = command.settings_help(parsed("hopper", "--preset", "fast"))
    assert "  --imagine.horizon 1000: whole episodes (at most 1000 steps), because they can end early\n" in text
    assert "what follows" not in command.settings_help(parsed("hopper", "--preset", "paper"))


def test_a_task_that_a_reader_knows_by_its_shape_alone():
    """What follows from it is the same, and nobody's Python was run."""
    for name in ("hopper", "halfcheetah", "pointmass"):
        task = find_task(name)
        like = task_like("anything", shape_of(task))
        assert recipes.recipe("musbo", "fast", like) == recipes.recipe("musbo", "fast", task)
