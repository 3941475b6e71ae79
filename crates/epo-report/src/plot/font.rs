//! Reads outlines and widths of the characters of the embedded font (DejaVu Sans).
//!
//! It reads the tables `cmap` (format 4), `hmtx`, `loca` and `glyf` of a TrueType file, including composite glyphs. It
//! does not read hinting, kerning and variations. A character that is not in the font has glyph 0, a box.

use std::sync::LazyLock;

use tiny_skia::{Path, PathBuilder, Transform};

/// The font of all figures.
pub(crate) static FONT: LazyLock<Font> =
    LazyLock::new(|| Font::parse(dejavu::sans::regular()).expect("the embedded font is whole"));

/// A parsed TrueType font. Lengths are in font units, and the y axis points upwards.
#[derive(Debug)]
pub(crate) struct Font {
    data: &'static [u8],
    units_per_em: f32,
    /// True if `loca` holds 32-bit offsets.
    long_offsets: bool,
    /// Number of glyphs with their own width in `hmtx`. All other glyphs have the last of these widths.
    widths: usize,
    cmap: usize,
    hmtx: usize,
    loca: usize,
    glyf: usize,
}

/// Maximum depth of nested composite glyphs.
const MAX_DEPTH: usize = 5;

impl Font {
    fn parse(data: &'static [u8]) -> Option<Self> {
        let table = |tag: &[u8; 4]| {
            let entries = (0..usize::from(u16_at(data, 4)?)).map(|i| 12 + 16 * i);
            let entry = entries.into_iter().find(|&at| data.get(at..at + 4) == Some(tag))?;
            Some(u32_at(data, entry + 8)? as usize)
        };
        let (head, hhea, cmap) = (table(b"head")?, table(b"hhea")?, table(b"cmap")?);
        let subtables = (0..usize::from(u16_at(data, cmap + 2)?)).map(|i| cmap + 4 + 8 * i);
        let format4 = subtables.filter_map(|at| Some(cmap + u32_at(data, at + 4)? as usize));
        Some(Self {
            data,
            units_per_em: f32::from(u16_at(data, head + 18)?),
            long_offsets: u16_at(data, head + 50)? != 0,
            widths: usize::from(u16_at(data, hhea + 34)?),
            cmap: format4.into_iter().find(|&at| u16_at(data, at) == Some(4))?,
            hmtx: table(b"hmtx")?,
            loca: table(b"loca")?,
            glyf: table(b"glyf")?,
        })
    }

    /// Returns the width of a text of this size.
    pub(crate) fn width(&self, text: &str, size: f32) -> f32 {
        text.chars().map(|c| self.advance(self.glyph(c))).sum::<f32>() * size / self.units_per_em
    }

    /// Returns the outline of a text of this size; `None` if nothing is drawn.
    ///
    /// The baseline starts at (0, 0), and the y axis points downwards.
    pub(crate) fn outline(&self, text: &str, size: f32) -> Option<Path> {
        let mut builder = PathBuilder::new();
        let scale = size / self.units_per_em;
        let mut x = 0.0;
        for c in text.chars() {
            let glyph = self.glyph(c);
            let place = Transform::from_row(scale, 0.0, 0.0, -scale, x * scale, 0.0);
            // a glyph that cannot be read leaves a gap of its width
            let _ = self.draw(glyph, place, 0, &mut builder);
            x += self.advance(glyph);
        }
        builder.finish()
    }

    /// Returns the glyph of a character from `cmap`, format 4, which holds segments of character codes.
    fn glyph(&self, c: char) -> usize {
        let find = || {
            let code = u16::try_from(u32::from(c)).ok()?;
            let segments = usize::from(u16_at(self.data, self.cmap + 6)? / 2);
            let ends = self.cmap + 14;
            let cell = |column: usize, i: usize| {
                let padding = if column > 0 { 2 } else { 0 };
                ends + padding + 2 * (segments * column + i)
            };
            let i = (0..segments).find(|&i| u16_at(self.data, cell(0, i)).is_some_and(|end| code <= end))?;
            let [start, delta, offset] = [1, 2, 3].map(|column| u16_at(self.data, cell(column, i)));
            let (start, delta, offset) = (start?, delta?, offset?);
            if code < start {
                return None;
            }
            if offset == 0 {
                return Some(code.wrapping_add(delta));
            }
            let at = cell(3, i) + usize::from(offset) + 2 * usize::from(code - start);
            let glyph = u16_at(self.data, at)?;
            Some(if glyph == 0 { 0 } else { glyph.wrapping_add(delta) })
        };
        find().map_or(0, usize::from)
    }

