"""The page of a bundle that the engineer on site reads."""

from collections.abc import Mapping, Sequence
from typing import Any

from musbo.field.limits_file import MEANING
from musbo.field.runtime import OPTIONAL_LIMITS

TEXT = """# Policy for {task}

{about}

**This is no safety function.** It is ordinary software without redundancy. Interlocks, emergency stops and limits in
the drives have to keep people and machines safe without it, whatever it commands.

## Check that it arrived whole

    sha256sum -c SHA256SUMS

`runtime.py` checks this too when it loads, and compares the policy with the golden vectors. `limits.toml` is yours to
change, so no checksum covers it.

## Run it

Needs Python 3.9 or newer and numpy.

    from runtime import Runtime

    def baseline(observation):      # your own controller: it steers when the policy must not
        return [{zeros}]

    with Runtime(".", fallback=baseline, record="monday.musbo", machine="line-3") as controller:
        while running:
            action = controller.act(observation)
            # execute the action; if something else was done: controller.executed(what_was_done)
        controller.end(last_observation)

- Begin with `shadow=True`: everything is computed and recorded, and `act` returns None.
- {explores}
- `time=` of `act` is when the observation was measured: with it, old observations are noticed.
- The fallback steers when an observation is not finite, stale, late or outside its range. After {fallbacks} such steps,
  or when the sum of `cost=` exceeds its budget, it stays in control until a person calls `controller.reset()`; the
  files `latched.json` and `counts.json` keep that, and the count, over a restart.
- Send the recording home: it is what the next policy learns from. A power cut loses at most its last record.

## Limits

In `limits.toml`, one line `name = value` for each; one number stands for all actions or observations, and `"off"`
switches off what is optional: {optional}.

| key | meaning |
|---|---|
{limits}

## Observations and actions, in this order

| observation | unit | {range} |
|---|---|---|
{observations}

| action | unit | bounds |
|---|---|---|
{actions}
{past}
## Other forms

{forms}
"""


def readme(manifest: Mapping[str, Any], forms: Sequence[str], notes: Sequence[str]) -> str:
    limits, seen, done = manifest["limits"], manifest["observation"], manifest["action"]
    explore = manifest["explore"]
    about, known = ABOUT, "range in the data, with a margin"
    if manifest["policy"]["kind"] == "baseline":
        about, known = BASELINE, "range"
    if explore["kind"] == "bounded":
        explores = (
            "It adds noise to what `baseline` returns, evenly distributed and at most `noise` of `limits.toml`: "
            f"as exported, {_numbers(limits['noise'])}. `explore=False` is your controller alone."
        )
    elif explore["kind"] == "none":
        explores = "It does not explore."
    elif explore["default"]:
        explores = (
            "It explores: it adds noise to collect data for the next policy. `explore=False` is the policy alone."
        )
    else:
        explores = "It does not explore; `explore=True` adds the noise that collects data for the next policy."
    said = [f"`{name}`: {FORMS[name]}" for name in forms] + [f"{note[:1].upper()}{note[1:]}" for note in notes]
    return TEXT.format(
        task=manifest["task"],
        about=about.format(
            deployment=manifest["deployment"],
            n_obs=len(seen["names"]),
            n_act=len(done["names"]),
            steps=f", in episodes of {manifest['episode_steps']} steps",
            interval="" if manifest["interval"] is None else f", one every {manifest['interval']:g} seconds",
        ),
        range=known,
        optional=", ".join(OPTIONAL_LIMITS),
        limits="\n".join(f"| `{key}` | {text} |" for key, text in MEANING.items()),
        past=PAST.format(n=manifest["history"]) if manifest["history"] else "",
        zeros=", ".join(["0.0"] * len(done["names"])),
        explores=explores,
        fallbacks=limits["fallbacks"],
        observations=_rows(seen, limits["obs_low"], limits["obs_high"]),
        actions=_rows(done, done["low"], done["high"]),
        forms="\n".join(f"- {line}" for line in said) or "None.",
    )


PAST = """
The policy also sees the past {n} observations and actions. `runtime.py` remembers them: call `act` at every step,
`executed` where something else was done than commanded, and `begin` or `end` where an episode begins or ends. Its
networks, `policy.onnx` and `policy.h` take all in one vector, newest first: the observation, then for 1 to {n} steps
before it the observation and the action that was executed. Before the first step of an episode, the first observation
stands there, with the middle of the range of every action.
"""
ABOUT = "Trained after deployment {deployment}. It maps {n_obs} observations to {n_act} actions{steps}{interval}."
BASELINE = (
    "There is no policy in this bundle yet. It runs your own controller, {n_obs} observations to {n_act} actions"
    "{steps}{interval},\nwith a little noise around it, and records what happens: the first policy learns from that."
)
ANY = 1e30
"""An observation of an unknown range lies between minus this and this."""

FORMS = {
    "policy.onnx": "opset 13, input `observation` [1, n], output `action` [1, m], float32. The policy alone: no "
    "limits, no exploration, no fallback.",
    "policy.h": "C99, `musbo_policy(observation, action)`, float. The policy alone: no limits, no exploration, no "
    "fallback.",
}


def _rows(columns: Mapping[str, Any], low: Sequence[float], high: Sequence[float]) -> str:
    each = zip(columns["names"], columns["units"], low, high, strict=True)
    return "\n".join(f"| {name} | {unit} | {_range(a, b)} |" for name, unit, a, b in each)


def _range(low: float, high: float) -> str:
    return "any" if max(-low, high) >= ANY else f"{low:.6g} to {high:.6g}"


def _numbers(values: Sequence[float] | None) -> str:
    return "without a limit" if values is None else ", ".join(f"{value:.6g}" for value in values)
