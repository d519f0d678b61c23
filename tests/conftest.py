"""What every test runs under: shapes and types checked at run time, and nothing promoted in silence.

This file is read before any test imports musbo, which the import hook needs.
"""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

# Compiled programs are kept between runs, the smallest too: most are small, and one from the disk takes half the time.
# In the environment, so that the processes that tests start find them too.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# Most of the time of the tests goes into compiling small programs that run once: half of it is optimisation.
QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
)
os.environ.setdefault("XLA_FLAGS", QUICK_TO_COMPILE)

# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

install_import_hook("musbo", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# The short form draws the same examples every time; the long form looks for new ones.
_untimed = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("short", **_untimed, derandomize=True, max_examples=30)
hypothesis.settings.register_profile("long", **_untimed, max_examples=300)
hypothesis.settings.load_profile("short")

# JAX keeps every program that it has compiled: a process that runs all tests would hold gigabytes of them.
ENOUGH = 1_200_000_000  # bytes
PAGES = Path("/proc/self/statm")


def holds_much(last_of_file: bool) -> bool:
    """Whether this process holds more than enough memory. Where the system does not say, after every file."""
    if not PAGES.exists():
        return last_of_file
    return int(PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > ENOUGH


# Folders whose files take long, the longest first: one of them begun at the end would keep a single core busy.
LONG_FILES = ("cluster", "contract", "stories", "trust", "reporting", "campaign")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [*LONG_FILES, item.path.parent.name].index(item.path.parent.name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Between two tests, forget the programs where they take much. Those that are needed again come from the disk."""
    result = yield
    if holds_much(nextitem is None or nextitem.path != item.path):
        from musbo.core.memory import give_back  # the import hook has to be there first

        jax.clear_caches()
        gc.collect()
        give_back()
    return result
