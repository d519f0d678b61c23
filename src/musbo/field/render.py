"""Pictures of a policy at work: the first episode that an evaluation with the same seed would measure.

Mujoco draws off screen through EGL or OSMesa, whichever is there; the built-in tasks are drawn here, with a few lines
of numpy.
"""

import ctypes.util
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, UInt8

from musbo.core.errors import UserError
from musbo.field.drive import compiled
from musbo.field.remembering import remembering
from musbo.field.simulate import Purpose, lane_seeds
from musbo.field.worlds import DmControlLane, GymLane, LaneWorld, World, make_world
from musbo.tasks import builtin
from musbo.tasks.task import Task

SIDE = 480  # pixels
LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}

Frame = UInt8[np.ndarray, "height width 3"]


def render(
    task: Task, policy: Callable[[Any], Any], seed: int, steps: int | None = None, side: int = SIDE
) -> Iterator[Frame]:
    """The frames of one episode, one per state, the first state included."""
    act_on, lane = compiled(policy), np.array([0])
    with closing(make_world(task, 1, pictures=True)) as shown, _painter(task, shown, side) as paint:
        world = remembering(task, shown)
        obs = world.begin(lane_seeds(seed, Purpose.EVALUATE, 0, 1))
        yield paint(obs[0, : task.obs_size])
        for _ in range(min(steps or task.episode_steps, task.episode_steps)):
            act = np.clip(np.asarray(act_on(obs), np.float32), task.low, task.high)
            obs, _, terminated, truncated = world.step(lane, act)
            yield paint(obs[0, : task.obs_size])
            if terminated[0] or truncated[0]:
                return


@contextmanager
def _painter(task: Task, world: World, side: int) -> Iterator[Callable[[Float32[np.ndarray, " obs"]], Frame]]:
    if task.simulator == builtin.pendulum.simulator:
        yield lambda obs: draw_pendulum(obs, side)
    elif task.simulator == builtin.pointmass.simulator:
        yield lambda obs: draw_pointmass(obs, side)
    elif isinstance(world, LaneWorld):
        lane = world.lanes[0]
        assert isinstance(lane, GymLane | DmControlLane)
        if lane.mujoco is not None:
            model, data = lane.mujoco
            with _mujoco_painter(model, data, side) as picture:
                yield lambda obs: picture()
        else:
            assert isinstance(lane, GymLane)
            yield lambda obs: _gym_picture(lane.env)
    else:
        raise UserError(f"musbo has no picture of {task.name!r}: it draws Gymnasium, dm_control and its own two toys.")


def _gym_picture(env: Any) -> Frame:
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    try:
        picture = env.render()
    except (importlib.import_module("gymnasium").error.DependencyNotInstalled, NotImplementedError) as error:
        raise UserError(f"{name} cannot draw itself: {error or 'it has no render()'}.") from error
    if picture is None:
        raise UserError(f"{name} does not draw itself: make it with render_mode='rgb_array', if it has that mode.")
    return np.asarray(picture, np.uint8)


# --- Mujoco ---


@contextmanager
def _mujoco_painter(model: Any, data: Any, side: int) -> Iterator[Callable[[], Frame]]:
    mujoco = importlib.import_module("mujoco")
    gl = _gl_context(side)
    try:
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, side)
        model.vis.global_.offheight = max(model.vis.global_.offheight, side)
        context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)
        scene, options, camera = mujoco.MjvScene(model, 1000), mujoco.MjvOption(), mujoco.MjvCamera()
        if model.ncam:  # the bodies of our tasks bring a camera that follows them
            camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
        else:
            mujoco.mjv_defaultFreeCamera(model, camera)
        window = mujoco.MjrRect(0, 0, side, side)

        def paint() -> Frame:
            pixels = np.empty((side, side, 3), np.uint8)
            mujoco.mjv_updateScene(model, data, options, None, camera, mujoco.mjtCatBit.mjCAT_ALL, scene)
            mujoco.mjr_render(window, scene, context)
            mujoco.mjr_readPixels(pixels, None, window, context)
            return np.ascontiguousarray(pixels[::-1])  # OpenGL counts rows from below

        yield paint
        context.free()
    finally:
        gl.free()


