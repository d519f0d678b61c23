"""Where the time of a piece of work goes: the operations of its compiled programs, by time.

    python benchmarks/speed/hotspots.py rollout-256
    python benchmarks/speed/hotspots.py trpo-stride10 --top 20 --json

A row is one operation of a compiled program, with the shapes of its operands where it is a matrix product, the number
of times that it ran, and the mean time. Operations may run at the same time, on different cores, so that the times add
up to more than the whole. Products that Eigen computes (`dot`) hand their work to other threads, and only the handing
over is seen here.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

DOT = re.compile(r"dot\(%(?P<left>[\w.-]+), %(?P<right>[\w.-]+)\), lhs_contracting_dims=\{(\d)\}")
SHAPE = re.compile(r"%(?P<name>[\w.-]+) = (?P<shape>\w+\[[\d,]*\])")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", help="one of the works of run.py, such as rollout-256")
    parser.add_argument("--top", type=int, default=12, help="how many operations to show")
    parser.add_argument("--small", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "programs"
        dump = f"--xla_dump_to={texts} --xla_dump_hlo_as_text"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {dump}"  # read when jax is imported
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # what comes from a cache is not written down
        found = measure(options.work, options.small, Path(folder) / "trace", texts)
    found["operations"] = found["operations"][: options.top]
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"{found['work']}: {1000 * found['seconds']:.0f} ms")
    for row in found["operations"]:
        times = f"{row['total_ms']:9.1f} ms {row['count']:6d} x {row['mean_us']:8.0f} us"
        print(f"{times}  {row['program']}/{row['operation']}  {row['product']}")
    return 0


def measure(name: str, small: bool, trace: Path, texts: Path) -> dict[str, Any]:
    import jax
    import works
    from jax.profiler import ProfileData, ProfileOptions

    if name not in works.WORKS:
        sys.exit(f"unknown work {name}: choose one of {', '.join(works.WORKS)}")
    ours = works.WORKS[name].prepare(works.SMALL if small else works.FULL)
    ours.run()
    begun = time.perf_counter()
    ours.run()
    seconds = time.perf_counter() - begun
    asked = ProfileOptions()
    asked.python_tracer_level = 0
    with jax.profiler.trace(str(trace), profiler_options=asked):
        ours.run()
    total: dict[tuple[str, str], float] = defaultdict(float)
    count: dict[tuple[str, str], int] = defaultdict(int)
    (file,) = trace.glob("**/*.xplane.pb")
    for plane in ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                told = dict(event.stats)
                if "hlo_op" in told and not event.name.startswith("end:"):
                    place = str(told.get("hlo_module", "")), str(told["hlo_op"])
                    total[place] += event.duration_ns / 1e6
                    count[place] += 1
    products = read_products(texts)
    return {
        "work": name,
        "seconds": seconds,
        "operations": [
            {
                "program": place[0].removeprefix("jit_"),
                "operation": place[1],
                "product": products.get(place, ""),
                "count": count[place],
                "mean_us": 1000 * total[place] / count[place],
                "total_ms": total[place],
            }
            for place in sorted(total, key=lambda p: -total[p])
        ],
    }


def read_products(texts: Path) -> dict[tuple[str, str], str]:
    """(program, operation) to "200x23 . 23x256", from the text of the compiled programs."""
    found = {}
    for path in texts.glob("*cpu_after_optimizations.txt"):
        program = path.name.split(".")[1]
        inside: dict[str, str] = {}  # computation to the product in it
        shapes: dict[str, str] = {}
        computation = ""
        for text in path.read_text().splitlines():
            if text.startswith(("%", "ENTRY")):
                computation, shapes = text.split(" (")[0].removeprefix("ENTRY ").strip("% "), {}
            if match := SHAPE.search(text):
                shapes[match["name"]] = match["shape"]
            if match := DOT.search(text):
                sides = [shapes.get(match[side], "?").partition("[")[2].strip("]") for side in ("left", "right")]
                turned = "'" if match[3] == "0" else ""
                product = f"{sides[0].replace(',', 'x')}{turned} . {sides[1].replace(',', 'x')}"
                inside[computation] = " and ".join(filter(None, [inside.get(computation), product]))
                if own := SHAPE.search(text):
                    found[program, own["name"]] = product
            elif (called := re.search(r"calls=%([\w.-]+)", text)) and called[1] in inside:
                found[program, SHAPE.search(text)["name"]] = inside[called[1]]  # type: ignore[index]
    return found


if __name__ == "__main__":
    sys.exit(main())
