//! Tests of the wrapper around MuJoCo: reading and writing the state, sleeping bodies, copies, and errors.

use std::path::Path;

use epo_mujoco::{BodyId, Error, Shape, Sim, Trouble, fatal_errors};

/// A model with a floor, a box above it, a ball welded to a mocap body, a fixed mark, and a slider with a motor.
const SCENE: &str = r#"<mujoco>
  <size memory="1M"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="box" pos="1 2 .5"><freejoint/><geom name="box" type="box" size=".1 .1 .1" rgba="1 0 0 .5"/></body>
    <body name="carried" pos="3 0 .5"><freejoint/><geom name="carried" size=".1"/></body>
    <body name="carrier" mocap="true"><geom name="carrier" size=".05" contype="0" conaffinity="0"/></body>
    <body name="mark" pos="-1 -1 .1"><geom name="mark" pos=".25 0 0" type="cylinder" size=".3 .1" contype="0" conaffinity="0"/></body>
    <body name="slider" pos="0 5 1"><joint type="slide" axis="1 0 0"/><geom size=".1"/><site name="s"/></body>
  </worldbody>
  <equality><weld body1="carrier" body2="carried"/></equality>
  <sensor><accelerometer site="s"/></sensor>
  <actuator><motor site="s" gear="1 0 0 0 0 0"/></actuator>
</mujoco>"#;

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn bodies_are_placed_and_the_weld_follows() {
    let mut sim = Sim::from_xml(SCENE).unwrap();
    let (body, carried) = (sim.body("box").unwrap(), sim.body("carried").unwrap());
    sim.place(body, [-2.0, 0.5, 0.1], [1.0, 0.0, 0.0, 0.0]);
    sim.place(carried, [0.0, -3.0, 0.5], [1.0, 0.0, 0.0, 0.0]);
    sim.reset_placed();
    sim.forward();
    assert_eq!(sim.xpos(body), [-2.0, 0.5, 0.1]);
    assert_eq!(sim.qpos()[..3], [-2.0, 0.5, 0.1]);
    let touching: Vec<_> = sim.contacts().collect();
    let (floor, cube) = (sim.geom("floor").unwrap(), sim.geom("box").unwrap());
    assert!(!touching.is_empty() && touching.iter().all(|&pair| pair == [floor, cube]), "{touching:?}");
    // The weld keeps the new distance: the ball does not return to its position in the compiled model.
    for _ in 0..100 {
        sim.step();
    }
    sim.forward();
    let [x, y, _] = sim.xpos(carried);
    assert!(x.abs() < 0.05 && (y + 3.0).abs() < 0.05, "at {x} {y}");
    sim.mocap_pos_mut()[0] = [0.5, 0.0, 0.0];
    for _ in 0..500 {
        sim.step();
    }
    assert!(
        (sim.xpos(carried)[0] - 0.5).abs() < 0.05,
        "the ball does not follow its carrier: {:?}",
        sim.xpos(carried)
    );
}

#[test]
fn fixed_bodies_move_at_once_and_stay_there() {
    let mut sim = Sim::from_xml(SCENE).unwrap();
    let (mark, geom) = (sim.body("mark").unwrap(), sim.geom("mark").unwrap());
    for sleep in [false, true] {
        sim.forward();
        sim.set_sleep(sleep);
        let at = [4.0 + f64::from(u8::from(sleep)), 4.5, 0.1];
        sim.move_fixed(mark, [at[0], at[1]]);
        for _ in 0..3 {
            let offset = [at[0] + 0.25, at[1], at[2]]; // position of the geom in its body
            assert_eq!(
                (sim.xpos(mark), sim.xipos()[mark.0], sim.geom_xpos(geom)),
                (at, offset, offset),
                "{sleep}"
            );
            sim.step();
        }
    }
}

