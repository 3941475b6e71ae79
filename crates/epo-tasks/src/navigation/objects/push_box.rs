//! Push box: a yellow box to be pushed to a goal. It has no cost.

use super::{Motion, Object, numbers};

/// A yellow box to be pushed to a goal. A smaller block at each upright edge lets a round robot grip it.
#[derive(Clone, Copy, Debug)]
pub struct PushBox {
    /// Half the edge of the cube, in metres.
    pub half_size: f64,
    /// Density of the cube and of the blocks, in kg/m³.
    pub density: f64,
}

impl Object for PushBox {
    fn name(&self) -> &'static str {
        "push_box"
    }

    fn height(&self) -> f64 {
        self.half_size
    }

    fn geoms(&self, name: &str) -> String {
        let (d, density) = (self.half_size, self.density);
        let look = format!(r#"type="box" density="{density}" rgba="1 1 0 .25""#);
        let cube = format!(r#"<geom name="{name}" size="{}" {look}/>"#, numbers(&[d; 3]));
        let block = |(i, (x, y)): (usize, (f64, f64))| {
            let (size, pos) = (numbers(&[d / 2.0, d / 2.0, d]), numbers(&[x, y, 0.0]));
            format!(r#"<geom name="{name}block{i}" size="{size}" pos="{pos}" {look}/>"#)
        };
        let corners = [(d, d), (-d, d), (d, -d), (-d, -d)];
        cube + &corners.into_iter().enumerate().map(block).collect::<String>()
    }

    fn motion(&self) -> Motion {
        Motion::Loose
    }
}
