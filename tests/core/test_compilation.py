"""The persistent compilation cache: on by default, in the user's cache, unless JAX was told otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import musbo

CODE = """
import jax
from musbo.core.compilation import keep_compiled
keep_compiled()
print(jax.config.values["jax_compilation_cache_dir"], jax.config.values["jax_persistent_cache_min_compile_time_secs"])
"""


def settings(**changes: str) -> list[str]:
    """Where a fresh process keeps what it compiles, and from how many seconds on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XDG_"))}
    environment |= {"PYTHONPATH": str(Path(musbo.__file__).parents[1]), "JAX_PLATFORMS": "cpu"} | changes
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_it_is_in_the_users_cache(tmp_path):
    assert settings(XDG_CACHE_HOME=str(tmp_path)) == [str(tmp_path / "musbo" / "jax"), "0.0"]
    assert settings(HOME=str(tmp_path)) == [str(tmp_path / ".cache" / "musbo" / "jax"), "0.0"]


def test_jax_own_variable_goes_first(tmp_path):
    assert settings(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine"))[0] == str(tmp_path / "mine")


def test_a_cache_that_cannot_be_made_is_done_without(tmp_path):
    (tmp_path / "file").write_text("")
    assert settings(XDG_CACHE_HOME=str(tmp_path / "file"))[0] == "None"