#[test]
fn a_body_at_rest_sleeps_until_it_is_touched_or_all_are_woken() {
    let mut sim = Sim::from_xml(SCENE).unwrap();
    let body = sim.body("box").unwrap();
    sim.place(body, [-2.0, 0.5, 0.1 - 1e-5], [1.0, 0.0, 0.0, 0.0]);
    let slider = sim.body("slider").unwrap();
    sim.place(slider, [-1.0, 0.5, 0.15], [1.0, 0.0, 0.0, 0.0]);
    sim.reset_placed();
    sim.forward();
    let mut awake = sim.try_clone().unwrap();
    sim.set_sleep(true);
    assert!(!sim.is_asleep(body));
    let place = |sim: &Sim| bits(&sim.xpos(body));
    for _ in 0..500 {
        sim.step();
        awake.step();
    }
    assert!(sim.is_asleep(body));
    assert!(!awake.is_asleep(body), "sleep must be off by default");
    assert!(!sim.is_asleep(slider), "a body with a motor never sleeps");
    assert!(!sim.is_asleep(sim.body("mark").unwrap()), "a fixed body never sleeps");
    let slept_at = place(&sim);
    for _ in 0..100 {
        sim.step();
    }
    assert_eq!(place(&sim), slept_at, "a sleeping body has moved");
    *sim.qpos_mut().last_mut().unwrap() = -0.85; // the slider, now 5 cm into the box
    sim.forward();
    assert!(!sim.is_asleep(body), "a body that is touched must wake up");
    sim.reset();
    sim.forward();
    for _ in 0..500 {
        sim.step();
    }
    assert!(sim.is_asleep(body));
    sim.set_sleep(false);
    sim.forward();
    assert!(!sim.is_asleep(body));
}

#[test]
fn a_copy_is_independent_and_steps_in_the_same_way() {
    let mut sim = Sim::from_xml(SCENE).unwrap();
    let mut copy = sim.try_clone().unwrap();
    for _ in 0..50 {
        sim.step();
    }
    assert_ne!(bits(sim.qpos()), bits(copy.qpos()));
    for _ in 0..50 {
        copy.step();
    }
    assert_eq!(bits(sim.qpos()), bits(copy.qpos()));
    drop(sim);
    copy.step();
}

#[test]
fn a_step_that_reuses_the_last_forward_pass_has_the_same_bits() {
    let mut sim = Sim::from_xml(SCENE).unwrap();
    let mut plain = sim.try_clone().unwrap();
    for t in 0..200 {
        for s in [&mut sim, &mut plain] {
            s.forward();
            s.ctrl_mut()[0] = (t % 7) as f64;
        }
        sim.set_sensors(false);
        sim.step_from_forward();
        sim.set_sensors(true);
        plain.step();
        assert_eq!(bits(sim.qpos()), bits(plain.qpos()), "step {t}");
        assert_eq!(bits(sim.qvel()), bits(plain.qvel()), "step {t}");
    }
}

#[test]
fn velocities_are_of_the_frame_in_world_axes() {
    let mut sim = Sim::from_xml(SCENE).unwrap();
    let (body, slider) = (sim.body("box").unwrap(), sim.body("slider").unwrap());
    sim.qvel_mut()[..3].copy_from_slice(&[1.0, -2.0, 0.25]);
    *sim.qvel_mut().last_mut().unwrap() = 3.0;
    sim.forward();
    let close = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(close(sim.velocity(body), [1.0, -2.0, 0.25]), "{:?}", sim.velocity(body));
    assert!(close(sim.velocity(slider), [3.0, 0.0, 0.0]), "{:?}", sim.velocity(slider));
    assert_eq!(sim.velocity(BodyId(0)), [0.0; 3]);
}

#[test]
fn geoms_are_listed_with_shape_size_and_colour() {
    let sim = Sim::from_xml(SCENE).unwrap();
    let geoms = sim.geoms();
    assert_eq!(geoms.len(), 6);
    let cube = geoms.iter().find(|g| g.name == "box").unwrap();
    assert_eq!((cube.shape, cube.size, cube.rgba), (Shape::Box, [0.1; 3], [1.0, 0.0, 0.0, 0.5]));
    assert_eq!(cube.body, sim.body("box").unwrap());
    assert_eq!(geoms.iter().find(|g| g.name == "mark").unwrap().shape, Shape::Cylinder);
}

