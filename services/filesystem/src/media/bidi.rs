//! A line as it stands on the page, put into the order in which it is read.
//!
//! Pages hold Arabic and Hebrew as they are seen, from left to right, and often in shapes that stand for letters. Readers
//! and programs expect letters in the order of reading (Unicode Standard Annex 9).

use unicode_bidi::{BidiClass, BidiInfo, Level, bidi_class};
use unicode_normalization::UnicodeNormalization as _;

/// What one glyph shows, read as it is wherever it goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Unit(String);

impl Unit {
    pub(super) const fn new(text: String) -> Self {
        Self(text)
    }

    pub(super) fn space() -> Self {
        Self(" ".to_owned())
    }
}

/// The line's text in the order of reading, in letters rather than shapes.
pub(super) fn in_reading_order(units: Vec<Unit>) -> String {
    let seen: String = units.iter().map(|unit| unit.0.as_str()).collect();
    let count = |classes: &[BidiClass]| {
        seen.chars()
            .filter(|character| classes.contains(&bidi_class(*character)))
            .count()
    };
    let right_to_left = count(&[BidiClass::R, BidiClass::AL]);
    if right_to_left == 0 {
        return letters(&seen);
    }
    let base = if right_to_left > count(&[BidiClass::L]) {
        Level::rtl()
    } else {
        Level::ltr()
    };
    let levels = BidiInfo::new(&seen, Some(base)).levels;
    let mut at = 0;
    let mut levelled: Vec<(Level, Unit)> = Vec::with_capacity(units.len());
    for unit in units {
        let level = levels.get(at).copied().unwrap_or(base);
        at += unit.0.len();
        levelled.push((level, unit));
    }
    reverse_runs(&mut levelled);
    let read: String = levelled
        .iter()
        .map(|(level, unit)| {
            if level.is_rtl() {
                mirrored(&unit.0)
            } else {
                &unit.0
            }
        })
        .collect();
    letters(&read)
}

/// Rule L2: from the highest level to the lowest odd one, everything at it or above is turned around.
fn reverse_runs(units: &mut [(Level, Unit)]) {
    let highest = units.iter().map(|(level, _)| level.number()).max();
    for level in (1..=highest.unwrap_or_default()).rev() {
        for run in units.chunk_by_mut(|(one, _), (other, _)| {
            (one.number() >= level) == (other.number() >= level)
        }) {
            if run[0].0.number() >= level {
                run.reverse();
            }
        }
    }
}

/// A bracket as it is seen from the other side.
fn mirrored(text: &str) -> &str {
    match text {
        "(" => ")",
        ")" => "(",
        "[" => "]",
        "]" => "[",
        "{" => "}",
        "}" => "{",
        "<" => ">",
        ">" => "<",
        "«" => "»",
        "»" => "«",
        text => text,
    }
}

/// Letters in place of the shapes that stand for them (ligatures, Arabic forms, radicals), composed. What looks like a variant
/// but means something else, as a superscript or a fraction, is kept.
fn letters(text: &str) -> String {
    let mut spelled = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\u{FB00}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}' | '\u{2E80}'..='\u{2FDF}' => {
                spelled.extend(std::iter::once(character).nfkc());
            }
            character => spelled.push(character),
        }
    }
    spelled.nfc().collect()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn read(seen: &str) -> String {
        in_reading_order(seen.chars().map(|unit| Unit::new(unit.into())).collect())
    }

    #[test]
    fn what_runs_to_the_right_is_left_as_it_is() {
        assert_eq!(read("Office 3 (a)"), "Office 3 (a)");
        assert_eq!(read("\u{FB01}n x² ½ 中文"), "fin x² ½ 中文");
        assert_eq!(read("e\u{301}"), "é");
        assert_eq!(read(""), "");
    }

    #[test]
    fn hebrew_is_read_from_the_right_with_its_numbers_and_brackets() {
        assert_eq!(read("(123) םולש"), "שלום (123)");
        assert_eq!(read("say םולש now"), "say שלום now");
        assert_eq!(read("15% abc םולש"), "שלום abc 15%");
    }

    #[test]
    fn arabic_shapes_are_letters_and_ligatures_keep_their_order() {
        // As it is seen from the left: the final noon, the waw and so on, each in its shape.
        assert_eq!(read("\u{FEE1}\u{FEFC}\u{FEB3}"), "سلام");
        let ligature = vec![Unit::new("ab".to_owned()), Unit::new("לא".to_owned())];
        assert_eq!(in_reading_order(ligature), "abלא");
    }
}
