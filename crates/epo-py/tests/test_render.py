"""Claim: pictures show the episode, and a machine that cannot draw says so."""

import importlib.util
import threading

import numpy as np
import pytest

import epo

# not imported here: without a screen, the package decides how to draw when it is imported
if importlib.util.find_spec("mujoco") is None:
    pytest.skip("mujoco is not installed", allow_module_level=True)


def picture_of(env):
    try:
        return env.render()
    except epo.EpoError as error:
        pytest.skip(f"!!! no pictures on this machine: {error}")


@pytest.mark.parametrize("task", ["SafetyPointGoal1-v0", "SafetyCarButton1-v0", "SafetyHalfCheetahVelocity-v1"])
def test_a_picture_shows_the_present_state(task):
    """This test fails if the picture does not move, or keeps the layout of the last episode."""
    env = epo.make(task, render_mode="rgb_array", width=160, height=120)
    env.reset(seed=0)
    first = picture_of(env)
    assert first.shape == (120, 160, 3) and first.dtype == np.uint8 and first.std() > 10
    assert np.array_equal(first, env.render())
    for _ in range(30):
        env.step(np.ones(env.action_space.shape))
    assert (env.render() != first).any()
    env.reset(seed=0)
    assert np.array_equal(first, env.render()), "the same seed, the same picture"
    env.reset(seed=1)
    assert (env.render() != first).any()
    env.close()


def test_a_video_of_a_policy(tmp_path, small):
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("moviepy")
    run = epo.train("SafetyPointCircle1-v0", runs=tmp_path, **small)
    env = gymnasium.make("epo:SafetyPointCircle1Gymnasium-v0", render_mode="rgb_array", width=128, height=128)
    env.reset(seed=0)
    picture_of(env)
    env = gymnasium.wrappers.RecordVideo(env, str(tmp_path / "videos"), video_length=20)
    policy = epo.load(run)
    obs, _ = env.reset(seed=0)
    for _ in range(25):
        obs, *_ = env.step(policy.predict(obs).astype(np.float32))
    env.close()
    (video,) = (tmp_path / "videos").glob("*.mp4")
    assert video.stat().st_size > 1000


def test_every_camera_and_the_distances():
    pictures = []
    for camera in (dict(camera_name="vision"), dict(camera_name="track"), dict(camera_id=2), dict(camera_id=3)):
        with epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=64, height=48, **camera) as env:
            env.reset(seed=0)
            pictures.append(picture_of(env))
    assert all((a != b).any() for i, a in enumerate(pictures) for b in pictures[:i])
    with epo.make("SafetyPointGoal1-v0", render_mode="depth_array", width=64, height=48, camera_name="fixedfar") as env:
        env.reset(seed=0)
        depth = picture_of(env)
    assert depth.shape == (48, 64) and 4 < np.median(depth) < 8, "the camera is 5.5 m above the arena"
    with pytest.raises(ValueError, match="camera_name is one of"):
        epo.make("SafetyPointGoal1-v0", camera_name="top")


@pytest.mark.parametrize("size", [0, -3, 4097, 12.5, "a", True])
def test_a_bad_size_is_refused_before_anything_is_drawn(size):
    """This test fails if a bad size reaches MuJoCo, where it would end rendering for the process."""
    with pytest.raises(ValueError, match="`width` takes a whole number from 1 to 4096"):
        epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=size)


def test_one_failure_does_not_end_rendering(monkeypatch):
    env = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    first = picture_of(env)
    import mujoco

    real = mujoco.Renderer

    def broken(*args):
        raise RuntimeError("no memory")

    monkeypatch.setattr(mujoco, "Renderer", broken)
    env.reset(seed=0)
    with pytest.raises(epo.EpoError, match="no memory"):
        env.render()
    monkeypatch.setattr(mujoco, "Renderer", real)
    assert np.array_equal(env.render(), first)


def test_any_thread_can_draw_and_close():
    """This test fails if a picture is drawn by the thread that asks for it: OpenGL ties what it draws with to one thread."""
    env = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    first = picture_of(env)
    seen = []

    def work():
        try:
            seen.append(env.render())
            env.reset(seed=1)
            seen.append(env.render())
            other = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=64, height=48)
            other.reset(seed=1)
            seen.append(other.render())
            env.close()
        except BaseException as error:
            seen.append(error)
            raise

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert len(seen) == 3, seen
    assert np.array_equal(seen[0], first) and np.array_equal(seen[1], seen[2]) and not np.array_equal(seen[1], first)


def test_threads_that_draw_at_once_get_their_own_pictures():
    want, got = {}, {}

    def pictures(seed):
        env = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=64, height=48)
        result = []
        for _ in range(2):
            env.reset(seed=seed)
            result.append(env.render())
        return result

    env = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    picture_of(env)
    for seed in range(3):
        want[seed] = pictures(seed)
    threads = [threading.Thread(target=lambda seed=seed: got.update({seed: pictures(seed)})) for seed in range(3)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert all(np.array_equal(got[seed], want[seed]) for seed in range(3))


def test_a_new_episode_does_not_change_the_pictures_of_another_environment():
    """This test fails if a renderer is freed while the context of another one is current, whose textures then vanish."""
    one, other = (epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=64, height=48) for _ in range(2))
    one.reset(seed=0), other.reset(seed=1)
    picture_of(one)
    before = other.render()
    one.reset(seed=2)
    assert np.array_equal(other.render(), before)
    one.render(), other.render(), one.close()
    assert np.array_equal(other.render(), before)


