//! A layer of the log's subscriber that collects finished spans.
//!
//! A span belongs to its parent's trace. One without a parent starts a trace, or goes on with the caller's if
//! it has a field `traceparent` (W3C Trace Context).

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use alloy::primitives::{FixedBytes, hex::FromHex as _};
use tokio::sync::mpsc;
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

pub(super) type TraceId = FixedBytes<16>;
pub(super) type SpanId = FixedBytes<8>;

/// The field with the caller's trace.
const TRACEPARENT: &str = "traceparent";
/// The field with the span's kind: `server`, `client`, or internal without it.
pub(super) const KIND: &str = "otel.kind";
/// The field that marks a span as failed.
pub(super) const ERROR: &str = "error";

#[derive(Debug, Clone)]
pub(super) struct FinishedSpan {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) name: &'static str,
    pub(super) started_ns: u128,
    pub(super) ended_ns: u128,
    pub(super) fields: Vec<(&'static str, String)>,
}

/// Layer that collects finished spans.
#[derive(Debug)]
pub(super) struct SpanLayer(pub(super) mpsc::Sender<FinishedSpan>);

pub(super) fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// Visitor that reads fields as text.
struct FieldVisitor<'a>(&'a mut Vec<(&'static str, String)>);

impl Visit for FieldVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Vec::new();
        attributes.record(&mut FieldVisitor(&mut fields));
        let parent = span.parent().and_then(|parent| {
            parent.extensions().get::<FinishedSpan>().map(|parent| (parent.trace_id, parent.span_id))
        });
        let named = fields.iter().position(|(name, _)| *name == TRACEPARENT);
        let caller = named.map(|index| fields.swap_remove(index)).and_then(|(_, text)| trace_parent(&text));
        let parent = parent.or(caller);
        let started_ns = now_ns();
        span.extensions_mut().insert(FinishedSpan {
            trace_id: parent.map_or_else(TraceId::random, |(trace_id, _)| trace_id),
            span_id: SpanId::random(),
            parent: parent.map(|(_, span_id)| span_id),
            name: span.name(),
            started_ns,
            ended_ns: started_ns,
            fields,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<FinishedSpan>() {
            values.record(&mut FieldVisitor(&mut open.fields));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let finished = context.span(&id).and_then(|span| span.extensions_mut().remove::<FinishedSpan>());
        if let Some(mut finished) = finished {
            finished.ended_ns = now_ns();
            // A full queue drops it: no relay waits for a collector.
            let _ = self.0.try_send(finished);
        }
    }
}

/// Parses the trace and the span in a `traceparent` header.
fn trace_parent(text: &str) -> Option<(TraceId, SpanId)> {
    let mut parts = text.split('-');
    let (_version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    (!trace.is_zero() && !span.is_zero()).then_some((trace, span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[test]
    fn spans_of_a_caller_are_one_trace_unless_its_traceparent_is_bad_and_a_full_queue_drops_them() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let (trace, span) = trace_parent(good).unwrap();
        assert_eq!(format!("{trace:x} {span:x}"), "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331");
        let zero = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        for bad in ["", "00-zz-b7ad6b7169203331-01", "00-0af7", zero] {
            assert_eq!(trace_parent(bad), None, "{bad}");
        }

        let (sender, mut spans) = mpsc::channel(2);
        let subscriber = tracing_subscriber::registry().with(SpanLayer(sender));
        tracing::subscriber::with_default(subscriber, || {
            let outer = tracing::info_span!("outer", traceparent = good, status = tracing::field::Empty);
            outer.in_scope(|| tracing::info_span!("inner", count = 3).in_scope(|| {}));
            outer.record("status", 200);
            drop(outer);
            drop(tracing::info_span!("dropped"));
        });
        let (inner, outer) = (spans.try_recv().unwrap(), spans.try_recv().unwrap());
        assert!(spans.try_recv().is_err());
        assert_eq!((inner.name, outer.name), ("inner", "outer"));
        assert_eq!((inner.trace_id, inner.parent), (outer.trace_id, Some(outer.span_id)));
        assert_eq!(format!("{:x}", outer.trace_id), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(inner.fields, [("count", "3".to_owned())]);
        assert_eq!(outer.fields, [("status", "200".to_owned())]);
        assert!(outer.ended_ns >= outer.started_ns);
    }
}