#[test]
fn divergence_is_reported_and_the_library_writes_no_log() {
    let mut sim = Sim::from_xml(SCENE).unwrap();
    assert_eq!(sim.trouble(), None);
    sim.qvel_mut()[0] = f64::NAN;
    sim.step();
    assert_eq!(sim.trouble(), Some(Trouble::Diverged));
    assert!(sim.qpos().iter().all(|q| q.is_finite()), "MuJoCo resets a diverged simulation");
    assert!(!Path::new("MUJOCO_LOG.TXT").exists());
    sim.reset();
    assert_eq!(sim.trouble(), None, "a reset must clear the divergence");
    sim.qpos_mut()[0] = 1e11;
    sim.check_state();
    assert_eq!(sim.trouble(), Some(Trouble::Diverged), "a huge number counts as divergence");
}

#[test]
fn too_many_contacts_for_the_arena_are_reported() {
    let balls: String = (0..60)
        .map(|i| {
            format!(
                "<body pos='0 0 {}'><freejoint/><geom size='.2' condim='6'/></body>",
                0.1 + 0.01 * f64::from(i)
            )
        })
        .collect();
    let xml = format!("<mujoco><size memory='1M'/><worldbody>{balls}</worldbody></mujoco>");
    let mut sim = Sim::from_xml(&xml).unwrap();
    sim.forward();
    assert_eq!(sim.trouble(), Some(Trouble::OutOfMemory));
    assert!(!Path::new("MUJOCO_LOG.TXT").exists());
}

/// Without the jump out of the call, a fatal error inside MuJoCo would end the process, and this test with it.
/// The test also fails if the simulation cannot be used afterwards, or if its memory is not empty again.
#[test]
fn a_fatal_error_inside_mujoco_costs_one_episode() {
    let balls: String = (0..20)
        .map(|i| {
            format!(
                "<body pos='{} 0 .3'><freejoint/><geom size='.1' condim='6'/></body>",
                0.19 * f64::from(i)
            )
        })
        .collect();
    let (mut fatal, mut whole) = (0, 0);
    // the stack of a step is too small for some of these sizes; which ones depends on MuJoCo
    for kilobytes in [20, 30, 40, 60, 80, 120, 200, 400, 2000] {
        let xml = format!(
            "<mujoco><size memory='{kilobytes}K'/><worldbody><geom type='plane' size='9 9 .1'/>{balls}</worldbody></mujoco>"
        );
        let Ok(mut sim) = Sim::from_xml(&xml) else { continue };
        let before = fatal_errors();
        for _ in 0..3 {
            sim.reset();
            let first = bits(sim.qpos());
            let began = fatal_errors();
            for _ in 0..300 {
                sim.step();
                if sim.trouble().is_some() {
                    break;
                }
            }
            if fatal_errors() > began {
                assert_eq!(sim.trouble(), Some(Trouble::OutOfMemory), "{kilobytes}K");
                assert_eq!(bits(sim.qpos()), first, "back in the initial state");
            }
        }
        match fatal_errors() - before {
            0 => whole += 1,
            n => fatal += n,
        }
    }
    assert!(fatal >= 3 && whole >= 1, "{fatal} fatal errors, {whole} sizes without");
}

#[test]
fn an_invalid_model_is_an_error() {
    assert!(matches!(Sim::from_xml("<mujoco><worldbody><body/></worldbody>"), Err(Error::Compile(_))));
    let sim = Sim::from_xml(SCENE).unwrap();
    let missing = sim.body("bx").unwrap_err();
    assert_eq!(missing.to_string(), "the model has no body named `bx`");
}
