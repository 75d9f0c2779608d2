//! Any content, any offset and limit, any two texts: pages and patches are what their models say.

use postern_proto::filesystem::v1::{PatchResponse, ReadResponse};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::{Value, json};
use unicode_normalization::UnicodeNormalization as _;

use crate::project::{Project, sha};

/// What a page or a refusal is to be compared by.
#[derive(Debug, PartialEq)]
enum Page {
    Text { content: String, next: Option<u64> },
    Refused(Value),
}

fn told(answer: Result<ReadResponse, postern_kit::Failure>) -> Page {
    match answer {
        Ok(page) => {
            assert_eq!(page.bytes, page.content.len() as u64);
            Page::Text {
                content: page.content,
                next: page.next_offset,
            }
        }
        Err(failure) => {
            assert_eq!(failure.code, ErrorCode::InvalidArguments);
            Page::Refused(Value::Object(failure.details))
        }
    }
}

fn model_of_page(content: &str, offset: usize, limit: usize) -> Page {
    if offset > content.len() {
        return Page::Refused(json!({
            "pointer": "/offset", "rule": "maximum", "size": content.len(),
        }));
    }
    if !content.is_char_boundary(offset) {
        return Page::Refused(json!({
            "pointer": "/offset", "rule": "boundary", "boundary": content.floor_char_boundary(offset),
        }));
    }
    let end = content.floor_char_boundary(content.len().min(offset + limit));
    if end == offset
        && let Some(next) = content[offset..].chars().next()
    {
        return Page::Refused(json!({
            "pointer": "/limit", "rule": "minimum", "least": next.len_utf8(),
        }));
    }
    Page::Text {
        content: content[offset..end].to_owned(),
        next: (end < content.len()).then_some(end as u64),
    }
}

/// What a patch makes of a content, or the refusal and its details.
fn model_of_patch(content: &str, old: &str, new: &str) -> Result<(String, u64, u64), Value> {
    if old == new {
        return Err(json!(["INVALID_ARGUMENTS", {"pointer": "/newText", "rule": "not"}]));
    }
    let places: Vec<usize> = (0..content.len())
        .filter(|offset| content.as_bytes()[*offset..].starts_with(old.as_bytes()))
        .collect();
    let unix = |text: &str| text.replace("\r\n", "\n");
    let composed = |text: &str| unix(text).nfc().collect::<String>();
    match places.as_slice() {
        [offset] => {
            let (before, rest) = content.split_at(*offset);
            let line = 1 + before.matches('\n').count() as u64;
            let after = format!("{before}{new}{}", &rest[old.len()..]);
            Ok((after, *offset as u64, line))
        }
        [] => Err(if unix(content).contains(&unix(old)) {
            json!(["NO_MATCH", {"wouldMatch": "line-endings"}])
        } else if composed(content).contains(&composed(old)) {
            json!(["NO_MATCH", {"wouldMatch": "normalization"}])
        } else {
            json!(["NO_MATCH", {}])
        }),
        places => Err(json!(["AMBIGUOUS_MATCH", {
            "count": places.len(), "firstOffsets": &places[..places.len().min(10)],
        }])),
    }
}

fn patched(answer: Result<PatchResponse, postern_kit::Failure>) -> Result<PatchResponse, Value> {
    answer.map_err(|failure| json!([failure.code.as_str(), failure.details]))
}

fn wait<T>(calls: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_all()
        .build()
        .expect("runtime")
        .block_on(calls)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn pages_join_to_the_exact_bytes(content in "(?s).{0,300}", limit in 4_u32..64) {
        wait(async {
            let project = Project::new();
            project.file("f", &content);
            let mut joined = String::new();
            let mut next = Some(0);
            while let Some(offset) = next {
                let page = project.read_page("f", offset, limit).await.expect("page");
                assert_eq!(page.sha256, sha(&content));
                joined.push_str(&page.content);
                next = page.next_offset;
            }
            assert_eq!(joined, content);
        });
    }

    #[test]
    fn a_page_equals_its_model(content in "[aé漢🙂\r\n]{0,8}", limit in 1_usize..9) {
        wait(async {
            let project = Project::new();
            project.file("f", &content);
            for offset in 0..content.len() + 2 {
                let page = project.read_page("f", offset as u64, u32::try_from(limit).expect("small")).await;
                assert_eq!(told(page), model_of_page(&content, offset, limit));
            }
        });
    }

    #[test]
    fn a_patch_equals_its_model(
        content in "(a|b|aa|\r\n|\n|漢|\u{e9}|e\u{301}){0,12}",
        old in "(a|b|\r\n|\n|漢|\u{e9}|e\u{301}){1,3}",
        new in "[ab漢]{0,3}",
    ) {
        wait(async {
            let project = Project::new();
            project.file("f", &content);
            let answer = patched(project.patch_now("f", &old, &new).await);
            let on_disk = String::from_utf8(project.content("f")).expect("text");
            match model_of_patch(&content, &old, &new) {
                Ok((after, offset, line)) => {
                    let expected = PatchResponse {
                        path: "f".to_owned(),
                        sha256: sha(&after),
                        bytes: after.len() as u64,
                        previous_sha256: sha(&content),
                        offset,
                        line,
                        resolved_path: None,
                    };
                    assert_eq!(answer, Ok(expected));
                    assert_eq!(on_disk, after);
                }
                Err(refused) => {
                    assert_eq!(answer, Err(refused));
                    assert_eq!(on_disk, content);
                }
            }
        });
    }
}
