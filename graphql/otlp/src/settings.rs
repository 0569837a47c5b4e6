//! The standard variables of `OpenTelemetry` that the exporter does not read itself.

use std::{fmt, time::Duration};

use opentelemetry_sdk::trace::{Sampler as RatioSampler, SamplingDecision, ShouldSample};
use shared::trace::TraceId;

use super::SERVICE_NAME;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const PROTOCOL: &str = "http/protobuf";

/// Reads a variable of the environment. An empty variable counts as missing.
pub type ReadVariable = fn(&str) -> Option<String>;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub(super) sampler: Sampler,
    pub(super) timeout: Duration,
    /// `true` if a variable names the service. Otherwise the service is `faber`.
    pub(super) names_service: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// `true` if Faber exports a trace that a caller started only if the caller exports it.
    is_parent_based: bool,
    /// The share of the traces to export, from 0 to 1.
    ratio: f64,
}

impl Settings {
    /// Reads the variables. Returns `None` if spans are not exported.
    ///
    /// # Errors
    ///
    /// Names the variable that has a wrong value.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let is_disabled = variable("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
        let has_endpoint = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
            .iter()
            .any(|name| variable(name).is_some());
        let is_wanted = match variable("OTEL_TRACES_EXPORTER").as_deref().map(str::trim) {
            None => has_endpoint,
            Some("otlp") => true,
            Some("none") => false,
            Some(other) => {
                return Err(format!(
                    "`OTEL_TRACES_EXPORTER` is `{other}`; Faber exports with `otlp` or `none`"
                ));
            }
        };
        if is_disabled || !is_wanted {
            return Ok(None);
        }
        let specific = |general: &str, own: &str| variable(own).or_else(|| variable(general));
        let protocol =
            specific("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL");
        if let Some(protocol) = protocol.filter(|protocol| protocol.trim() != PROTOCOL) {
            return Err(format!(
                "`OTEL_EXPORTER_OTLP_PROTOCOL` is `{protocol}`; Faber speaks `{PROTOCOL}`, which \
                 collectors receive on port 4318"
            ));
        }
        let timeout = specific("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT");
        let timeout = timeout.and_then(|text| text.trim().parse().ok());
        let names_service = variable("OTEL_SERVICE_NAME").is_some()
            || variable("OTEL_RESOURCE_ATTRIBUTES")
                .is_some_and(|attributes| attributes.contains(SERVICE_NAME));
        Ok(Some(Self {
            sampler: Sampler::read(variable)?,
            timeout: timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis),
            names_service,
        }))
    }
}

impl Sampler {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let name = variable("OTEL_TRACES_SAMPLER");
        let name = name.as_deref().map_or("parentbased_always_on", str::trim);
        let (is_parent_based, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let ratio = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => read_ratio(variable("OTEL_TRACES_SAMPLER_ARG"))?,
            _ => {
                return Err(format!(
                    "`OTEL_TRACES_SAMPLER` is `{name}`; write `always_on`, `always_off` or \
                     `traceidratio`, with or without `parentbased_` before it"
                ));
            }
        };
        Ok(Self { is_parent_based, ratio })
    }

    pub(super) fn is_sampled(self, trace: TraceId, parent: Option<bool>) -> bool {
        if let Some(parent) = parent.filter(|_| self.is_parent_based) {
            return parent;
        }
        let trace = opentelemetry::TraceId::from_bytes(trace.to_bytes());
        let kind = opentelemetry::trace::SpanKind::Internal;
        // The SDK decides by the id of the trace, so that all programs of a trace decide alike.
        let sampler = RatioSampler::TraceIdRatioBased(self.ratio);
        let result = sampler.should_sample(None, trace, "", &kind, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }
}

fn read_ratio(argument: Option<String>) -> Result<f64, String> {
    let Some(text) = argument else { return Ok(1.0) };
    let ratio = text.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio
        .ok_or_else(|| format!("`OTEL_TRACES_SAMPLER_ARG` is `{text}`; write a number from 0 to 1"))
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = if self.is_parent_based { "parentbased_" } else { "" };
        write!(f, "{parent}{}", self.ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn spans_are_exported_only_if_a_variable_asks_for_it() {
        for (variables, is_on) in [
            (&[][..], false),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318")], true),
            (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a:4318/v1/traces")], true),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], true),
            (
                &[("OTEL_TRACES_EXPORTER", "none"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a")],
                false,
            ),
            (&[("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "otlp")], false),
            (&[("OTEL_TRACES_SAMPLER", "nonsense")], false),
        ] {
            assert_eq!(
                read(variables).map(|settings| settings.is_some()),
                Ok(is_on),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn a_wrong_value_is_refused() {
        let on = ("OTEL_TRACES_EXPORTER", "otlp");
        for (variable, value) in [
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
        ] {
            let why = read(&[(variable, value), on]).unwrap_err();
            assert!(why.starts_with(&format!("`{variable}` is `{value}`")), "{why}");
        }
        let ratio = ("OTEL_TRACES_SAMPLER", "traceidratio");
        let why = read(&[on, ratio, ("OTEL_TRACES_SAMPLER_ARG", "2")]).unwrap_err();
        assert!(why.contains("a number from 0 to 1"), "{why}");
    }

    #[test]
    fn a_sampler_obeys_the_caller_only_if_it_is_parent_based() {
        let trace = TraceId::from_hex("4bf92f3577b34da6a3ce929d0e0e4736").unwrap();
        let sampled = |name, parent| {
            let on = ("OTEL_TRACES_EXPORTER", "otlp");
            let settings = read(&[on, ("OTEL_TRACES_SAMPLER", name)]).unwrap().unwrap();
            settings.sampler.is_sampled(trace, parent)
        };
        for (name, parent, expected) in [
            ("parentbased_always_on", None, true),
            ("parentbased_always_on", Some(false), false),
            ("parentbased_always_off", Some(true), true),
            ("parentbased_always_off", None, false),
            ("always_on", Some(false), true),
            ("always_off", Some(true), false),
            ("traceidratio", None, true),
        ] {
            assert_eq!(sampled(name, parent), expected, "{name} {parent:?}");
        }
    }
}
