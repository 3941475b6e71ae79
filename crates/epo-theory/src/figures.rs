//! SVG figures of the penalty, of the penalised maximisers on the front, and of the threshold of exactness.
//!
//! Each α has the same colour in all figures. The font size is at least 1/60 of the width of a figure.

use epo_report::plot::{Anchor, Axes, Axis, Canvas, INK, PALETTE, Rgb};

use crate::penalty::{hinge, hinge_slope, region_alpha, smooth, smooth_slope};
use crate::{Cmdp, Front, front, stories};

const GREY: Rgb = [110, 110, 110];
/// Values of α, each with its colour and label.
const ALPHAS: [(f64, Rgb, &str); 3] =
    [(0.0, PALETTE[1], "α = 0"), (0.5, PALETTE[2], "α = ½"), (1.0, PALETTE[0], "α = 1")];
/// Font size of notes inside a plot.
const NOTE: f32 = 16.0;
const DASH: Option<[f32; 2]> = Some([7.0, 6.0]);

/// Returns the file name and the SVG text of every figure.
pub fn all() -> Vec<(&'static str, String)> {
    let (machine, two) = (stories::maintenance(), stories::fast_or_slow());
    vec![
        (
            "path.svg",
            path(&machine, &front(&machine)).to_svg("Maximisers of the penalised objective on the front"),
        ),
        ("penalty.svg", penalty().to_svg("The penalty and its slope over the violation")),
        (
            "threshold.svg",
            threshold(&two, &front(&two)).to_svg("Violation of the best penalised policy over μ"),
        ),
    ]
}

fn polyline(
    canvas: &mut Canvas,
    axes: &Axes,
    points: &[(f64, f64)],
    colour: Rgb,
    width: f32,
    dash: Option<[f32; 2]>,
) {
    let points: Vec<_> = points.iter().map(|&point| axes.at(point)).collect();
    canvas.line(&points, colour, width, dash);
}

fn note(canvas: &mut Canvas, axes: &Axes, text: &str, at: (f64, f64), colour: Rgb) {
    canvas.text(text, axes.at(at), NOTE, Anchor::Start, colour);
}

/// Draws a legend whose first row is at `(x, y)`. Each row shows a sample of a line and its name.
fn legend(canvas: &mut Canvas, (x, y): (f32, f32), lines: &[(&str, Rgb, f32, Option<[f32; 2]>)]) {
    for (i, (name, colour, width, dash)) in lines.iter().enumerate() {
        let y = y + 22.0 * i as f32;
        canvas.line(&[(x, y - 5.0), (x + 28.0, y - 5.0)], *colour, *width, *dash);
        canvas.text(name, (x + 36.0, y), NOTE, Anchor::Start, INK);
    }
}

/// Draws the maximisers of P while μ decreases from 100/λ* to 0.01/λ*. They move along the front towards the limit.
fn path(cmdp: &Cmdp, front: &Front) -> Canvas {
    const PANEL: f32 = 330.0;
    let d = cmdp.limits()[0];
    let (lambda, _) = front.multipliers(d);
    let corners: Vec<(f64, f64)> = front.corners.iter().map(|p| (p.j_c, p.j_r)).collect();
    let mut canvas = Canvas::new(3.0 * PANEL, 400.0);
    for (i, (alpha, colour, name)) in ALPHAS.into_iter().enumerate() {
        let left = PANEL * i as f32;
        let axes = Axes {
            x: Axis::linear(0.0, 16.0, "J_C, expected failures"),
            y: Axis::linear(11.0, 21.0, "J_R, output"),
            area: [left + 82.0, 34.0, left + PANEL - 10.0, 346.0],
        };
        axes.draw_grid(&mut canvas);
        polyline(&mut canvas, &axes, &corners, GREY, 2.2, None);
        polyline(&mut canvas, &axes, &[(d, 11.0), (d, 21.0)], INK, 1.6, DASH);
        note(&mut canvas, &axes, "limit d", (d + 0.3, 11.3), INK);
        note(&mut canvas, &axes, "front", (4.7, 19.3), GREY);
        let mut last = f64::INFINITY;
        for m in [100.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.4, 0.1, 0.01] {
            let (c, r, _) = front.penalised(d, m / lambda, alpha);
            canvas.disc(axes.at((c, r)), 6.0, colour);
            canvas.hover(format!("{name}, μ λ* = {m}"));
            // draw a label only if it does not overlap the previous one
            if last - c > 0.9 {
                note(&mut canvas, &axes, &m.to_string(), (c + 0.4, r - 0.75), colour);
                last = c;
            }
        }
        note(&mut canvas, &axes, "numbers: μ λ*", (6.4, 13.0), colour);
        axes.draw_frame(&mut canvas, name);
    }
    canvas
}

