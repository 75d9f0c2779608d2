//! Images and documents through the whole way: from the agent over MCP to the process that decodes (B65, B70).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use postern_tests::World;
use postern_types::Sha256;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// A PNG of two pixels, red and green.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nGP4z8DA8J8BAAf/Af8Bf4mnAAAAAElFTkSuQmCC";

/// A PDF of two pages, the second one blank. It has no table of its objects, so they are looked for.
const PDF: &str = "%PDF-1.7
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Count 2/Kids[4 0 R 5 0 R]>>endobj
3 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
4 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 300]/Contents 6 0 R/Resources<</Font<</F 3 0 R>>>>>>endobj
5 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 300]>>endobj
6 0 obj<</Length 43>>stream
BT /F 12 Tf 20 200 Td (Read me aloud) Tj ET
endstream endobj
trailer<</Root 1 0 R>>
";

#[tokio::test]
async fn images_and_documents_reach_the_agent() {
    let world = World::new();
    let png = BASE64_STANDARD.decode(PNG).expect("a PNG");
    // The name says nothing.
    world.write("photo.jpg", &png);
    world.write("paper.pdf", PDF);
    let door = world.up("read-only").await;
    let agent = door.agent();

    let image = agent
        .call("workspace_image", json!({"path": "photo.jpg"}))
        .await;
    assert!(!image.is_error, "{image:?}");
    assert_eq!(
        image.structured,
        Value::Null,
        "an image is in its content alone"
    );
    let block = &image.content[0];
    assert_eq!(
        (&block["type"], &block["mimeType"]),
        (&json!("image"), &json!("image/png"))
    );
    let data = block["data"].as_str().expect("data");
    assert!(data.starts_with("iVBORw0KGgo"), "{data}");
    let facts = image.content[1]["text"].as_str().expect("facts");
    assert_eq!(
        serde_json::from_str::<Value>(facts).expect("json"),
        json!({"path": "photo.jpg", "mimeType": "image/png", "width": 2, "height": 1, "originalWidth": 2,
            "originalHeight": 1, "originalMimeType": "image/png", "scaled": false,
            "sha256": Sha256::of(&png).to_string()})
    );

    for (arguments, page, text) in [
        (json!({"path": "paper.pdf"}), 1, "Read me aloud"),
        (json!({"path": "paper.pdf", "page": 2}), 2, ""),
    ] {
        let document = agent.call("workspace_document", arguments).await.ok();
        assert_eq!(
            document,
            json!({"path": "paper.pdf", "page": page, "pageCount": 2, "text": text,
                "sha256": Sha256::of(PDF.as_bytes()).to_string()})
        );
    }

    let over = json!({"path": "paper.pdf", "page": 3});
    let error = agent
        .call("workspace_document", over)
        .await
        .refused("NO_SUCH_PAGE");
    assert_eq!(error["details"], json!({"pageCount": 2}));
    for page in [0, -1, 10_001] {
        let arguments = json!({"path": "paper.pdf", "page": page});
        let answer = agent.call("workspace_document", arguments).await;
        assert_eq!(answer.code(), "INVALID_ARGUMENTS", "{page}");
    }
    for tool in ["workspace_image", "workspace_document"] {
        let answer = agent.call(tool, json!({"path": "greeting.txt"})).await;
        assert_eq!(answer.code(), "UNSUPPORTED_FORMAT", "{tool}");
    }
}
