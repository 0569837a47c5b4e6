//! Metrics of the operating system about this process. They have the names that Prometheus uses for
//! all programs.

use std::{fmt, fs};

use nix::sys::resource::{Resource, getrlimit};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge, info::Info},
};

use super::build::{build_labels, process_build};

/// Reads `/proc` each time Prometheus reads the metrics. Leaves out metrics that cannot be read.
#[derive(Debug)]
pub(super) struct ProcessCollector;

/// The unit of times in `/proc/self/stat`. Linux promises this value to programs on x86-64.
const TICKS_PER_SECOND: u64 = 100;

/// Times of `/proc/self/stat`, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProcessTimes {
    cpu: f64,
    started_after_boot: f64,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let build = Info::new(build_labels(process_build()));
        let of_build = encoder.encode_descriptor(
            "faber_build",
            "The version of Faber, and the commit if the build knew it",
            None,
            build.metric_type(),
        )?;
        build.encode(of_build)?;
        encode_times(&mut encoder)?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (name, help, key, unit) in [
            ("process_resident_memory_bytes", "Resident memory", "VmRSS:", 1_024),
            ("process_virtual_memory_bytes", "Virtual memory", "VmSize:", 1_024),
            ("process_threads", "Threads", "Threads:", 1),
        ] {
            if let Some(value) = parse_status(&status, key) {
                encode_gauge(&mut encoder, name, help, to_f64(value * unit))?;
            }
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // Does not count the descriptor with which the folder is read.
            let open = entries.count().saturating_sub(1);
            encode_gauge(
                &mut encoder,
                "process_open_fds",
                "Open file descriptors",
                to_f64(open as u64),
            )?;
        }
        if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            encode_gauge(
                &mut encoder,
                "process_max_fds",
                "Limit of open file descriptors",
                to_f64(soft),
            )?;
        }
        Ok(())
    }
}

fn encode_times(encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some(times) = parse_times(&text) else { return Ok(()) };
    let (cpu, help) = (ConstCounter::new(times.cpu), "CPU time of this process");
    let of_cpu = encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?;
    cpu.encode(of_cpu)?;
    if let Some(boot) = read_boot_time() {
        let started_at = boot + times.started_after_boot;
        let help = "Start of this process as Unix time";
        encode_gauge(encoder, "process_start_time_seconds", help, started_at)?;
    }
    Ok(())
}

fn encode_gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(value);
    let own = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    gauge.encode(own)
}

/// Parses `/proc/self/stat`. Its second field is the name of the program, which may contain spaces.
fn parse_times(text: &str) -> Option<ProcessTimes> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The manual of `/proc/self/stat` counts fields from one, and the first two fields are before
    // the bracket.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let to_seconds = |ticks: u64| to_f64(ticks) / to_f64(TICKS_PER_SECOND);
    Some(ProcessTimes {
        cpu: to_seconds(field(14)? + field(15)?),
        started_after_boot: to_seconds(field(22)?),
    })
}

/// Returns the number after `key` in `/proc/self/status`.
fn parse_status(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.split_whitespace().next()?.parse().ok()
}

fn read_boot_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows only such numbers")]
fn to_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_contain_brackets_and_spaces() {
        let text = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 12 18 3000 8192 2 x";
        let expected = ProcessTimes { cpu: 2.0, started_after_boot: 30.0 };
        assert_eq!(parse_times(text), Some(expected));
        assert_eq!(parse_times("42 (a) S 1"), None);
    }

    #[test]
    fn a_figure_of_the_status_is_found_by_its_name() {
        let text = "Name:\tfaber\nVmSize:\t  2048 kB\nThreads:\t12\n";
        assert_eq!(parse_status(text, "VmSize:"), Some(2_048));
        assert_eq!(parse_status(text, "Threads:"), Some(12));
        assert_eq!(parse_status(text, "VmRSS:"), None);
    }
}
