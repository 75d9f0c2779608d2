//! Glyphs of a page, joined into lines of text.
//!
//! Lines come in the order in which the page draws them, which is the order of reading in nearly every document. Within a
//! line glyphs are ordered by where they stand, and space between them is a space. What is drawn twice at one place (outlines,
//! shadows, boldness made by hand) is told once.

use hayro_interpret::{
    BlendMode, ClipPath, Device, DrawMode, DrawProps, Image, ImageDrawProps, SoftMask,
    font::{Glyph, GlyphRun},
    hayro_cmap::{BfString, WritingMode},
    kurbo::{Affine, BezPath, Point, Vec2},
};

use super::{
    answer::Refusal,
    bidi::{self, Unit},
    document::TEXT_LIMIT,
};

/// Bytes of text that are gathered before what is drawn twice is left out; more is no page that anybody reads.
const GATHERED_LIMIT: usize = 2 * TEXT_LIMIT;
/// Units of a glyph's own space in an em.
const UNITS_PER_EM: f64 = 1000.0;
/// How far from a line's baseline a glyph of it may stand, in its ems: superscripts do.
const BASELINE_TOLERANCE: f64 = 0.8;
/// Least cosine between two directions that are one.
const SAME_DIRECTION: f64 = 0.99;
/// Space that is a space, in ems.
const SPACE: f64 = 0.15;
/// The same between ideographs, which are set apart without meaning one.
const IDEOGRAPH_SPACE: f64 = 0.5;
/// How near two glyphs stand that are the same one drawn twice, in ems.
const TWICE: f64 = 0.1;
/// Width of a glyph whose font does not tell it, in ems.
const UNKNOWN_WIDTH: f64 = 0.5;

/// A glyph on its line. Lengths in the page's units.
#[derive(Debug)]
struct Placed {
    /// Where it begins along the line.
    start: f64,
    /// Where it ends.
    end: f64,
    /// An em.
    size: f64,
    text: String,
}

/// The line that is being gathered.
#[derive(Debug)]
struct Line {
    /// Where it goes, a unit vector.
    direction: Vec2,
    /// How far its baseline is from the origin.
    across: f64,
    size: f64,
    glyphs: Vec<Placed>,
}

/// Gathers the text of a page.
#[derive(Debug, Default)]
pub(super) struct Lines {
    text: String,
    line: Option<Line>,
    gathered: usize,
}

impl Lines {
    /// The text, a line each.
    pub(super) fn finish(mut self) -> String {
        self.end_line();
        self.text
    }

    fn place(&mut self, glyph: &Glyph<'_>, transform: Affine, vertical: bool) {
        let text = match glyph.as_unicode() {
            Some(BfString::Char(character)) => clean(&[character]),
            Some(BfString::String(text)) => clean(&text.chars().collect::<Vec<_>>()),
            None => char::REPLACEMENT_CHARACTER.to_string(),
        };
        if text.is_empty() {
            return;
        }
        self.gathered += text.len();
        if self.gathered > GATHERED_LIMIT {
            // An interpreter cannot be stopped in any other way; the caller catches this.
            std::panic::resume_unwind(Box::new(Refusal::TooMuchText));
        }
        let origin = transform * Point::ZERO;
        let em = |x, y| (transform * Point::new(x * UNITS_PER_EM, y * UNITS_PER_EM)) - origin;
        let (right, up) = (em(1.0, 0.0), em(0.0, 1.0));
        let (advance, size) = if vertical {
            (-up, right.hypot())
        } else {
            let width = match glyph {
                Glyph::Outline(outline) => outline.advance_width(),
                Glyph::Type3(drawn) => drawn.advance_width(),
            };
            let width = width.map_or(UNKNOWN_WIDTH, |width| f64::from(width) / UNITS_PER_EM);
            (right * width, up.hypot())
        };
        let along = if vertical { -up } else { right };
        let direction = along / along.hypot();
        if !(direction.is_finite() && origin.is_finite() && size.is_finite()) || size == 0.0 {
            self.append(text);
            return;
        }
        let line = self.line_at(direction, origin.to_vec2(), size);
        let start = origin.to_vec2().dot(line.direction);
        line.glyphs.push(Placed {
            start,
            end: start + advance.dot(line.direction),
            size,
            text,
        });
    }

