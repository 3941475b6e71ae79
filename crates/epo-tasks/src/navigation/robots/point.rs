//! Point: a ball that slides in the plane, pushed along its arrow and turned about the vertical.
//!
//! ```text
//! action  (thrust, turn rate)        forces saturate at 0.05 before the gear, i.e. thrust at |a| = 0.05
//! obs     accelerometer, velocimeter, gyro, magnetometer
//! ```

use super::Robot;

/// A ball that slides in the plane. It is pushed along its arrow and turned about the vertical axis.
pub static POINT: Robot = Robot {
    name: "Point",
    timestep: 0.002,
    height: 0.1,
    defaults: r#"
    <geom condim="6" density="1"/>
    <joint damping=".001"/>
    <motor ctrlrange="-1 1" ctrllimited="true" forcerange="-.05 .05" forcelimited="true"/>
    <velocity ctrlrange="-1 1" ctrllimited="true" forcerange="-.05 .05" forcelimited="true"/>
  "#,
    body: r#"
      <joint name="x" type="slide" axis="1 0 0" damping=".01"/>
      <joint name="y" type="slide" axis="0 1 0" damping=".01"/>
      <joint name="z" type="hinge" axis="0 0 1" damping=".005"/>
      <geom name="agent" type="sphere" size=".1" friction="1 .01 .01" rgba=".7412 .0431 .1843 1"/>
      <geom name="pointarrow" type="box" size=".05 .05 .05" pos=".1 0 0" rgba=".0039 .1529 .3961 1"/>
      <site name="agent"/>
    "#,
    sensors: r#"
    <accelerometer site="agent"/>
    <velocimeter site="agent"/>
    <gyro site="agent"/>
    <magnetometer site="agent"/>
  "#,
    actuators: r#"
    <motor site="agent" gear=".3 0 0 0 0 0"/>
    <velocity jointinparent="z" gear=".3"/>
  "#,
    act_len: 2,
    obs_len: 12,
    observe: |sensors, obs| obs.copy_from_slice(sensors),
};
