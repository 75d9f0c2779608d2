use std::time::Duration;

use pretty_assertions::assert_eq;

use super::{settings::Settings, *};

/// Settings by these variables.
fn settings(variables: &[(&str, &str)]) -> Option<Settings> {
    let read = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::read(read)
}

#[test]
fn nothing_is_exported_without_an_endpoint() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
    for off in [
        &[][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
        &[("OTEL_SERVICE_NAME", "x")],
        &[endpoint, ("OTEL_SDK_DISABLED", "true")],
        &[endpoint, ("OTEL_TRACES_EXPORTER", "none")],
    ] {
        assert_eq!(settings(off), None, "{off:?}");
    }
    let standard = settings(&[endpoint]).expect("on");
    assert!(!standard.is_named);
    assert_eq!(standard.queue, 16 * 1024);
    assert_eq!(standard.endpoint, "http://127.0.0.1:4317");
    let told = settings(&[
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=b,service.name=x"),
    ]);
    let told = told.expect("on");
    assert_eq!(
        (told.queue, told.batch, told.delay, told.is_named),
        (10, 1, Duration::from_millis(20), true)
    );
}

#[test]
fn a_library_that_warns_with_what_agents_say_is_quiet() {
    for (filter, directives) in [
        (None, "rmcp=error,warn"),
        (Some("info"), "rmcp=error,info"),
        (Some("info,rmcp=debug"), "rmcp=debug,info"),
        (Some("off"), "off"),
        (Some("=="), "rmcp=error,warn"),
    ] {
        assert_eq!(filter_of(filter).to_string(), directives, "{filter:?}");
    }
}