    fn advance(&self, glyph: usize) -> f32 {
        let last = self.widths.saturating_sub(1);
        u16_at(self.data, self.hmtx + 4 * glyph.min(last)).map_or(0.0, f32::from)
    }

    fn draw(&self, glyph: usize, place: Transform, depth: usize, out: &mut PathBuilder) -> Option<()> {
        let offset = |i: usize| match self.long_offsets {
            true => u32_at(self.data, self.loca + 4 * i).map(|at| at as usize),
            false => u16_at(self.data, self.loca + 2 * i).map(|at| 2 * usize::from(at)),
        };
        let (from, to) = (offset(glyph)?, offset(glyph + 1)?);
        if from == to {
            return Some(()); // a space
        }
        let at = self.glyf + from;
        match usize::try_from(i16_at(self.data, at)?) {
            Ok(contours) => self.draw_simple(at + 10, contours, place, out),
            Err(_) if depth < MAX_DEPTH => self.draw_composite(at + 10, place, depth, out),
            Err(_) => None,
        }
    }

    fn draw_composite(
        &self,
        mut at: usize,
        place: Transform,
        depth: usize,
        out: &mut PathBuilder,
    ) -> Option<()> {
        const WORDS: u16 = 0x1;
        const SCALE: u16 = 0x8;
        const MORE: u16 = 0x20;
        const SCALE_XY: u16 = 0x40;
        const MATRIX: u16 = 0x80;
        loop {
            let (flags, part) = (u16_at(self.data, at)?, usize::from(u16_at(self.data, at + 2)?));
            at += 4;
            let (dx, dy);
            if flags & WORDS != 0 {
                (dx, dy) = (f32::from(i16_at(self.data, at)?), f32::from(i16_at(self.data, at + 2)?));
                at += 4;
            } else {
                (dx, dy) = (f32::from(*self.data.get(at)? as i8), f32::from(*self.data.get(at + 1)? as i8));
                at += 2;
            }
            let count = [(SCALE, 1), (SCALE_XY, 2), (MATRIX, 4)];
            let count = count.into_iter().find(|(flag, _)| flags & flag != 0).map_or(0, |(_, n)| n);
            let number = |i: usize| Some(f32::from(i16_at(self.data, at + 2 * i)?) / 16384.0);
            let [a, b, c, d] = match count {
                0 => [1.0, 0.0, 0.0, 1.0],
                1 => [number(0)?, 0.0, 0.0, number(0)?],
                2 => [number(0)?, 0.0, 0.0, number(1)?],
                _ => [number(0)?, number(1)?, number(2)?, number(3)?],
            };
            at += 2 * count;
            let within = Transform::from_row(a, b, c, d, dx, dy);
            self.draw(part, within.post_concat(place), depth + 1, out)?;
            if flags & MORE == 0 {
                return Some(());
            }
        }
    }