@pytest.mark.parametrize("end", ["os._exit(0)", "env.close(); sys.exit(0)", "sys.exit(0)"])
def test_a_forked_child_that_draws_gets_an_exception(python, end):
    """This test fails if the child waits for the threads of the driver, which only the parent has."""
    script = f"""
import os, sys, numpy as np, epo
env = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=64, height=48)
env.reset(seed=0)
try:
    first = env.render()
except epo.EpoError as error:
    print("no pictures", error)
    sys.exit()
if os.fork() == 0:
    for _ in range(2):
        env.step(np.zeros(2))
        try:
            env.render()
        except epo.EpoError as error:
            os.write(1, f"refused: {{error}}\\n".encode())
        env.reset(seed=1)
    {end}
pid, status = os.wait()
env.reset(seed=0)
print("child", status, "parent", np.array_equal(env.render(), first))
"""
    done = python(script, timeout=60)
    if done.stdout.startswith("no pictures"):
        pytest.skip(f"!!! no pictures on this machine: {done.stdout}")
    *refused, last = done.stdout.splitlines()
    assert len(refused) == 2 and all("a forked process cannot draw after its parent" in line for line in refused), done
    assert last == "child 0 parent True", done


def test_a_forked_child_can_draw_if_its_parent_has_not(python):
    script = """
import os, sys, epo
env = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=64, height=48)
env.reset(seed=0)
if os.fork() == 0:
    try:
        os.write(1, f"{env.render().shape}".encode())
    except epo.EpoError as error:
        os.write(1, f"no pictures {error}".encode())
    sys.exit(0)
sys.exit(os.wait()[1])
"""
    said = python(script, timeout=60).stdout
    if said.startswith("no pictures"):
        pytest.skip(f"!!! no pictures on this machine: {said}")
    assert said == "(48, 64, 3)"


def test_without_a_render_mode_there_is_no_picture():
    env = epo.make("SafetyPointGoal1-v0")
    env.reset(seed=0)
    with pytest.raises(epo.EpoError, match="render_mode='rgb_array'"):
        env.render()
    with pytest.raises(ValueError, match="render_mode is"):
        epo.make("SafetyPointGoal1-v0", render_mode="ascii")


def test_a_machine_that_cannot_draw_says_what_to_do(python):
    script = """
import epo
env = epo.make("SafetyPointGoal1-v0", render_mode="{mode}")
try:
    env.reset(seed=0)
    env.render()
except epo.EpoError as error:
    print("refused:", error)
"""
    no_screen = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}
    not_there = {"DISPLAY": ":99", "WAYLAND_DISPLAY": ""}
    for mode, env in (("rgb_array", {"MUJOCO_GL": "glfw", "DISPLAY": ""}), ("human", no_screen), ("human", not_there)):
        done = python(script.format(mode=mode), env=env, timeout=120)
        assert done.stdout.startswith("refused:"), (mode, done)
    done = python("import sys; sys.modules['mujoco'] = None\n" + script.format(mode="rgb_array"))
    assert "pip install mujoco" in done.stdout


@pytest.mark.parametrize("backend", ["", "egl", "osmesa", "glfw"])
def test_a_machine_without_opengl_steps_and_says_that_it_cannot_draw(python, backend):
    """This test fails if a machine without the libraries of OpenGL cannot use the tasks, or if the process ends there."""
    script = """
import ctypes, ctypes.util, os
os.environ["MUJOCO_GL"] or os.environ.pop("MUJOCO_GL")
find, load = ctypes.util.find_library, ctypes.CDLL.__init__
is_gl = lambda name: any(part in str(name).rsplit("/", 1)[-1] for part in ("GL", "OSMesa", "glfw"))
def missing(self, name, *args, **kwargs):
    if is_gl(name):
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")
    load(self, name, *args, **kwargs)
ctypes.util.find_library = lambda name: None if is_gl(name) else find(name)
ctypes.CDLL.__init__ = missing

import numpy as np, epo
env = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array")
env.reset(seed=0)
for _ in range(2):
    env.step(np.zeros(2))
    try:
        print("drawn", env.render().shape)
    except epo.EpoError as error:
        print("refused:", error)
"""
    done = python(script, env={"MUJOCO_GL": backend, "DISPLAY": "", "WAYLAND_DISPLAY": ""}, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and all(line.startswith("refused: mujoco cannot draw here") for line in lines), done
    assert "MUJOCO_GL" in lines[0], "it says what to do"


def test_without_a_screen_the_package_chooses_how_to_draw(python):
    script = """
import os
os.environ.pop("MUJOCO_GL", None), os.environ.pop("DISPLAY", None)
import epo
env = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array")
env.reset(seed=0)
try:
    print("drawn", env.render().std() > 10)
except epo.EpoError as error:
    print("refused", error)
"""
    assert python(script).stdout.split(" ")[0] in ("drawn", "refused")
