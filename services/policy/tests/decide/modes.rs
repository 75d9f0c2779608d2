//! What each mode makes of each tool.

use postern_kit::Failure;
use postern_proto::catalogue;
use postern_proto::policy::v1::{DecideRequest, Mode, Verdict};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::harness::{MODES, decide, valid, verdict, without_rules};

/// CONTRACT.md, section 6.
fn expected(tool: &str) -> [Verdict; 4] {
    use Verdict::{Allow, Ask, Deny};
    match tool {
        "workspace_write" | "workspace_patch" | "workspace_delete" => [Deny, Ask, Allow, Allow],
        "workspace_exec" | "workspace_input" | "workspace_tool" => [Deny, Ask, Ask, Allow],
        _ => [Allow, Allow, Allow, Allow],
    }
}

#[tokio::test]
async fn every_tool_in_every_mode() {
    let mut client = without_rules();
    let tools = catalogue::workspace_tools();
    assert_eq!(tools.len(), 15);
    for tool in tools {
        let mut verdicts = Vec::new();
        for mode in MODES {
            let (verdict, policy_id) =
                verdict(&mut client, mode, &tool.name, valid(&tool.name)).await;
            verdicts.push(verdict);
            let name = ["read-only", "ask", "edit", "full"][mode as usize - 1];
            assert_eq!(policy_id, format!("mode.{name}"), "{}", tool.name);
        }
        assert_eq!(verdicts, expected(&tool.name), "{}", tool.name);
    }
}

#[tokio::test]
async fn a_mode_that_is_not_understood_permits_nothing() {
    let mut client = without_rules();
    for mode in [0, 5, -1, i32::MAX] {
        let request = DecideRequest {
            tool: "workspace_info".to_owned(),
            args_json: "{}".into(),
            mode,
            ..Default::default()
        };
        let status = client.decide(request).await.expect_err("refused");
        assert_eq!(Failure::from(status).code, ErrorCode::Internal);
    }
}

#[tokio::test]
async fn an_unknown_tool_is_told_before_its_arguments() {
    let mut client = without_rules();
    let long = format!("workspace_{}", "x".repeat(5000));
    for tool in ["", "workspace_Read", "sosoapi_create_workspace", &long] {
        let failure = decide(&mut client, Mode::Full, tool, b"not json")
            .await
            .expect_err("refused");
        assert_eq!(failure.code, ErrorCode::UnknownTool);
        assert!(failure.message.len() < 300);
    }
}
