//! Pictures of the penalty, the path onto the front, and the threshold of exactness, as SVG.
//!
//! Colours are Okabe and Ito's, which stay apart for colour-blind readers, one per α
//! everywhere. Text is at least 1/40 of the width, so that half a slide is enough.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::penalty::{hinge, hinge_slope, region_alpha, smooth, smooth_slope};
use crate::{Cmdp, Front, front, stories};

const BLUE: RGBColor = RGBColor(0, 114, 178);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const ORANGE: RGBColor = RGBColor(213, 94, 0);
const GREY: RGBColor = RGBColor(110, 110, 110);
/// α, its colour, its name.
const ALPHAS: [(f64, RGBColor, &str); 3] =
    [(0.0, BLUE, "α = 0"), (0.5, GREEN, "α = ½"), (1.0, ORANGE, "α = 1")];
const TITLE: (&str, u32) = ("sans-serif", 26);
const LABEL: (&str, u32) = ("sans-serif", 23);

/// A drawing failed; with a string as the canvas this is a bug of the drawing library.
#[derive(Debug, thiserror::Error)]
#[error("a figure could not be drawn: {0}")]
pub struct FigureError(String);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// File names and contents.
pub fn all() -> Result<Vec<(&'static str, String)>, FigureError> {
    let (machine, two) = (stories::maintenance(), stories::fast_or_slow());
    Ok(vec![
        ("path.svg", draw((1200, 520), |area| path(area, &machine, &front(&machine)))?),
        ("penalty.svg", draw((1200, 560), penalty)?),
        ("threshold.svg", draw((1000, 600), |area| threshold(area, &two, &front(&two)))?),
    ])
}

fn draw(size: (u32, u32), figure: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, FigureError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)
            .map_err(|e| e.to_string())
            .and_then(|()| figure(&area).map_err(|e| e.to_string()))
            .and_then(|()| area.present().map_err(|e| e.to_string()))
            .map_err(FigureError)?;
    }
    Ok(svg)
}

/// Where the maximisers of P lie while μ falls from 100/λ* to 0.01/λ*: on the front, and then at the limit.
fn path(area: &Area<'_>, cmdp: &Cmdp, front: &Front) -> Drawn {
    let d = cmdp.limits()[0];
    let (lambda, _) = front.multipliers(d);
    let corners: Vec<(f64, f64)> = front.corners.iter().map(|p| (p.j_c, p.j_r)).collect();
    for (panel, (alpha, colour, name)) in area.split_evenly((1, 3)).iter().zip(ALPHAS) {
        let mut chart = ChartBuilder::on(panel)
            .caption(name, TITLE)
            .margin(8)
            .x_label_area_size(52)
            .y_label_area_size(66)
            .build_cartesian_2d(0.0..16.0, 11.0..21.0)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().x_labels(5).y_labels(5).label_style(LABEL).axis_desc_style(LABEL);
        mesh.x_label_formatter(&whole).y_label_formatter(&whole);
        mesh.x_desc("J_C, expected failures").y_desc("J_R, output").draw()?;
        chart.draw_series(LineSeries::new(corners.clone(), GREY.stroke_width(3)))?;
        chart.draw_series(DashedLineSeries::new([(d, 11.0), (d, 21.0)], 7, 6, BLACK.stroke_width(2)))?;
        chart.draw_series([Text::new("limit d", (d + 0.3, 11.9), LABEL)])?;
        chart.draw_series([Text::new("front", (5.2, 19.2), LABEL.into_font().color(&GREY))])?;
        let mut last = f64::INFINITY;
        for m in [100.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.4, 0.1, 0.01] {
            let (c, r, _) = front.penalised(d, m / lambda, alpha);
            chart.draw_series([Circle::new((c, r), 8, colour.filled())])?;
            // a label where the path has moved on far enough to be told apart
            if last - c > 0.9 {
                chart.draw_series([Text::new(
                    format!("{m}"),
                    (c + 0.3, r - 0.3),
                    LABEL.into_font().color(&colour),
                )])?;
                last = c;
            }
        }
        chart.draw_series([Text::new("numbers: μ λ*", (6.4, 13.2), LABEL.into_font().color(&colour))])?;
    }
    Ok(())
}

/// Axis labels without decimals.
fn whole(x: &f64) -> String {
    format!("{x:.0}")
}

/// The penalty and its slope over the violation.
fn penalty(area: &Area<'_>) -> Drawn {
    let halves = area.split_evenly((1, 2));
    curves(&halves[0], "penalty × μ", 4.0, hinge, smooth, true)?;
    curves(&halves[1], "slope × μ", 6.0, hinge_slope, smooth_slope, false)
}

