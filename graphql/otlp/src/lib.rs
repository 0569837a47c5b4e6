//! Exports spans to an `OpenTelemetry` collector, by OTLP over HTTP with protobuf, if the standard
//! variables `OTEL_…` ask for it.

mod client;
mod convert;
mod settings;

use std::{sync::Arc, time::Duration};

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchSpanProcessor, SpanProcessor},
};
use shared::trace::{FinishedSpan, SpanSink, TraceId};
use tokio::runtime::Handle;

pub use self::settings::{ReadVariable, Settings};
use self::{client::RuntimeClient, convert::to_span_data};

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
const SERVICE_NAME: &str = "service.name";

/// The names of this process's machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    pub host: &'a str,
    /// The configured name of the node. Several nodes of one machine have different names.
    pub node: &'a str,
}

#[derive(Debug)]
pub struct OtlpSink {
    processor: BatchSpanProcessor,
    settings: Settings,
    scope: InstrumentationScope,
}

impl OtlpSink {
    /// Starts the export. The spans have the names of `machine`.
    ///
    /// # Errors
    ///
    /// If a variable has a value that the exporter does not understand.
    pub fn start(
        settings: Settings,
        machine: Machine<'_>,
        runtime: Handle,
    ) -> Result<Arc<Self>, String> {
        let client = RuntimeClient::new(runtime, settings.timeout)?;
        let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
        let exporter = exporter.map_err(|err| format!("cannot export spans: {err}"))?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        processor.set_resource(&describe_process(&settings, machine));
        let scope =
            InstrumentationScope::builder("faber").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Arc::new(Self { processor, settings, scope }))
    }

    /// Sends all queued spans, and ends the export. Waits at most `SHUTDOWN_TIMEOUT`.
    pub async fn shut_down(self: Arc<Self>) {
        let ending = tokio::task::spawn_blocking(move || {
            if let Err(err) = self.processor.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
                tracing::warn!(%err, "the last spans may be lost");
            }
        });
        // The task neither panics nor is aborted, so it cannot fail.
        let _ = ending.await;
    }
}

impl SpanSink for OtlpSink {
    fn is_sampled(&self, trace: TraceId, parent: Option<bool>) -> bool {
        self.settings.sampler.is_sampled(trace, parent)
    }

    fn send_span(&self, span: FinishedSpan) {
        self.processor.on_end(to_span_data(span, self.scope.clone()));
    }
}

/// Describes this process. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override the
/// defaults.
fn describe_process(settings: &Settings, machine: Machine<'_>) -> Resource {
    let builder = Resource::builder().with_attributes([
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("host.name", machine.host.to_owned()),
        KeyValue::new("faber.node", machine.node.to_owned()),
    ]);
    let builder = if settings.names_service { builder } else { builder.with_service_name("faber") };
    builder.build()
}
