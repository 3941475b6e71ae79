//! The replay as an animated picture (GIF). The view is from above, or from the side in velocity
//! tasks. It needs no browser, and the same episode gives the same bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use epo_report::plot::{Anchor, Canvas, Rgb};
use epo_tasks::{Geom, Shape};
use gif::{DisposalMethod, Encoder, EncodingError, Frame, Repeat};

use crate::{PlayedEpisode, Recording, Replay};

/// Width and height of the scene of one policy, in pixels.
const SIDE: f32 = 400.0;
/// Height of the text above a scene, in pixels.
const HEAD: f32 = 54.0;
/// Height of the time line below a scene, in pixels.
const FOOT: f32 = 22.0;
/// Largest number of frames.
const FRAMES: usize = 250;
/// Time between two frames, in hundredths of a second.
const DELAY: u16 = 5;
/// Number of steps of the path that are drawn clearly.
const RECENT: usize = 200;
/// Index of the colour that leaves a pixel as it was.
const KEEP: u8 = 255;

/// Colours of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Dark on white.
    Light,
    /// Light on black.
    Dark,
}

/// The reason why a picture could not be made.
pub type PictureError = EncodingError;

struct Colours {
    paper: Rgb,
    floor: Rgb,
    grid: Rgb,
    ink: Rgb,
    soft: Rgb,
    path: Rgb,
    cost: Rgb,
}

impl Theme {
    fn colours(self) -> Colours {
        match self {
            Self::Light => Colours {
                paper: [255, 255, 255],
                floor: [246, 247, 249],
                grid: [222, 226, 232],
                ink: [31, 35, 40],
                soft: [89, 99, 110],
                path: [47, 111, 208],
                cost: [209, 36, 47],
            },
            Self::Dark => Colours {
                paper: [13, 17, 23],
                floor: [33, 38, 46],
                grid: [52, 59, 70],
                ink: [230, 233, 238],
                soft: [154, 164, 178],
                path: [127, 178, 255],
                cost: [255, 107, 107],
            },
        }
    }
}

impl Replay {
    /// Returns the first episode as an animated GIF. Two policies are drawn side by side.
    ///
    /// # Errors
    /// If the encoder refuses a frame, which it does not for frames of this size.
    pub fn to_gif(&self, theme: Theme) -> Result<Vec<u8>, PictureError> {
        let sides = self.episodes.first().map_or(&[][..], Vec::as_slice);
        let steps = sides.iter().map(|side| side.recording.steps()).max().unwrap_or(0);
        let stride = steps.div_ceil(FRAMES).max(1);
        let shown: Vec<usize> = (0..=steps).step_by(stride).collect();
        let window = Window::around(sides);
        let scenes: Vec<Scene<'_>> = sides.iter().map(|played| Scene { played, window }).collect();
        let (width, height) = (SIDE as usize * scenes.len().max(1), (HEAD + SIDE + FOOT) as usize);
        let draw = |frame: usize| {
            let colours = theme.colours();
            let drawn: Vec<Vec<u8>> = scenes.iter().map(|scene| scene.draw(frame, steps, &colours)).collect();
            let row = 4 * SIDE as usize;
            let rows =
                (0..height).flat_map(|y| drawn.iter().map(move |pixels| &pixels[y * row..(y + 1) * row]));
            rows.collect::<Vec<_>>().concat()
        };
        let palette = Palette::of(shown.iter().step_by(8).map(|&frame| draw(frame)));
        let mut out = Vec::new();
        let (w, h) = (width as u16, height as u16);
        let mut encoder = Encoder::new(&mut out, w, h, &palette.bytes())?;
        encoder.set_repeat(Repeat::Infinite)?;
        let mut before: Option<Vec<u8>> = None;
        let mut cache = BTreeMap::new();
        for (i, &frame) in shown.iter().enumerate() {
            let pixels: Vec<u8> = draw(frame)
                .chunks_exact(4)
                .map(|p| palette.nearest([p[0], p[1], p[2]], &mut cache))
                .collect();
            let last = i + 1 == shown.len();
            let delay = if last { 30 * DELAY } else { DELAY };
            encoder.write_frame(&changed(&pixels, before.as_deref(), w, h, delay))?;
            before = Some(pixels);
        }
        drop(encoder);
        Ok(out)
    }
}

