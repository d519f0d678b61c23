"""JAX's persistent compilation cache: the second run of a program starts in seconds, where the first one compiles."""

import os
import warnings
from pathlib import Path


def cache_folder() -> Path:
    """The user's own cache, by the XDG convention."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "musbo" / "jax"


def keep_compiled() -> None:
    """Switch the cache on, unless JAX was told already where it is; call it before the first compilation."""
    import jax

    # What a killed process left half written is compiled again, and that is all there is to say about it.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry", UserWarning)
    if jax.config.values["jax_compilation_cache_dir"] is not None:  # also set by JAX_COMPILATION_CACHE_DIR
        return
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: everything works, and compiles every time
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # All of them: small programs compile in milliseconds, but a run has a hundred, two seconds in all.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
