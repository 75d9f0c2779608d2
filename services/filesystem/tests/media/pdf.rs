//! A writer of small PDFs, good ones and bad ones.

use std::fmt::Write as _;

/// Objects of a file, numbered from 1. The catalog is the first, the page tree the second.
pub(crate) struct Pdf {
    objects: Vec<Vec<u8>>,
    pages: Vec<usize>,
}

impl Pdf {
    pub(crate) fn new() -> Self {
        Self {
            objects: vec![b"<</Type/Catalog/Pages 2 0 R>>".to_vec(), Vec::new()],
            pages: Vec::new(),
        }
    }

    /// A file of pages with this text in Helvetica, drawn from the top left.
    pub(crate) fn of_pages(texts: &[&str]) -> Vec<u8> {
        let mut pdf = Self::new();
        let font =
            pdf.add("<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>");
        for text in texts {
            let content = if text.is_empty() {
                String::new()
            } else {
                lines(text)
            };
            pdf.page(&content, &format!("/Font<</F {font} 0 R>>"), "");
        }
        pdf.finish()
    }

    /// Adds an object and tells its number.
    pub(crate) fn add(&mut self, object: impl AsRef<[u8]>) -> usize {
        self.objects.push(object.as_ref().to_vec());
        self.objects.len()
    }

    /// Adds a stream; `dictionary` is what it has beside its length.
    pub(crate) fn stream(&mut self, dictionary: &str, data: impl AsRef<[u8]>) -> usize {
        let data = data.as_ref();
        let head = format!("<</Length {}{dictionary}>>\nstream\n", data.len());
        self.add([head.as_bytes(), data, b"\nendstream"].concat())
    }

    /// Adds a page.
    pub(crate) fn page(&mut self, content: &str, resources: &str, more: &str) {
        let content = self.stream("", content);
        self.page_of(content, resources, more);
    }

    /// Adds a page whose content is this object.
    pub(crate) fn page_of(&mut self, content: usize, resources: &str, more: &str) {
        let page = self.add(format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 300]/Contents {content} 0 R/Resources<<{resources}>>{more}>>"
        ));
        self.pages.push(page);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let kids = self.pages.iter().fold(String::new(), |mut kids, page| {
            let _ = write!(kids, "{page} 0 R ");
            kids
        });
        let count = self.pages.len();
        self.objects[1] = format!("<</Type/Pages/Count {count}/Kids[{kids}]>>").into_bytes();
        let mut file = b"%PDF-1.7\n".to_vec();
        let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", self.objects.len() + 1);
        for (index, object) in self.objects.iter().enumerate() {
            let _ = writeln!(table, "{:010} 00000 n ", file.len());
            file.extend_from_slice(format!("{} 0 obj\n", index + 1).as_bytes());
            file.extend_from_slice(object);
            file.extend_from_slice(b"\nendobj\n");
        }
        let start = file.len();
        file.extend_from_slice(table.as_bytes());
        let size = self.objects.len() + 1;
        let end = format!("trailer\n<</Size {size}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n");
        file.extend_from_slice(end.as_bytes());
        file
    }
}

/// Lines of text in font F.
pub(crate) fn lines(text: &str) -> String {
    let mut content = "BT /F 12 Tf 14 TL 20 260 Td".to_owned();
    for line in text.lines() {
        let _ = write!(content, " ({line}) Tj T*");
    }
    content + " ET"
}

/// A font whose codes 1, 2, 3, … mean these texts, as its table says, and nothing else does.
pub(crate) fn font_of(pdf: &mut Pdf, meanings: &[&str]) -> usize {
    let mut table = "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapType 2 def 1 begincodespacerange <0000> <FFFF> endcodespacerange ".to_owned();
    let _ = write!(table, "{} beginbfchar ", meanings.len());
    for (index, meaning) in meanings.iter().enumerate() {
        let _ = write!(table, "<{:04X}> <", index + 1);
        for unit in meaning.encode_utf16() {
            let _ = write!(table, "{unit:04X}");
        }
        table.push_str("> ");
    }
    table.push_str("endbfchar endcmap CMapName currentdict /CMap defineresource pop end end");
    let table = pdf.stream("", table);
    let descriptor = pdf.add("<</Type/FontDescriptor/FontName/Some/Flags 4/FontBBox[0 0 1000 1000]/ItalicAngle 0/Ascent 900/Descent -100/CapHeight 700/StemV 80>>");
    let descendant = pdf.add(format!("<</Type/Font/Subtype/CIDFontType2/BaseFont/Some/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>/FontDescriptor {descriptor} 0 R/DW 1000>>"));
    pdf.add(format!("<</Type/Font/Subtype/Type0/BaseFont/Some/Encoding/Identity-H/DescendantFonts[{descendant} 0 R]/ToUnicode {table} 0 R>>"))
}

/// What codes 1 to `count` of such a font draw.
pub(crate) fn codes(count: usize) -> String {
    let codes: String = (1..=count).map(|code| format!("{code:04X}")).collect();
    format!("BT /F 12 Tf 20 260 Td <{codes}> Tj ET")
}
