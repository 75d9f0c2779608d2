//! A trace, as Jaeger's query API tells it, as a picture: one line a span, below its parent, with a bar for its time.

use std::fmt::Write as _;

use postern_tests::text_of;
use serde_json::Value;

/// Measures in pixels.
const LINE: usize = 22;
const HEAD: usize = 44;
const NAMES: f64 = 470.0;
const BARS: f64 = 620.0;
const MARGIN: f64 = 16.0;
const INDENT: f64 = 14.0;
/// One colour a process, readable on white and for those who see red and green alike.
const COLOURS: [(&str, &str); 7] = [
    ("postern-host", "#0072b2"),
    ("postern-edge", "#d55e00"),
    ("postern-identity", "#009e73"),
    ("postern-policy", "#b8860b"),
    ("postern-ledger", "#8b3a8b"),
    ("postern-filesystem", "#4d7ea8"),
    ("postern-exec", "#555555"),
];

/// The id of a span's parent; none for a root.
pub(crate) fn parent_of(span: &Value) -> Option<String> {
    let references = span["references"].as_array()?;
    let parent = references
        .iter()
        .find(|other| other["refType"] == "CHILD_OF");
    // A link to another trace is told as a reference, too.
    parent
        .filter(|parent| parent["traceID"] == span["traceID"])
        .map(|parent| text_of(parent, "spanID"))
}

struct Line<'a> {
    span: &'a Value,
    depth: f64,
}

fn micros(span: &Value, field: &str) -> f64 {
    span[field].as_f64().unwrap_or_default()
}

/// The spans in the order of a tree: children behind their parent, the earlier first.
fn lines<'a>(spans: &'a [Value], parent: Option<&str>, depth: f64, into: &mut Vec<Line<'a>>) {
    let mut children: Vec<_> = spans
        .iter()
        .filter(|span| parent_of(span).as_deref() == parent)
        .collect();
    children.sort_by(|a, b| micros(a, "startTime").total_cmp(&micros(b, "startTime")));
    for span in children {
        into.push(Line { span, depth });
        lines(spans, Some(&text_of(span, "spanID")), depth + 1.0, into);
    }
}

/// Draws a trace.
pub(crate) fn draw(trace: &Value) -> String {
    let mut tree = Vec::new();
    let spans = trace["spans"].as_array().expect("spans");
    lines(spans, None, 0.0, &mut tree);
    let begin = tree.iter().map(|line| micros(line.span, "startTime"));
    let begin = begin.fold(f64::INFINITY, f64::min);
    let end = tree
        .iter()
        .map(|line| micros(line.span, "startTime") + micros(line.span, "duration"));
    let whole = end.fold(1.0, f64::max) - begin;
    let (width, height) = (
        NAMES + BARS + 2.0 * MARGIN + 70.0,
        HEAD + LINE * tree.len() + 12,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <title>One call of workspace_write, from the agent's request to the disk</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"14\" font-weight=\"600\" fill=\"#222222\">workspace_write: {} spans, {:.2} ms</text>\n",
        tree.len(),
        whole / 1000.0
    );
    for (index, line) in tree.iter().enumerate() {
        draw_line(&mut svg, trace, line, HEAD + LINE * index, (begin, whole));
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_line(
    svg: &mut String,
    trace: &Value,
    line: &Line<'_>,
    top: usize,
    (begin, whole): (f64, f64),
) {
    let process = &trace["processes"][text_of(line.span, "processID")];
    let service = text_of(process, "serviceName");
    let colour = COLOURS.iter().find(|(name, _)| *name == service);
    let colour = colour.map_or("#000000", |(_, colour)| colour);
    let name = text_of(line.span, "operationName");
    let name = name.strip_prefix("postern.").unwrap_or(&name);
    let service = service.strip_prefix("postern-").unwrap_or(&service);
    let duration = micros(line.span, "duration");
    let start = NAMES + MARGIN + (micros(line.span, "startTime") - begin) / whole * BARS;
    let length = (duration / whole * BARS).max(1.5);
    let left = MARGIN + line.depth * INDENT;
    let base = top + 15;
    let time_at = start + length + 5.0;
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<text x=\"{left:.1}\" y=\"{base}\"><tspan fill=\"{colour}\" font-weight=\"600\">{service}</tspan> <tspan fill=\"#222222\">{name}</tspan></text>\n\
         <rect x=\"{start:.1}\" y=\"{}\" width=\"{length:.1}\" height=\"12\" rx=\"2\" fill=\"{colour}\"/>\n\
         <text x=\"{time_at:.1}\" y=\"{base}\" font-size=\"11\" fill=\"#555555\">{:.2} ms</text>\n",
        top + 5,
        duration / 1000.0
    );
}
