//! Log lines that tell in which trace they were written.

use std::fmt::Result;

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{self, DefaultFields, Writer},
    },
    registry::LookupSpan,
};

use crate::trace;

/// For people: the ids stand behind the other fields.
#[derive(Debug, Default)]
pub(super) struct Text(DefaultFields);

impl<'writer> FormatFields<'writer> for Text {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> Result {
        self.0.format_fields(writer.by_ref(), fields)?;
        match trace::log_ids() {
            Some((trace, span)) => write!(writer, " trace_id={trace} span_id={span}"),
            None => Ok(()),
        }
    }
}

/// One JSON object a line: `trace_id` and `span_id` are its last members.
#[derive(Debug)]
pub(super) struct Json(pub(super) format::Format<format::Json>);

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> Result {
        let Some((trace, span)) = trace::log_ids() else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        match line.trim_end().strip_suffix('}') {
            Some(open) => {
                writeln!(
                    writer,
                    "{open},\"trace_id\":\"{trace}\",\"span_id\":\"{span}\"}}"
                )
            }
            None => writer.write_str(&line),
        }
    }
}
