"""Pictures of environments, drawn by the package ``mujoco`` from the exported model."""

from __future__ import annotations

import ctypes.util
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable

import numpy as np

from ._epo import EpoError

_HELP = (
    "without a screen, set MUJOCO_GL=egl (a graphics driver) or MUJOCO_GL=osmesa (software; Debian: "
    "apt-get install libosmesa6) before Python starts"
)


def _reason(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # errors of PyOpenGL cannot always be printed
        return type(error).__name__


def _mujoco() -> Any:
    if "mujoco" not in sys.modules and "MUJOCO_GL" not in os.environ and not os.environ.get("DISPLAY"):
        # mujoco's default needs a screen: without one, use a graphics device, otherwise software
        has_device = any(os.path.exists(path) for path in ("/dev/dri", "/dev/nvidia0"))
        software = ctypes.util.find_library("OSMesa")
        os.environ["MUJOCO_GL"] = "osmesa" if software and not has_device else "egl"
    try:
        import mujoco
    except ImportError as error:
        raise EpoError(f"rendering needs the package mujoco: pip install mujoco ({_reason(error)})") from None
    except Exception as error:
        raise EpoError(f"mujoco cannot draw here ({_reason(error)}); {_HELP}") from error
    return mujoco


#: The thread on which all pictures are drawn: OpenGL ties what it draws with to one thread, but an environment may be
#: drawn and closed by any thread.
_thread = ThreadPoolExecutor(1, "epo-render")
#: Whether the thread has been used in this process or in the one that it was forked from.
_used = False
#: Whether this process was forked from one that had drawn. Drawing would hang here: the driver has lost its threads.
_forked = False


def _submit(work: Callable[[], Any]) -> Future[Any] | None:
    """Starts ``work`` on the thread that draws. Returns ``None`` if the interpreter is ending."""
    global _used
    _used = True
    try:
        return _thread.submit(work)
    except RuntimeError:
        return None


def _after_fork() -> None:
    global _forked
    display = getattr(sys.modules.get("mujoco.egl"), "EGL_DISPLAY", None)  # made by this package or by the caller
    _forked = _used or display is not None


os.register_at_fork(after_in_child=_after_fork)


def _free(renderer: Any) -> None:
    context = getattr(renderer, "_gl_context", None)
    if context is not None:
        context.make_current()  # otherwise textures of another renderer, whose context is current, would be deleted
    renderer.close()


#: Reason why the first picture could not be drawn. After such a failure, MuJoCo ends the process at the next attempt.
_failed: str | None = None
#: Whether a renderer has worked in this process. A later failure then concerns one picture only.
_worked = False


class Renderer:
    """Draws one environment. The model is compiled once per episode; then only poses are copied."""

    def __init__(self, width: int, height: int, camera_name: str | None) -> None:
        self.model: Any = None
        self.renderer: Any = None
        self.size, self.camera_name = (width, height), camera_name
        self.mujoco = _mujoco()
        self.window: Any = None

    def new_episode(self) -> None:
        """Discards the model, because the bodies have moved."""
        if self.window is not None:
            self.window.close()
            self.window = None
        if self.renderer is None or _forked:
            self.model = self.renderer = None
        else:
            _submit(self._forget)  # before the next picture

    def _forget(self) -> None:
        renderer, self.model, self.renderer = self.renderer, None, None
        _free(renderer)

    def __del__(self) -> None:
        renderer = self.renderer
        if renderer is not None and not _forked:
            _submit(lambda: _free(renderer))

    def _compile(self, env: Any) -> None:
        mujoco = self.mujoco
        self.model = mujoco.MjModel.from_xml_string(env.mjcf())
        width, height = self.size
        self.model.vis.global_.offwidth = max(width, self.model.vis.global_.offwidth)
        self.model.vis.global_.offheight = max(height, self.model.vis.global_.offheight)
        self.model.vis.headlight.ambient[:], self.model.vis.headlight.diffuse[:] = 0.2, 0.5  # the models have no lights
        self.data = mujoco.MjData(self.model)
        parents, joints = self.model.body_parentid, self.model.body_jntnum
        mocap = self.model.body_mocapid
        self.fixed = [b for b in range(1, self.model.nbody) if parents[b] == 0 and joints[b] == 0 and mocap[b] < 0]
        self.mocap = [(b, mocap[b]) for b in range(self.model.nbody) if mocap[b] >= 0]
        self.camera = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(self.model, self.camera)
        # navigation tasks have a body `agent`; velocity tasks move along x, so the camera follows their torso
        self.agent = mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_BODY, "agent")
        self.is_arena = self.agent >= 0
        self.agent = max(self.agent, 1)

    def _copy(self, env: Any) -> None:
        mujoco, model, data = self.mujoco, self.model, self.data
        data.qpos[:], data.qvel[:] = env.state()
        positions, orientations = env.body_poses()
        for body in self.fixed:
            model.body_pos[body], model.body_quat[body] = positions[body], orientations[body]
        for body, index in self.mocap:
            data.mocap_pos[index], data.mocap_quat[index] = positions[body], orientations[body]
        mujoco.mj_forward(model, data)
        self.camera.azimuth = 90.0
        follows = self.camera_name == "track" or (self.camera_name is None and not self.is_arena)
        if self.camera_name == "vision":
            # from the position of the robot in the direction of its x axis
            x, y = data.xmat[self.agent].reshape(3, 3)[:2, 0]
            self.camera.lookat[:] = data.xpos[self.agent] + (x, y, 0.1)
            self.camera.distance, self.camera.elevation = 0.9, -5.0
            self.camera.azimuth = float(np.degrees(np.arctan2(y, x)))
        elif self.camera_name == "fixednear":
            self.camera.lookat[:] = (0.0, 0.0, 0.0)
            self.camera.distance, self.camera.elevation = 3.5, -45.0
        elif follows:
            self.camera.lookat[:] = data.xpos[self.agent]
            self.camera.distance, self.camera.elevation = (3.0, -30.0) if self.is_arena else (4.0, -15.0)
        else:
            self.camera.lookat[:] = (0.0, 0.0, 0.0)
            self.camera.distance, self.camera.elevation = 5.5, -65.0

    def draw(self, env: Any, mode: str) -> np.ndarray | None:
        """Returns a picture (``rgb_array``), distances in metres (``depth_array``), or shows a window (``human``)."""
        if _forked:
            raise EpoError(
                "a forked process cannot draw after its parent has drawn; start the process with "
                "multiprocessing.get_context('spawn'), or draw in the child only"
            )
        if mode == "human":
            self._update(env)
            self._show()
            return None
        picture = _submit(lambda: self._picture(env, mode))
        if picture is None:
            raise EpoError("a picture cannot be drawn while the interpreter is ending")
        return picture.result()

    def _update(self, env: Any) -> None:
        if self.model is None:
            self._compile(env)
        self._copy(env)

    def _picture(self, env: Any, mode: str) -> np.ndarray:
        self._update(env)
        if self.renderer is None:
            global _failed, _worked
            if _failed is not None:
                raise EpoError(_failed)
            try:
                width, height = self.size
                self.renderer = self.mujoco.Renderer(self.model, height, width)
                _worked = True
                if mode == "depth_array":
                    self.renderer.enable_depth_rendering()
            except Exception as error:
                text = f"mujoco cannot draw here ({_reason(error)}); {_HELP}"
                _failed = None if _worked else text
                raise EpoError(text) from error
        self.renderer.update_scene(self.data, self.camera)
        return self.renderer.render().copy()

    def _show(self) -> None:
        if self.window is None:
            # without a screen, the viewer would end the process
            if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
                raise EpoError("a window cannot be opened without a screen; use render_mode='rgb_array'")
            try:
                import glfw
                from mujoco import viewer

                if not glfw.init():  # the viewer would end the process
                    raise EpoError("the screen cannot be used")
                self.window = viewer.launch_passive(self.model, self.data)
            except Exception as error:
                raise EpoError(f"a window cannot be opened ({_reason(error)}); use render_mode='rgb_array'") from error
        self.window.sync()

    def close(self) -> None:
        """Frees the renderer and closes the window."""
        self.new_episode()