/// The frame that turns `before` into `now`: the rectangle that differs, with `KEEP` where a pixel stays.
fn changed(now: &[u8], before: Option<&[u8]>, width: u16, height: u16, delay: u16) -> Frame<'static> {
    let (w, h) = (usize::from(width), usize::from(height));
    let differs = |x: usize, y: usize| before.is_none_or(|b| b[y * w + x] != now[y * w + x]);
    let rows: Vec<usize> = (0..h).filter(|&y| (0..w).any(|x| differs(x, y))).collect();
    let (top, bottom) = (rows.first().copied().unwrap_or(0), rows.last().copied().unwrap_or(0));
    let columns: Vec<usize> = (0..w).filter(|&x| (top..=bottom).any(|y| differs(x, y))).collect();
    let (left, right) = (columns.first().copied().unwrap_or(0), columns.last().copied().unwrap_or(0));
    let mut buffer = Vec::with_capacity((right - left + 1) * (bottom - top + 1));
    for y in top..=bottom {
        buffer.extend((left..=right).map(|x| if differs(x, y) { now[y * w + x] } else { KEEP }));
    }
    Frame {
        delay,
        dispose: DisposalMethod::Keep,
        transparent: Some(KEEP),
        left: left as u16,
        top: top as u16,
        width: (right - left + 1) as u16,
        height: (bottom - top + 1) as u16,
        buffer: Cow::Owned(buffer),
        ..Frame::default()
    }
}

/// At most 255 colours; the last index is [`KEEP`].
struct Palette(Vec<Rgb>);

impl Palette {
    /// The most frequent colours of some pictures. Colours that are close to a more frequent one are left out.
    fn of(pictures: impl Iterator<Item = Vec<u8>>) -> Self {
        let mut counts: BTreeMap<Rgb, usize> = BTreeMap::new();
        for picture in pictures {
            for p in picture.chunks_exact(4) {
                *counts.entry([p[0], p[1], p[2]]).or_default() += 1;
            }
        }
        let mut all: Vec<(Rgb, usize)> = counts.into_iter().collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut chosen: Vec<Rgb> = Vec::new();
        for apart in [24, 12, 6] {
            for (colour, _) in &all {
                if chosen.len() < usize::from(KEEP)
                    && chosen.iter().all(|c| distance(*c, *colour) >= apart * apart)
                {
                    chosen.push(*colour);
                }
            }
        }
        Self(chosen)
    }

    fn nearest(&self, colour: Rgb, cache: &mut BTreeMap<Rgb, u8>) -> u8 {
        *cache.entry(colour).or_insert_with(|| {
            let best = (0..self.0.len()).min_by_key(|&i| distance(self.0[i], colour));
            best.unwrap_or(0) as u8
        })
    }

    /// Red, green and blue of all 256 entries.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0.iter().flatten().copied().collect();
        bytes.resize(256 * 3, 0);
        bytes
    }
}

fn distance(a: Rgb, b: Rgb) -> i32 {
    (0..3).map(|i| (i32::from(a[i]) - i32::from(b[i])).pow(2)).sum()
}

/// The part of the world that is shown. It is the same for all policies.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Centre in metres; it follows the robot if `follows`.
    centre: [f64; 2],
    /// Half the width, in metres.
    reach: f64,
    follows: bool,
}

impl Window {
    /// Returns the part of the world that contains all objects and the path of the robot. If that
    /// is too large, the window follows the robot instead.
    fn around(sides: &[PlayedEpisode]) -> Self {
        if sides.iter().any(|side| side.recording.runs) {
            return Self { centre: [0.0, 0.75], reach: 1.5, follows: true };
        }
        let (mut low, mut high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
        let mut add = |pose: &[f64; 7], margin: f64| {
            for axis in 0..2 {
                low[axis] = low[axis].min(pose[axis] - margin);
                high[axis] = high[axis].max(pose[axis] + margin);
            }
        };
        for recording in sides.iter().map(|side| &side.recording) {
            for geom in recording.geoms.iter().filter(|g| g.body.0 != 0 && g.shape != Shape::Plane) {
                let margin = geom.size.iter().copied().fold(0.0, f64::max);
                if margin < 3.0 {
                    add(&recording.poses[0][geom.body.0], margin);
                }
            }
            recording.poses.iter().for_each(|frame| add(&frame[recording.robot], 0.25));
        }
        let reach = (high[0] - low[0]).max(high[1] - low[1]) / 2.0;
        let follows = !(0.0..4.0).contains(&reach);
        let centre = [(low[0] + high[0]) / 2.0, (low[1] + high[1]) / 2.0];
        Self { centre, reach: if follows { 2.0 } else { reach }, follows }
    }
}

/// The scene of one policy.
struct Scene<'a> {
    played: &'a PlayedEpisode,
    window: Window,
}

