//! Where paths lead, as plans tell it and changes keep to it.

use std::{fs, os::unix::fs::symlink};

use postern_kit::Failure;
use postern_proto::filesystem::v1::{
    DeleteRequest, PatchRequest, PlanLook, PlanWrite, WriteRequest, plan_request::Change,
};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::project::{Project, effect, sha};

/// What was permitted for one place is not made at another, however the way there changed meanwhile.
#[tokio::test]
async fn a_change_is_made_where_its_plan_said_or_not_at_all() {
    let project = Project::new();
    project.file("a", "same");
    project.file("b", "same");
    let link = project.root.join("l");
    symlink("a", &link).expect("link");
    let write = Change::Write(PlanWrite {});
    let planned = project.plan("l", write, Some(sha("same"))).await;
    let planned = planned.expect("planned");
    assert_eq!(
        (planned.place.as_str(), planned.resolved_path.as_deref()),
        ("a", Some("a"))
    );
    fs::remove_file(&link).expect("removed");
    symlink("b", &link).expect("link");
    let (path, expected_sha256) = ("l".to_owned(), Some(sha("same")));
    let place = Some(planned.place);
    let write = WriteRequest {
        effect: effect(),
        path: path.clone(),
        content: "new".to_owned(),
        expected_sha256: expected_sha256.clone(),
        place: place.clone(),
    };
    let patch = PatchRequest {
        effect: effect(),
        path,
        old_text: "same".to_owned(),
        new_text: "new".to_owned(),
        expected_sha256: expected_sha256.clone(),
        place: place.clone(),
    };
    let delete = DeleteRequest {
        effect: effect(),
        path: "b".to_owned(),
        expected_sha256,
        place,
    };
    let mut client = project.client.clone();
    for refused in [
        client.write(write.clone()).await.map(drop),
        client.patch(patch).await.map(drop),
        client.delete(delete).await.map(drop),
    ] {
        let failure = Failure::from(refused.expect_err("elsewhere"));
        assert_eq!(failure.code, ErrorCode::Busy, "{failure}");
    }
    assert_eq!(project.content("a"), b"same");
    assert_eq!(project.content("b"), b"same");
    let there = WriteRequest {
        effect: effect(),
        place: Some("b".to_owned()),
        ..write
    };
    client.write(there).await.expect("written");
    assert_eq!(project.content("b"), b"new");
}

#[tokio::test]
async fn a_look_tells_where_a_path_leads_and_refuses_what_leads_out() {
    let project = Project::new();
    fs::create_dir_all(project.root.join("real/deep")).expect("folders");
    symlink("real", project.root.join("link")).expect("link");
    symlink("/etc", project.root.join("out")).expect("link");
    let look = async |path: &str| {
        let planned = project
            .plan(path, Change::Look(PlanLook::default()), None)
            .await;
        planned.map(|planned| (planned.place, planned.resolved_path))
    };
    let there = |place: &str, linked: bool| (place.to_owned(), linked.then(|| place.to_owned()));
    assert_eq!(
        look("link/./deep").await.expect("there"),
        there("real/deep", true)
    );
    assert_eq!(
        look("real/deep").await.expect("there"),
        there("real/deep", false)
    );
    assert_eq!(look(".").await.expect("there"), there(".", false));
    for (path, code) in [
        ("none", ErrorCode::NotFound),
        ("out", ErrorCode::PathEscapesProject),
        ("../x", ErrorCode::PathEscapesProject),
    ] {
        assert_eq!(look(path).await.expect_err(path).code, code, "{path}");
    }
}