def _gl_context(side: int) -> Any:
    """A current off-screen OpenGL context. The library is looked up first: a failed import cannot be undone."""
    wanted = os.environ.get("MUJOCO_GL", "").lower()
    tried = [wanted] if wanted in LIBRARIES else list(LIBRARIES)
    for backend in tried:
        if ctypes.util.find_library(LIBRARIES[backend]) is not None:
            try:
                context = importlib.import_module(f"mujoco.{backend}").GLContext(side, side)
                context.make_current()
                return context
            except Exception as error:  # each backend and driver has exceptions of its own
                raise UserError(f"Mujoco cannot draw through {backend}: {type(error).__name__}: {error}.") from error
    raise UserError(
        "Drawing Mujoco off screen needs EGL or OSMesa, and neither was found; "
        "on Debian or Ubuntu: apt install libegl1 (or libosmesa6)."
    )


# --- the toys ---

PAPER, INK, ACCENT = np.array([250.0, 250, 247]), np.array([60.0, 70, 80]), np.array([205.0, 80, 60])


def draw_pendulum(obs: Float32[np.ndarray, "3"], side: int = SIDE) -> Frame:
    """A rod from the middle; up is up."""
    picture, x, y = _canvas(side, reach=1.4)
    tip = (float(obs[1]), float(obs[0]))
    picture = _paint(picture, _to_segment(x, y, (0.0, 0.0), tip) - 0.08, ACCENT, side)
    return _pixels(_paint(picture, np.hypot(x, y) - 0.04, INK, side))


def draw_pointmass(obs: Float32[np.ndarray, "4"], side: int = SIDE) -> Frame:
    """A dot, a stroke that shows where its velocity leads, and a ring at home."""
    picture, x, y = _canvas(side, reach=2.0)
    place, ahead = (float(obs[0]), float(obs[1])), (float(obs[0] + 0.3 * obs[2]), float(obs[1] + 0.3 * obs[3]))
    picture = _paint(picture, np.abs(np.hypot(x, y) - 0.1) - 0.01, INK, side)
    picture = _paint(picture, _to_segment(x, y, place, ahead) - 0.015, INK, side)
    return _pixels(_paint(picture, np.hypot(x - place[0], y - place[1]) - 0.07, ACCENT, side))


def _canvas(
    side: int, reach: float
) -> tuple[Float[np.ndarray, "side side 3"], Float[np.ndarray, "side side"], Float[np.ndarray, "side side"]]:
    """Empty paper, and the coordinates of every pixel: the middle is (0, 0), the edges are at +-reach."""
    line = (np.arange(side) + 0.5) / side * 2 - 1
    x, y = np.meshgrid(line * reach, -line * reach)
    return np.broadcast_to(PAPER, (side, side, 3)).copy(), x, y


def _to_segment(
    x: Float[np.ndarray, "side side"],
    y: Float[np.ndarray, "side side"],
    start: tuple[float, float],
    end: tuple[float, float],
) -> Float[np.ndarray, "side side"]:
    """Distance of every pixel to a line segment."""
    along = (end[0] - start[0], end[1] - start[1])
    length = along[0] ** 2 + along[1] ** 2
    share = np.clip(((x - start[0]) * along[0] + (y - start[1]) * along[1]) / max(length, 1e-12), 0, 1)
    return np.hypot(x - start[0] - share * along[0], y - start[1] - share * along[1])


def _paint(
    picture: Float[np.ndarray, "side side 3"],
    distance: Float[np.ndarray, "side side"],
    colour: Float[np.ndarray, "3"],
    side: int,
) -> Float[np.ndarray, "side side 3"]:
    """Colour what lies at a negative distance, with an edge about one pixel wide."""
    cover = np.clip(0.5 - distance * side / 3, 0, 1)[..., None]
    return picture * (1 - cover) + colour * cover


def _pixels(picture: Float[np.ndarray, "side side 3"]) -> Frame:
    return np.round(picture).astype(np.uint8)