impl Scene<'_> {
    /// Returns the pixels of one moment.
    fn draw(&self, frame: usize, steps: usize, colours: &Colours) -> Vec<u8> {
        let mut canvas = Canvas::new(SIDE, HEAD + SIDE + FOOT);
        let recording = &self.played.recording;
        let now = frame.min(recording.steps());
        let robot = recording.poses[now][recording.robot];
        let Window { reach, .. } = self.window;
        let centre = match (self.window.follows, recording.runs) {
            (false, _) => self.window.centre,
            (true, true) => [robot[0], self.window.centre[1]],
            (true, false) => [robot[0], robot[1]],
        };
        let scale = f64::from(SIDE) / 2.0 / reach;
        let middle = [f64::from(SIDE / 2.0), f64::from(HEAD + SIDE / 2.0)];
        let to = |p: [f64; 2]| {
            ((middle[0] + (p[0] - centre[0]) * scale) as f32, (middle[1] - (p[1] - centre[1]) * scale) as f32)
        };
        let square = |x: f32, y: f32, w: f32, h: f32| [(x, y), (x + w, y), (x + w, y + h), (x, y + h)];
        canvas.fill(&square(0.0, HEAD, SIDE, SIDE), colours.floor, 1.0);
        let lines = |at: f64| ((at - reach).floor() as i64..=(at + reach).ceil() as i64).map(|k| k as f64);
        let far = 2.0 * reach;
        for x in lines(centre[0]) {
            canvas.line(&[to([x, centre[1] - far]), to([x, centre[1] + far])], colours.grid, 1.0, None);
        }
        if recording.runs {
            let ground = to([0.0, 0.0]).1;
            canvas.fill(&square(0.0, ground, SIDE, SIDE), colours.grid, 1.0);
        } else {
            for y in lines(centre[1]) {
                canvas.line(&[to([centre[0] - far, y]), to([centre[0] + far, y])], colours.grid, 1.0, None);
            }
        }
        // objects on the floor, then the path, then standing objects
        let flat = |geom: &&Geom| geom.rgba[3] < 0.9;
        let shown = || recording.geoms.iter().filter(|g| !matches!(g.shape, Shape::Plane | Shape::Other));
        shown().filter(flat).for_each(|geom| self.geom(&mut canvas, geom, now, &to, scale));
        if !recording.runs {
            path(&mut canvas, recording, now, &to, colours);
        }
        shown().filter(|g| !flat(g)).for_each(|geom| self.geom(&mut canvas, geom, now, &to, scale));
        let paid = now > 0 && recording.costs[now - 1] > 0.0;
        if paid {
            let at = if recording.runs { [robot[0], robot[2]] } else { [robot[0], robot[1]] };
            let ring = circle(to(at), (if recording.runs { 0.5 } else { 0.22 } * scale) as f32);
            canvas.line(&ring, colours.cost, 3.0, None);
        }
        // above and below the scene; these areas also cover parts that extend beyond the scene
        canvas.fill(&square(0.0, 0.0, SIDE, HEAD), colours.paper, 1.0);
        canvas.fill(&square(0.0, HEAD + SIDE, SIDE, FOOT), colours.paper, 1.0);
        self.words(&mut canvas, now, paid, colours);
        self.time_line(&mut canvas, now, steps, colours);
        canvas.to_pixels()
    }

    fn words(&self, canvas: &mut Canvas, now: usize, paid: bool, colours: &Colours) {
        let PlayedEpisode { algo, limit, recording, .. } = self.played;
        let (ret, cost): (f64, f64) =
            (recording.rewards[..now].iter().sum(), recording.costs[..now].iter().sum());
        let name = format!("{algo} · {}", recording.task);
        canvas.text(&name, (8.0, 20.0), 14.0, Anchor::Start, colours.ink);
        canvas.text(&format!("return {ret:.1}"), (8.0, 42.0), 14.0, Anchor::Start, colours.soft);
        let colour = if paid || cost > *limit { colours.cost } else { colours.soft };
        let text = format!("cost {cost:.0} of {limit:.0}");
        canvas.text(&text, (SIDE - 8.0, 42.0), 14.0, Anchor::End, colour);
    }

    fn time_line(&self, canvas: &mut Canvas, now: usize, steps: usize, colours: &Colours) {
        let recording = &self.played.recording;
        let (top, bottom) = (HEAD + SIDE + 7.0, HEAD + SIDE + 15.0);
        let x = |frame: f32| 8.0 + (SIDE - 16.0) * frame / steps.max(1) as f32;
        let bar = |from: f32, to: f32| [(x(from), top), (x(to), top), (x(to), bottom), (x(from), bottom)];
        canvas.fill(&bar(0.0, steps as f32), colours.grid, 1.0);
        for (t, _) in recording.costs.iter().enumerate().filter(|(_, cost)| **cost > 0.0) {
            let opacity = if t < now { 1.0 } else { 0.35 };
            canvas.fill(&bar(t as f32, t as f32 + 1.0), colours.cost, opacity);
        }
        canvas.line(&[(x(now as f32), top - 4.0), (x(now as f32), bottom + 4.0)], colours.ink, 2.0, None);
    }

    fn geom(
        &self,
        canvas: &mut Canvas,
        geom: &Geom,
        now: usize,
        to: &impl Fn([f64; 2]) -> (f32, f32),
        scale: f64,
    ) {
        let [x, y, z, w, i, j, k] = self.played.recording.poses[now][geom.body.0];
        let (turn, own) = ([w, i, j, k], geom.quat);
        let upright = self.played.recording.runs;
        let place = |local: [f64; 3]| {
            let within = rotate(own, local);
            let p = rotate(turn, [0, 1, 2].map(|a| within[a] + geom.pos[a]));
            if upright { [x + p[0], z + p[2]] } else { [x + p[0], y + p[1]] }
        };
        let [r, g, b, opacity] = geom.rgba;
        let colour = [r, g, b].map(|v| (v.clamp(0.0, 1.0) * 255.0).round() as u8);
        let [a, half, c] = geom.size;
        let radius = (a * scale) as f32;
        let (start, end) = (place([0.0, 0.0, -half]), place([0.0, 0.0, half]));
        let lying = (end[0] - start[0]).hypot(end[1] - start[1]) > 0.3 * half;
        match geom.shape {
            Shape::Box => {
                let signs = [-1.0, 1.0];
                let corners = signs
                    .iter()
                    .flat_map(|i| signs.map(|j| (*i, j)))
                    .flat_map(|(i, j)| signs.map(|k| [i, j, k]));
                let corners = corners.map(|[i, j, k]| place([i * a, j * half, k * c])).collect();
                canvas.fill(&hull(corners).into_iter().map(to).collect::<Vec<_>>(), colour, opacity);
            }
            Shape::Capsule => {
                canvas.faint_line(&[to(start), to(end)], colour, 2.0 * radius, opacity);
                for tip in [start, end] {
                    canvas.fill(&circle(to(tip), radius), colour, opacity);
                }
            }
            Shape::Cylinder if lying => {
                canvas.faint_line(&[to(start), to(end)], colour, 2.0 * radius, opacity);
            }
            _ => canvas.fill(&circle(to(place([0.0; 3])), radius), colour, opacity),
        }
    }
}