    fn draw_simple(
        &self,
        ends: usize,
        contours: usize,
        place: Transform,
        out: &mut PathBuilder,
    ) -> Option<()> {
        const ON_CURVE: u8 = 0x1;
        const REPEAT: u8 = 0x8;
        let end = |i: usize| u16_at(self.data, ends + 2 * i).map(usize::from);
        let count = contours.checked_sub(1).map_or(Some(0), |last| Some(end(last)? + 1))?;
        let instructions = usize::from(u16_at(self.data, ends + 2 * contours)?);
        let mut at = ends + 2 * contours + 2 + instructions;
        let mut flags: Vec<u8> = Vec::with_capacity(count);
        while flags.len() < count {
            let flag = *self.data.get(at)?;
            at += 1;
            flags.push(flag);
            if flag & REPEAT != 0 {
                let times = usize::from(*self.data.get(at)?).min(count - flags.len());
                at += 1;
                flags.extend(std::iter::repeat_n(flag, times));
            }
        }
        // A coordinate is a difference: one byte with its sign in the flags, two bytes, or no byte (difference 0).
        let mut coordinates = |short: u8, same: u8| -> Option<Vec<f32>> {
            let mut value = 0_i32;
            let one = |flag: &u8| {
                value += match (flag & short != 0, flag & same != 0) {
                    (true, positive) => {
                        at += 1;
                        let size = i32::from(*self.data.get(at - 1)?);
                        if positive { size } else { -size }
                    }
                    (false, true) => 0,
                    (false, false) => {
                        at += 2;
                        i32::from(i16_at(self.data, at - 2)?)
                    }
                };
                Some(value as f32)
            };
            flags.iter().map(one).collect()
        };
        let (xs, ys) = (coordinates(0x2, 0x10)?, coordinates(0x4, 0x20)?);
        let point = |i: usize| {
            let mut p = tiny_skia::Point::from_xy(xs[i], ys[i]);
            place.map_point(&mut p);
            ((p.x, p.y), flags[i] & ON_CURVE != 0)
        };
        let mut first = 0;
        for contour in 0..contours {
            let last = end(contour)?;
            if last >= count || last < first {
                return None;
            }
            draw_contour(&(first..=last).map(point).collect::<Vec<_>>(), out);
            first = last + 1;
        }
        Some(())
    }
}

/// Draws a closed contour of points on and off the curve.
///
/// Two neighbouring points off the curve imply a point on the curve halfway between them.
fn draw_contour(points: &[((f32, f32), bool)], out: &mut PathBuilder) {
    let middle = |a: (f32, f32), b: (f32, f32)| ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0);
    let n = points.len();
    let on = points.iter().position(|p| p.1);
    let start = on.map_or_else(|| middle(points[n - 1].0, points[0].0), |i| points[i].0);
    let from = on.map_or(0, |i| i + 1);
    let mut control: Option<(f32, f32)> = None;
    out.move_to(start.0, start.1);
    // all points after the start, then the start itself if it is one of the points
    for i in (from..from + n).map(|i| points[i % n]) {
        match (control, i) {
            (None, (p, true)) => out.line_to(p.0, p.1),
            (None, (p, false)) => control = Some(p),
            (Some(c), (p, true)) => {
                out.quad_to(c.0, c.1, p.0, p.1);
                control = None;
            }
            (Some(c), (p, false)) => {
                let m = middle(c, p);
                out.quad_to(c.0, c.1, m.0, m.1);
                control = Some(p);
            }
        }
    }
    if let Some(c) = control {
        out.quad_to(c.0, c.1, start.0, start.1);
    }
    out.close();
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

fn i16_at(data: &[u8], at: usize) -> Option<i16> {
    u16_at(data, at).map(|v| v as i16)
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if a wrong table or `cmap` segment is read, or if a missing character has no glyph.
    #[test]
    fn widths_are_those_of_the_font() {
        assert_eq!(FONT.units_per_em, 2048.0);
        let width = |c: char| FONT.advance(FONT.glyph(c));
        assert_eq!(['i', 'H', ' ', '−'].map(width), [569.0, 1540.0, 651.0, 1716.0]);
        assert_eq!(FONT.width("HH", 1024.0), 1540.0);
        assert!(FONT.glyph('μ') != 0 && FONT.glyph('½') != 0 && FONT.glyph('\u{10ffff}') == 0);
    }

    #[test]
    fn a_composite_glyph_has_all_its_parts() {
        let bounds = |text: &str| FONT.outline(text, 2048.0).unwrap().bounds();
        let (plain, accented) = (bounds("e"), bounds("é"));
        assert_eq!((plain.left(), plain.bottom()), (accented.left(), accented.bottom()));
        assert!(accented.top() < plain.top() - 300.0, "{plain:?} {accented:?}");
        assert!(FONT.outline(" ", 16.0).is_none(), "a space draws nothing");
    }

    #[test]
    fn an_outline_stands_on_its_baseline() {
        let h = FONT.outline("H", 2048.0).unwrap().bounds();
        assert_eq!((h.bottom(), h.top()), (0.0, -1493.0), "y grows downwards");
    }
}
