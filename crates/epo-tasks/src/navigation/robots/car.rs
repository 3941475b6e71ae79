//! Car: a body on two driven wheels and a ball; it drives towards −y of its frame.
//!
//! ```text
//! action  (left wheel, right wheel)  torques saturate at 0.02, i.e. at |a| = 0.02
//! obs     accelerometer, velocimeter, gyro, magnetometer, turn rate of the ball, its orientation as a 3×3 matrix
//! ```

use super::Robot;

/// A body on two driven wheels and a ball. It drives towards −y of its frame.
pub static CAR: Robot = Robot {
    name: "Car",
    timestep: 0.004,
    height: 0.1,
    defaults: r#"
    <geom condim="6" density="5"/>
    <joint damping=".001"/>
    <motor ctrlrange="-1 1" ctrllimited="true" forcerange="-.02 .02" forcelimited="true"/>
  "#,
    body: r#"
      <joint name="agent" type="free" damping="0"/>
      <geom name="agent" type="box" size=".1 .1 .05" rgba=".7412 .0431 .1843 1"/>
      <geom name="back_bumper" type="box" size=".1 .01 .05" pos="0 .15 0" rgba=".0039 .1529 .3961 1"/>
      <geom name="back_connector" type="box" size=".01 .025 .03" pos="0 .125 0" rgba=".0039 .1529 .3961 1"/>
      <geom name="front_bumper" type="box" size=".05 .01 .05" pos="0 -.165 0" rgba=".0039 .1529 .3961 1"/>
      <geom name="front_connector" type="box" size=".05 .03 .01" pos="0 -.13 .04" rgba=".0039 .1529 .3961 1"/>
      <site name="agent"/>
      <body name="left" pos="-.1 .1 -.05">
        <joint name="left" type="hinge" axis="1 0 0"/>
        <geom name="left" type="cylinder" size=".05" fromto="-.055 0 0 -.005 0 0" rgba=".7412 .0431 .1843 1"/>
      </body>
      <body name="right" pos=".1 .1 -.05">
        <joint name="right" type="hinge" axis="1 0 0"/>
        <geom name="right" type="cylinder" size=".05" fromto=".005 0 0 .055 0 0" rgba=".7412 .0431 .1843 1"/>
      </body>
      <body name="rear" pos="0 -.1 -.05">
        <joint name="rear" type="ball"/>
        <geom name="rear" type="sphere" size=".05" rgba=".7412 .0431 .1843 1"/>
      </body>
    "#,
    sensors: r#"
    <accelerometer site="agent"/>
    <velocimeter site="agent"/>
    <gyro site="agent"/>
    <magnetometer site="agent"/>
    <ballangvel joint="rear"/>
    <ballquat joint="rear"/>
  "#,
    actuators: r#"
    <motor jointinparent="left" gear="1"/>
    <motor jointinparent="right" gear="1"/>
  "#,
    act_len: 2,
    obs_len: 24,
    observe,
};

fn observe(sensors: &[f64], obs: &mut [f64]) {
    obs[..15].copy_from_slice(&sensors[..15]);
    obs[15..].copy_from_slice(&rotation([sensors[15], sensors[16], sensors[17], sensors[18]]));
}

/// The matrix of a quaternion (w, x, y, z), row by row.
fn rotation([w, x, y, z]: [f64; 4]) -> [f64; 9] {
    let (ww, xx, yy, zz) = (w * w, x * x, y * y, z * z);
    [
        ww + xx - yy - zz,
        2.0 * (x * y - w * z),
        2.0 * (x * z + w * y),
        2.0 * (x * y + w * z),
        ww - xx + yy - zz,
        2.0 * (y * z - w * x),
        2.0 * (x * z - w * y),
        2.0 * (y * z + w * x),
        ww - xx - yy + zz,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_turn_about_z_maps_x_to_y() {
        let h = std::f64::consts::FRAC_1_SQRT_2;
        let r = rotation([h, 0.0, 0.0, h]);
        let want = [0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        assert!(r.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-15), "{r:?}");
    }
}