/// Draws the path of the robot up to the current frame. Steps with a cost have the colour of costs.
/// The older part of the path is faint.
fn path(
    canvas: &mut Canvas,
    recording: &Recording,
    now: usize,
    to: &impl Fn([f64; 2]) -> (f32, f32),
    colours: &Colours,
) {
    let at = |frame: usize| {
        let pose = &recording.poses[frame][recording.robot];
        to([pose[0], pose[1]])
    };
    let mut from = 0;
    let look = |step: usize| (recording.costs[step] > 0.0, step + RECENT >= now);
    while from < now {
        let end = (from..now).find(|&step| look(step) != look(from)).unwrap_or(now);
        let points: Vec<_> = (from..=end).map(at).collect();
        match look(from) {
            (true, _) => canvas.line(&points, colours.cost, 4.0, None),
            (false, true) => canvas.line(&points, colours.path, 2.5, None),
            (false, false) => canvas.faint_line(&points, colours.path, 1.5, 0.4),
        }
        from = end;
    }
}

fn circle((x, y): (f32, f32), radius: f32) -> Vec<(f32, f32)> {
    let n = 36_u8;
    let point = |k: u8| {
        let angle = f32::from(k) / f32::from(n) * std::f32::consts::TAU;
        (x + radius * angle.cos(), y + radius * angle.sin())
    };
    (0..=n).map(point).collect()
}