fn curves(
    area: &Area<'_>,
    title: &str,
    top: f64,
    sharp: fn(f64, f64) -> f64,
    soft: fn(f64, f64) -> f64,
    legend: bool,
) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .caption(title, TITLE)
        .margin(10)
        .margin_right(28)
        .x_label_area_size(52)
        .y_label_area_size(48)
        .build_cartesian_2d(-1.0..2.0, 0.0..top)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().x_labels(7).y_labels(5).label_style(LABEL).axis_desc_style(LABEL);
    mesh.x_desc("F_C, normalised violation (0 is the limit)").draw()?;
    for (x, from) in [("near", -0.95), ("mid", 0.58), ("far", 1.35)] {
        chart.draw_series([Text::new(x, (from, 0.97 * top), LABEL.into_font().color(&GREY))])?;
    }
    for x in [0.0, 0.5, 1.0] {
        chart.draw_series(LineSeries::new([(x, 0.0), (x, top)], GREY.mix(0.5)))?;
    }
    let sample = |f: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
        let points = (0..=600).map(|i| -1.0 + 3.0 * f64::from(i) / 600.0).map(|x| (x, f(x)));
        points.filter(|p| p.1 <= top).collect()
    };
    for (alpha, colour, name) in ALPHAS {
        let line =
            chart.draw_series(LineSeries::new(sample(&|x| sharp(alpha, x)), colour.stroke_width(3)))?;
        line.label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 26, y)], colour.stroke_width(3)));
    }
    // one line per region: at ½ and 1 the rule jumps to another curve
    for (low, high) in [(-1.0, 0.5), (0.5, 1.0), (1.0, 2.0)] {
        let inside = |x: f64| x > low && x <= high;
        let points = sample(&|x| sharp(region_alpha(x), x)).into_iter().filter(|p| inside(p.0));
        let line = chart.draw_series(LineSeries::new(points, BLACK.mix(0.35).stroke_width(9)))?;
        if low < 0.0 {
            line.label("α by region")
                .legend(|(x, y)| PathElement::new([(x, y), (x + 26, y)], BLACK.mix(0.35).stroke_width(9)));
        }
        let points = sample(&|x| soft(region_alpha(x), x)).into_iter().filter(|p| inside(p.0));
        let line = chart.draw_series(DashedLineSeries::new(points, 8, 5, BLACK.stroke_width(3)))?;
        if low < 0.0 {
            line.label("smooth, eq 25")
                .legend(|(x, y)| PathElement::new([(x, y), (x + 26, y)], BLACK.stroke_width(3)));
        }
    }
    if legend {
        let mut labels = chart.configure_series_labels();
        labels.position(SeriesLabelPosition::Coordinate(20, 70)).label_font(LABEL).legend_area_size(34);
        labels.background_style(WHITE.mix(0.85)).draw()?;
    }
    Ok(())
}

/// The violation of the maximiser over μ λ*: where each α becomes exact. The two-state example, so by hand too.
fn threshold(area: &Area<'_>, cmdp: &Cmdp, front: &Front) -> Drawn {
    let d = cmdp.limits()[0];
    let (lambda, _) = front.multipliers(d);
    let mut chart = ChartBuilder::on(area)
        .caption("Violation that the best penalised policy keeps", TITLE)
        .margin(10)
        .margin_right(28)
        .x_label_area_size(56)
        .y_label_area_size(72)
        .build_cartesian_2d((0.099..10.1).log_scale(), -0.06..3.6)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().label_style(LABEL).axis_desc_style(LABEL).x_labels(8).y_labels(7);
    mesh.x_desc("μ λ*  (stricter to the left)").y_desc("F_C = J_C − d").draw()?;
    let marks = [(1.0, "μ = 1/λ*", "α = 1 exact to the left"), (0.5, "μ = ½/λ*", "α = ½ exact to the left")];
    for ((x, at, text), y) in marks.into_iter().zip([2.55, 1.75]) {
        chart.draw_series(DashedLineSeries::new([(x, 0.0), (x, 3.6)], 6, 6, GREY.stroke_width(2)))?;
        chart.draw_series([Text::new(at, (0.125, y), LABEL), Text::new(text, (0.125, y - 0.22), LABEL)])?;
        chart.draw_series(LineSeries::new([(0.27, y - 0.06), (x * 0.98, y - 0.06)], GREY))?;
    }
    for (alpha, colour, name) in ALPHAS {
        let xs = (0..=1200).map(|i| 0.1 * (f64::from(i) / 1200.0 * 100.0_f64.ln()).exp());
        let points = xs.map(|m| (m, front.penalised(d, m / lambda, alpha).0 - d));
        let line = chart.draw_series(LineSeries::new(points, colour.stroke_width(5)))?;
        line.label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 26, y)], colour.stroke_width(5)));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::LowerRight).label_font(LABEL).legend_area_size(34);
    labels.margin(40).background_style(WHITE.mix(0.85)).draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_are_whole_svg_with_text_and_finite_coordinates() {
        for (name, svg) in super::all().unwrap() {
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
            assert!(svg.contains("α = ½") && !svg.contains("NaN") && !svg.contains("inf"), "{name}");
        }
    }
}
