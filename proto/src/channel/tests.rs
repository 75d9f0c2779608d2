use pretty_assertions::assert_eq;

use super::*;

const CALL: &str = r#"{"type":"call","protocol":1,"id":"c1","workspaceId":"w","sessionId":"s","intention":"do it","tool":"workspace_read","args":{"path":"a"}}"#;

fn reason(text: &str) -> FrameError {
    parse_host_frame(text)
        .map(|frame| format!("{frame:?}"))
        .expect_err(text)
}

#[test]
fn reads_a_call_without_copying() {
    let HostFrame::Call(call) = parse_host_frame(CALL).expect("call") else {
        panic!("not a call")
    };
    assert_eq!(call.id, "c1");
    assert!(matches!(call.id, Cow::Borrowed(_)));
    assert_eq!(call.args.get(), r#"{"path":"a"}"#);
}

#[test]
fn reads_ready_and_ignores_unknown_fields() {
    assert!(matches!(
        parse_host_frame(&ready_frame()),
        Ok(HostFrame::Ready)
    ));
    assert!(matches!(
        parse_host_frame(r#"{"type":"ready","protocol":1,"more":[1,{"x":2}]}"#),
        Ok(HostFrame::Ready)
    ));
}

#[test]
fn refuses_what_is_no_frame() {
    for text in [
        "",
        "null",
        "[]",
        "{",
        "not json",
        r#"{"type":"ready","protocol":1} {}"#,
        r#"{"protocol":1}"#,
        r#"{"type":7,"protocol":1}"#,
        r#"{"type":"ready"}"#,
        r#"{"type":"ready","protocol":"1"}"#,
        r#"{"type":"hello","protocol":1}"#,
        r#"{"type":"ready","type":"ready","protocol":1}"#,
        r#"{"type":"ready","protocol":1,"x":{"a":1,"a":2}}"#,
        r#"{"type":"ready","protocol":1,"x":[{"a":1,"\u0061":2}]}"#,
    ] {
        assert_eq!(reason(text).close_code(), close::POLICY_VIOLATION, "{text}");
    }
}

#[test]
fn refuses_each_missing_or_ill_typed_field_of_a_call() {
    for field in [
        "id",
        "workspaceId",
        "sessionId",
        "intention",
        "tool",
        "args",
    ] {
        let mut call: serde_json::Value = serde_json::from_str(CALL).expect("call");
        call[field] = serde_json::json!(7);
        assert_eq!(
            reason(&call.to_string()).close_code(),
            close::POLICY_VIOLATION,
            "{field} ill-typed"
        );
        call.as_object_mut().expect("object").remove(field);
        assert_eq!(
            reason(&call.to_string()).close_code(),
            close::POLICY_VIOLATION,
            "{field} missing"
        );
    }
}

#[test]
fn bounds_ids_and_intentions() {
    for (field, value, good) in [
        ("id", "x".repeat(200), true),
        ("id", "x".repeat(201), false),
        ("id", String::new(), false),
        ("id", "a b".to_owned(), false),
        ("sessionId", "é".to_owned(), false),
        ("intention", "é".repeat(4000), true),
        ("intention", "é".repeat(4001), false),
        ("intention", String::new(), false),
    ] {
        let mut call: serde_json::Value = serde_json::from_str(CALL).expect("call");
        call[field] = value.clone().into();
        assert_eq!(
            parse_host_frame(&call.to_string()).is_ok(),
            good,
            "{field} of {} bytes",
            value.len()
        );
    }
}

#[test]
fn another_protocol_closes_1002() {
    assert_eq!(
        reason(&CALL.replace("\"protocol\":1", "\"protocol\":2")),
        FrameError::Protocol(2)
    );
    assert_eq!(
        reason(r#"{"type":"ready","protocol":2}"#).close_code(),
        close::PROTOCOL_ERROR
    );
}

#[test]
fn bottomless_nesting_is_refused() {
    let deep = format!(
        r#"{{"type":"ready","protocol":1,"x":{}{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    assert_eq!(reason(&deep).close_code(), close::POLICY_VIOLATION);
}

#[test]
fn reasons_fit_a_close_frame() {
    let long = format!(
        r#"{{"type":"call","protocol":1,"id":"{}"}}"#,
        "é".repeat(300)
    );
    assert!(reason(&long).to_string().len() <= 123);
}

#[test]
fn written_frames_are_read_back() {
    let args = RawValue::from_string(r#"{"path":"a","n":1.50}"#.to_owned()).expect("raw");
    let text = call_frame(CallParts {
        id: "c",
        workspace_id: "w",
        session_id: "s",
        intention: "quote \" and é",
        tool: "t",
        args: &args,
    })
    .expect("frame");
    let HostFrame::Call(call) = parse_host_frame(&text).expect("call") else {
        panic!("not a call")
    };
    assert_eq!(
        (call.intention.as_ref(), call.args.get()),
        ("quote \" and é", args.get())
    );

    let text = result_frame("c", "s", r#"{"content":[] }"#).expect("frame");
    let result = parse_edge_frame(&text).expect("result");
    assert_eq!(
        (
            result.id.as_ref(),
            result.session_id.as_ref(),
            result.result.get()
        ),
        ("c", "s", r#"{"content":[] }"#)
    );
    assert!(parse_edge_frame(CALL).is_err());
}

#[test]
fn arguments_that_pass_alone_pass_inside_a_frame() {
    let nested = |depth: usize| format!("{}{}", "{\"a\":".repeat(depth), "1") + &"}".repeat(depth);
    let framed = |args: &str| CALL.replace(r#"{"path":"a"}"#, args);
    let deepest = nested(MAX_DEPTH - 1);
    assert!(check_args(&deepest).is_ok() && check(&framed(&deepest)).is_ok());
    for args in [
        nested(MAX_DEPTH),
        r#"{"a":1,"\u0061":2}"#.to_owned(),
        r#"{"a":1e999}"#.to_owned(),
        r#"{"a":"\ud800"}"#.to_owned(),
    ] {
        assert!(
            check_args(&args).is_err() && check(&framed(&args)).is_err(),
            "{args}"
        );
    }
}

#[test]
fn duplicates_are_found_among_many_keys() {
    let object = |again: usize| {
        let keys: String = (0..40).map(|key| format!("\"k{key}\":{key},")).collect();
        format!(r#"{{"type":"ready","protocol":1,"x":{{{keys}"k{again}":0}}}}"#)
    };
    for again in [0, 3, 11, 12, 13, 39] {
        let reason = reason(&object(again)).to_string();
        assert!(reason.starts_with("duplicate key"), "k{again}: {reason}");
    }
    assert!(parse_host_frame(&object(40)).is_ok());
}
