"""`musbo algos`: the methods and the presets."""

import argparse

ORDER = 90
HELP = "List the methods and the presets."
EXAMPLES = """
  musbo algos
  musbo algos --import my_method.py              those of your own too
  musbo run hopper --algo bremen --preset fast   one of them
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def action(arguments: argparse.Namespace) -> int:
    from musbo.algorithms.recipes import ALGORITHMS, PRESETS
    from musbo.core import registry

    registry.load()  # other packages may bring methods of their own
    lines = {name: recipe.line for name, recipe in ALGORITHMS.items()}
    width = max(map(len, (*lines, *PRESETS)))
    for title, entries in (("methods (--algo)", lines), ("presets (--preset)", PRESETS)):
        print(title)
        for name, line in entries.items():
            print(f"  {name:<{width}}  {line}")
    return 0