/// Rotates a vector by a quaternion (w, x, y, z).
fn rotate([w, x, y, z]: [f64; 4], [a, b, c]: [f64; 3]) -> [f64; 3] {
    let t = [2.0 * (y * c - z * b), 2.0 * (z * a - x * c), 2.0 * (x * b - y * a)];
    [
        a + w * t[0] + y * t[2] - z * t[1],
        b + w * t[1] + z * t[0] - x * t[2],
        c + w * t[2] + x * t[1] - y * t[0],
    ]
}

/// The convex hull of points in the plane, counter-clockwise.
fn hull(mut points: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    points.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    let turns_left = |o: [f64; 2], a: [f64; 2], b: [f64; 2]| {
        (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]) > 0.0
    };
    let chain = |points: &[[f64; 2]]| {
        let mut out: Vec<[f64; 2]> = Vec::new();
        for &p in points {
            while out.len() > 1 && !turns_left(out[out.len() - 2], out[out.len() - 1], p) {
                out.pop();
            }
            out.push(p);
        }
        out.pop();
        out
    };
    let mut all = chain(&points);
    points.reverse();
    all.extend(chain(&points));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_turn_about_z_maps_x_to_y() {
        let h = std::f64::consts::FRAC_1_SQRT_2;
        let [x, y, z] = rotate([h, 0.0, 0.0, h], [1.0, 0.0, 0.5]);
        assert!(x.abs() < 1e-12 && (y - 1.0).abs() < 1e-12 && z == 0.5);
    }

    #[test]
    fn the_hull_has_the_corners_and_nothing_inside() {
        let points = vec![[0.0, 0.0], [2.0, 0.0], [1.0, 0.5], [2.0, 1.0], [0.0, 1.0], [1.0, 0.0]];
        assert_eq!(hull(points), [[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]]);
    }

    #[test]
    fn a_frame_holds_what_changed_and_nothing_else() {
        let (before, mut now) = (vec![1; 12], vec![1; 12]); // 4 × 3 pixels
        now[5] = 2;
        now[10] = 3;
        let frame = changed(&now, Some(&before), 4, 3, 5);
        assert_eq!((frame.left, frame.top, frame.width, frame.height), (1, 1, 2, 2));
        assert_eq!(&*frame.buffer, &[2, KEEP, KEEP, 3]);
        let same = changed(&now, Some(&now), 4, 3, 5);
        assert_eq!((&*same.buffer, same.delay), (&[KEEP][..], 5), "a frame without a change keeps its time");
        assert_eq!(changed(&now, None, 4, 3, 5).buffer.len(), 12);
    }

    #[test]
    fn frequent_colours_are_kept_exactly() {
        let mut picture = Vec::new();
        for (colour, n) in [([10, 20, 30], 50), ([200, 0, 0], 20), ([11, 20, 30], 5)] {
            for _ in 0..n {
                picture.extend(colour);
                picture.push(255_u8);
            }
        }
        let palette = Palette::of(std::iter::once(picture));
        assert_eq!(palette.0, [[10, 20, 30], [200, 0, 0]]);
        let mut cache = BTreeMap::new();
        assert_eq!(palette.nearest([11, 20, 30], &mut cache), 0);
        assert_eq!(palette.nearest([180, 9, 9], &mut cache), 1);
        assert_eq!(palette.bytes().len(), 768);
    }
}