/// Draws the penalty and its slope as functions of the violation.
fn penalty() -> Canvas {
    let mut canvas = Canvas::new(1000.0, 470.0);
    curves(&mut canvas, 0.0, "penalty × μ", 4.0, hinge, smooth);
    curves(&mut canvas, 500.0, "slope × μ", 6.0, hinge_slope, smooth_slope);
    let mut lines: Vec<_> = ALPHAS.into_iter().map(|(_, colour, name)| (name, colour, 2.5, None)).collect();
    lines.push(("α by region", [0xa6; 3], 7.0, None));
    lines.push(("smooth, eq 25", [0; 3], 2.5, Some([8.0, 5.0])));
    legend(&mut canvas, (86.0, 90.0), &lines);
    canvas
}

fn curves(
    canvas: &mut Canvas,
    left: f32,
    title: &str,
    top: f64,
    sharp: fn(f64, f64) -> f64,
    soft: fn(f64, f64) -> f64,
) {
    let axes = Axes {
        x: Axis::linear(-1.0, 2.0, "F_C, normalised violation (0 is the limit)"),
        y: Axis::linear(0.0, top, ""),
        area: [left + 56.0, 36.0, left + 480.0, 416.0],
    };
    axes.draw_grid(canvas);
    for (region, from) in [("near", -0.95), ("mid", 0.62), ("far", 1.35)] {
        note(canvas, &axes, region, (from, 0.95 * top), GREY);
    }
    for x in [0.0, 0.5, 1.0] {
        polyline(canvas, &axes, &[(x, 0.0), (x, top)], [0xb6; 3], 1.0, None);
    }
    let sample = |f: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
        let points = (0..=600).map(|i| -1.0 + 3.0 * f64::from(i) / 600.0).map(|x| (x, f(x)));
        points.filter(|p| p.1 <= top).collect()
    };
    // one line per region, because α by region changes at F = ½ and F = 1 and the curve jumps there
    let within = |(low, high): (f64, f64), points: Vec<(f64, f64)>| -> Vec<(f64, f64)> {
        points.into_iter().filter(|p| p.0 > low && p.0 <= high).collect()
    };
    let regions = [(-1.0, 0.5), (0.5, 1.0), (1.0, 2.0)];
    for region in regions {
        let points = within(region, sample(&|x| sharp(region_alpha(x), x)));
        polyline(canvas, &axes, &points, [0xa6; 3], 7.0, None);
    }
    for (alpha, colour, _) in ALPHAS {
        polyline(canvas, &axes, &sample(&|x| sharp(alpha, x)), colour, 2.5, None);
    }
    for region in regions {
        let points = within(region, sample(&|x| soft(region_alpha(x), x)));
        polyline(canvas, &axes, &points, [0; 3], 2.5, Some([8.0, 5.0]));
    }
    axes.draw_frame(canvas, title);
}

/// Draws the violation of the maximiser as a function of μ λ*. It shows where the penalty becomes exact for each α.
///
/// The CMDP is the two-state example, which can also be solved by hand.
fn threshold(cmdp: &Cmdp, front: &Front) -> Canvas {
    let d = cmdp.limits()[0];
    let (lambda, _) = front.multipliers(d);
    let mut canvas = Canvas::new(860.0, 500.0);
    let axes = Axes {
        x: Axis::logarithmic(
            0.1,
            10.0,
            &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0],
            "μ λ*  (stricter to the left)",
        ),
        y: Axis::linear(-0.06, 3.6, "F_C = J_C − d"),
        area: [86.0, 36.0, 836.0, 446.0],
    };
    axes.draw_grid(&mut canvas);
    let marks = [(1.0, "μ = 1/λ*", "α = 1 exact to the left"), (0.5, "μ = ½/λ*", "α = ½ exact to the left")];
    for ((x, at, text), y) in marks.into_iter().zip([2.55, 1.75]) {
        polyline(&mut canvas, &axes, &[(x, 0.0), (x, 3.6)], GREY, 1.6, DASH);
        note(&mut canvas, &axes, at, (0.125, y), INK);
        note(&mut canvas, &axes, text, (0.125, y - 0.2), INK);
        polyline(&mut canvas, &axes, &[(0.2, y + 0.05), (x * 0.98, y + 0.05)], GREY, 1.0, None);
    }
    for (alpha, colour, _) in ALPHAS {
        let xs = (0..=1200).map(|i| 0.1 * (f64::from(i) / 1200.0 * 100.0_f64.ln()).exp());
        let points: Vec<_> = xs.map(|m| (m, front.penalised(d, m / lambda, alpha).0 - d)).collect();
        polyline(&mut canvas, &axes, &points, colour, 4.0, None);
    }
    let lines = ALPHAS.map(|(_, colour, name)| (name, colour, 4.0, None));
    legend(&mut canvas, (700.0, 350.0), &lines);
    axes.draw_frame(&mut canvas, "Violation that the best penalised policy keeps");
    canvas
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_are_whole_svg_with_text_and_finite_coordinates() {
        for (name, svg) in super::all() {
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
            assert!(
                svg.contains("aria-label=\"α = ½\"") && !svg.contains("NaN") && !svg.contains("inf"),
                "{name}"
            );
        }
    }
}
