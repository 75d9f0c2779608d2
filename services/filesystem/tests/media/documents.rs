//! Documents: the text of which page.

use image::ImageFormat;
use postern_proto::filesystem::v1::DocumentResponse;
use postern_types::{ErrorCode, Sha256};
use pretty_assertions::assert_eq;

use crate::{
    pdf::{Pdf, codes, font_of, lines},
    pictures::{encoded, halves},
    rig::{Rig, fixture},
};

impl Rig {
    async fn text(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        self.put(name, content);
        self.document(name, 1).await.expect(name).text
    }
}

#[tokio::test]
async fn b70_pages_are_told_blank_ones_too() {
    let rig = Rig::new();
    let content = Pdf::of_pages(&["Hello, world\nSecond line", "", ""]);
    rig.put("three.pdf", &content);
    let page = |page, text: &str| DocumentResponse {
        path: "three.pdf".to_owned(),
        resolved_path: None,
        page,
        page_count: 3,
        text: text.to_owned(),
        sha256: Sha256::of(&content).to_string(),
    };
    for (asked, told) in [
        (0, page(1, "Hello, world\nSecond line")),
        (1, page(1, "Hello, world\nSecond line")),
        (2, page(2, "")),
        (3, page(3, "")),
    ] {
        assert_eq!(rig.document("three.pdf", asked).await.expect("page"), told);
    }
    for asked in [4, 10_000, u32::MAX] {
        let refused = rig.document("three.pdf", asked).await.expect_err("none");
        assert_eq!(refused.code, ErrorCode::NoSuchPage);
        assert_eq!(refused.details["pageCount"], 3);
        assert!(refused.message.contains("pages 1 to 3"), "{refused}");
    }
    rig.put("none.pdf", Pdf::of_pages(&[]));
    let refused = rig.document("none.pdf", 1).await.expect_err("none");
    assert!(
        matches!(
            refused.code,
            ErrorCode::NoSuchPage | ErrorCode::UnsupportedFormat
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn b70_a_password_is_asked_for_only_where_one_is_needed() {
    let rig = Rig::new();
    rig.put("locked.pdf", fixture("user-password.pdf"));
    let refused = rig.document("locked.pdf", 1).await.expect_err("locked");
    assert_eq!(refused.code, ErrorCode::UnsupportedFormat);
    assert!(refused.message.contains("password"), "{refused}");
    let open = rig.text("open.pdf", fixture("owner-password.pdf")).await;
    assert_eq!(open, "For your eyes only");
}

#[tokio::test]
async fn b70_a_scanned_page_has_no_text_and_is_no_error() {
    let rig = Rig::new();
    let mut pdf = Pdf::new();
    let photo = encoded(&halves(8, 8), ImageFormat::Jpeg);
    let dictionary = "/Type/XObject/Subtype/Image/Width 8/Height 8/ColorSpace/DeviceRGB/BitsPerComponent 8/Filter/DCTDecode";
    let image = pdf.stream(dictionary, photo);
    pdf.page(
        "q 400 0 0 300 0 0 cm /I Do Q",
        &format!("/XObject<</I {image} 0 R>>"),
        "",
    );
    assert_eq!(rig.text("scan.pdf", pdf.finish()).await, "");
}

#[tokio::test]
async fn b70_characters_are_what_the_font_says_they_mean() {
    let rig = Rig::new();
    for (name, meanings, text) in [
        ("cjk", vec!["漢", "字", "仮", "名"], "漢字仮名"),
        (
            "ligatures",
            vec!["\u{FB01}", "n", "a", "ffl", "e"],
            "finaffle",
        ),
        // As they are seen, from the left.
        ("hebrew", vec!["ם", "ו", "ל", "ש"], "שלום"),
        ("arabic", vec!["\u{FEE1}", "\u{FEFC}", "\u{FEB3}"], "سلام"),
        ("beyond", vec!["😀", "𠀀"], "😀𠀀"),
        ("controls", vec!["a", "\u{0}", "\u{1b}", "b"], "a b"),
    ] {
        let mut pdf = Pdf::new();
        let font = font_of(&mut pdf, &meanings);
        let resources = format!("/Font<</F {font} 0 R>>");
        pdf.page(&codes(meanings.len()), &resources, "");
        assert_eq!(rig.text(name, pdf.finish()).await, text, "{name}");
    }
}

#[tokio::test]
async fn words_are_apart_however_a_page_sets_them() {
    let rig = Rig::new();
    for (name, content, text) in [
        (
            "gap",
            "BT /F 12 Tf 20 260 Td [(Two)-400(words)] TJ ET",
            "Two words",
        ),
        (
            "kerned",
            "BT /F 12 Tf 20 260 Td [(K)40(er)-20(ned)] TJ ET",
            "Kerned",
        ),
        (
            "placed",
            "BT /F 12 Tf 20 260 Td (One) Tj 60 0 Td (line) Tj ET",
            "One line",
        ),
        (
            "backwards",
            "BT /F 12 Tf 90 260 Td (line) Tj -70 0 Td (One) Tj ET",
            "One line",
        ),
        (
            "outlined",
            "BT /F 12 Tf 2 Tr 20 260 Td (All once) Tj ET",
            "All once",
        ),
        (
            "bold by hand",
            "BT /F 12 Tf 20 260 Td (Bold) Tj 0.3 0 Td (Bold) Tj ET",
            "Bold",
        ),
        (
            "unseen",
            "BT /F 12 Tf 3 Tr 20 260 Td (Under a scan) Tj ET",
            "Under a scan",
        ),
        (
            "raised",
            "BT /F 12 Tf 20 260 Td (x) Tj /F 7 Tf 5 Ts (2) Tj ET",
            "x2",
        ),
        (
            "turned",
            "BT /F 12 Tf 0 1 -1 0 50 50 Tm (Up the page) Tj ET",
            "Up the page",
        ),
    ] {
        let mut pdf = Pdf::new();
        let font = pdf.add("<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>");
        pdf.page(content, &format!("/Font<</F {font} 0 R>>"), "/Rotate 90");
        assert_eq!(rig.text(name, pdf.finish()).await, text, "{name}");
    }
}

#[tokio::test]
async fn what_is_no_document_is_told_so() {
    let rig = Rig::new();
    let whole = Pdf::of_pages(&["x"]);
    for (name, content, told) in [
        (
            "image.pdf",
            encoded(&halves(4, 4), ImageFormat::Png),
            "workspace_image",
        ),
        ("text.pdf", b"only text".to_vec(), "not a PDF"),
        ("empty.pdf", Vec::new(), "empty"),
        ("mark.pdf", b"%PDF-1.7\n".to_vec(), "damaged"),
        ("cut.pdf", whole[..60].to_vec(), "damaged"),
    ] {
        rig.put(name, content);
        let refused = rig.document(name, 1).await.expect_err(name);
        assert_eq!(refused.code, ErrorCode::UnsupportedFormat, "{name}");
        assert!(refused.message.contains(told), "{name}: {refused}");
    }
}

#[tokio::test]
async fn a_document_whose_table_is_lost_is_read_all_the_same() {
    let rig = Rig::new();
    let whole = Pdf::of_pages(&["Still here"]);
    let table = memchr::memmem::rfind(&whole, b"xref\n0").expect("table");
    assert_eq!(rig.text("cut.pdf", &whole[..table]).await, "Still here");
}

#[tokio::test]
async fn any_page_of_a_document_of_five_thousand_objects_is_read() {
    let rig = Rig::new();
    let texts: Vec<String> = (1..=2500).map(|page| format!("Page {page}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    rig.put("long.pdf", Pdf::of_pages(&texts));
    for page in [1, 1250, 2500] {
        let answer = rig.document("long.pdf", page).await.expect("page");
        assert_eq!(
            (answer.text, answer.page_count),
            (format!("Page {page}"), 2500)
        );
    }
}

#[tokio::test]
async fn a_page_of_too_much_text_is_refused() {
    let rig = Rig::new();
    let line = "0123456789 ".repeat(20);
    let page = |count: usize| {
        let mut pdf = Pdf::new();
        let font = pdf.add("<</Type/Font/Subtype/Type1/BaseFont/Courier>>");
        let text = vec![line.as_str(); count].join("\n");
        pdf.page(&lines(&text), &format!("/Font<</F {font} 0 R>>"), "");
        pdf.finish()
    };
    assert_eq!(rig.text("full.pdf", page(1000)).await.len(), 1000 * 220 - 1);
    for count in [1500, 6000] {
        rig.put("over.pdf", page(count));
        let refused = rig.document("over.pdf", 1).await.expect_err("too much");
        assert_eq!(refused.code, ErrorCode::TooLarge, "{refused}");
        assert_eq!(refused.details["limit"], 262_144);
    }
}