    /// The line that goes through this place, which is the present one or a new one.
    fn line_at(&mut self, direction: Vec2, origin: Vec2, size: f64) -> &mut Line {
        let across = direction.cross(origin);
        let is_same = self.line.as_ref().is_some_and(|line| {
            line.direction.dot(direction) > SAME_DIRECTION
                && (line.across - across).abs() < BASELINE_TOLERANCE * line.size.min(size)
        });
        if !is_same {
            self.end_line();
        }
        let line = self.line.get_or_insert(Line {
            direction,
            across,
            size,
            glyphs: Vec::new(),
        });
        if size > line.size {
            (line.across, line.size) = (across, size);
        }
        line
    }

    /// A glyph that stands nowhere goes behind the last one.
    fn append(&mut self, text: String) {
        let glyphs = self.line.as_mut().map(|line| &mut line.glyphs);
        match glyphs.and_then(|glyphs| glyphs.last_mut()) {
            Some(last) => last.text.push_str(&text),
            None => self.text.push_str(&text),
        }
    }

    fn end_line(&mut self) {
        let Some(mut line) = self.line.take() else {
            return;
        };
        line.glyphs
            .sort_by(|one, other| one.start.total_cmp(&other.start));
        let mut units: Vec<Unit> = Vec::with_capacity(line.glyphs.len());
        let mut last: Option<&Placed> = None;
        for glyph in &line.glyphs {
            if let Some(before) = last {
                let size = before.size.min(glyph.size);
                if before.text == glyph.text && glyph.start - before.start < TWICE * size {
                    continue;
                }
                if glyph.start - before.end > size * space(&before.text, &glyph.text) {
                    units.push(Unit::space());
                }
            }
            units.push(Unit::new(glyph.text.clone()));
            last = Some(glyph);
        }
        let line = bidi::in_reading_order(units);
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
    }
}

/// The text of a glyph without what is no text.
fn clean(characters: &[char]) -> String {
    characters
        .iter()
        .filter_map(|character| match character {
            '\t' | '\u{A0}' | '\u{2028}' | '\u{2029}' => Some(' '),
            character if character.is_control() => None,
            character => Some(*character),
        })
        .collect()
}

/// How much space between two glyphs is a space, in ems; none is when there is one already.
fn space(before: &str, after: &str) -> f64 {
    if before.ends_with(' ') || after.starts_with(' ') {
        f64::INFINITY
    } else if before.ends_with(is_ideograph) && after.starts_with(is_ideograph) {
        IDEOGRAPH_SPACE
    } else {
        SPACE
    }
}

/// Whether a character is of a script that is written without spaces, in squares.
const fn is_ideograph(character: char) -> bool {
    matches!(character, '\u{2E80}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{FF00}'..='\u{FFEF}' | '\u{20000}'..='\u{3FFFF}')
}

impl<'a> Device<'a> for Lines {
    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, 'a>, props: DrawProps<'a>, _: &DrawMode) {
        let vertical = match run.writing_mode() {
            WritingMode::Horizontal => false,
            WritingMode::Vertical => true,
        };
        for glyph in run.glyphs() {
            self.place(glyph, props.transform * glyph.transform(), vertical);
        }
    }

    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'a>, _: &DrawMode) {}
    fn push_clip_path(&mut self, _: &ClipPath) {}
    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'a>>, _: BlendMode) {}
    fn draw_image(&mut self, _: Image<'a, '_>, _: ImageDrawProps<'a>) {}
    fn pop_clip(&mut self) {}
    fn pop_transparency_group(&mut self) {}
}
