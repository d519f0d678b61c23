"""Methods: how a policy is made from batches.

A method is a frozen dataclass of settings that implements the protocol `Method`. `recipe` returns the settings of a
known one, which can be changed with `dataclasses.replace`; `add_method` makes one of your own a value of `--algo`.
"""

from musbo.algorithms.floors import Chance, Imitation
from musbo.algorithms.imagined_trpo import ImaginedTRPO
from musbo.algorithms.method import Forecast, Foresight, Method, Metrics
from musbo.algorithms.model_free import ModelFree
from musbo.algorithms.mopo import MOPO
from musbo.algorithms.recipes import add_method, recipe
from musbo.core.diagnostics import Stage

__all__ = [
    "MOPO",
    "Chance",
    "Forecast",
    "Foresight",
    "ImaginedTRPO",
    "Imitation",
    "Method",
    "Metrics",
    "ModelFree",
    "Stage",
    "add_method",
    "recipe",
]
