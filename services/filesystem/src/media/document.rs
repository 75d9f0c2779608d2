//! Documents: the text of one page of a PDF.

use hayro_interpret::{
    Context, InterpreterCache, InterpreterSettings, TransformExt as _,
    hayro_syntax::{DecryptionError, LoadPdfError, Pdf, page::Page},
    interpret_page,
    kurbo::Rect,
};
use memchr::memmem;

use super::{
    answer::{Answer, Refusal},
    lines::Lines,
    picture,
};

/// Largest file, in bytes.
pub(crate) const FILE_LIMIT: usize = 128 * 1024 * 1024;
/// Longest text of a page, in bytes. Twice in a frame, escaped at worst, it still fits.
pub(crate) const TEXT_LIMIT: usize = 262_144;
/// First bytes of a file among which a PDF's mark must be: some programs write others before it.
const MARK_WITHIN: usize = 1024;
const MARK: &[u8] = b"%PDF-";

/// Whether bytes begin like a PDF.
pub(crate) fn is_document(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(MARK_WITHIN)];
    memmem::find(start, MARK).is_some()
}

/// The text of a page, counted from 1.
pub(crate) fn decode(bytes: Vec<u8>, page: u32) -> Result<Answer, Refusal> {
    if !is_document(&bytes) {
        return Err(match picture::format(&bytes) {
            Some(_) => Refusal::IsPicture,
            None => Refusal::OtherFormat,
        });
    }
    let pdf = Pdf::new(bytes).map_err(|error| match error {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected) => Refusal::Locked,
        LoadPdfError::Decryption(
            DecryptionError::MissingIDEntry
            | DecryptionError::InvalidEncryption
            | DecryptionError::UnsupportedAlgorithm,
        ) => Refusal::Encrypted,
        LoadPdfError::Invalid => Refusal::Damaged,
    })?;
    let pages = pdf.pages();
    let page_count = u32::try_from(pages.len()).unwrap_or(u32::MAX);
    let wanted = page
        .checked_sub(1)
        .and_then(|index| pages.get(usize::try_from(index).ok()?))
        .ok_or(Refusal::NoSuchPage { page_count })?;
    let text = text_of(&pdf, wanted);
    if text.len() > TEXT_LIMIT {
        return Err(Refusal::TooMuchText);
    }
    Ok(Answer::Page { page_count, text })
}

fn text_of<'a>(pdf: &'a Pdf, page: &Page<'a>) -> String {
    let (width, height) = page.render_dimensions();
    let cache = InterpreterCache::new();
    let mut context = Context::new(
        page.initial_transform(true).to_kurbo(),
        Rect::new(0.0, 0.0, f64::from(width), f64::from(height)),
        &cache,
        pdf.xref(),
        InterpreterSettings::default(),
    );
    let mut lines = Lines::default();
    interpret_page(page, &mut context, &mut lines);
    lines.finish()
}
