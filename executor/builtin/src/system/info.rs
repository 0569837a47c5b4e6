use std::sync::Arc;

use nix::sys::statvfs::statvfs;
use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;
use sysinfo::System as Machine;

use super::{System, ToolContext, run_blocking};

pub(super) const DESCRIPTION: &str = "Get system resource usage (CPU, memory, disk).";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SystemInfo {}

pub(super) async fn describe_system(
    system: Arc<System>,
    _args: SystemInfo,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    run_blocking(move || {
        let mut lines = Vec::new();
        if let Ok(machine) = Machine::new() {
            lines.extend(describe_machine(machine));
        }
        lines.extend(describe_disk(&system));
        if lines.is_empty() {
            return Err(ToolError::failed("System info unavailable"));
        }
        Ok(lines.join("\n"))
    })
    .await
}

fn describe_machine(mut machine: Machine) -> Vec<String> {
    machine.refresh_memory();
    machine.refresh_cpu_usage();
    // Waits, because CPU usage is the difference of two measurements.
    std::thread::sleep(sysinfo::MINIMUM_CPU_UPDATE_INTERVAL);
    machine.refresh_cpu_usage();
    let cores = machine.cpus().len();
    let (used, total) = (machine.used_memory() >> 20, machine.total_memory() >> 20);
    let mut lines = vec![
        format!("CPU Cores: {cores} ({:.1}% used)", machine.global_cpu_usage()),
        format!("Memory: {used}/{total} MB ({}%)", percent_of(used, total)),
    ];
    if let Ok(load) = Machine::load_average() {
        lines.push(format!("Load: {:.2} {:.2} {:.2}", load.one, load.five, load.fifteen));
    }
    if let Ok(seconds) = Machine::uptime() {
        lines.push(format!("Uptime: {} hours", seconds / 3_600));
    }
    lines
}

fn describe_disk(system: &System) -> Option<String> {
    let disk = statvfs(system.root.root_path()).ok()?;
    #[expect(clippy::useless_conversion, reason = "the numbers are smaller on other systems")]
    let (all, free) = (u64::from(disk.blocks()), u64::from(disk.blocks_available()));
    let mega = |blocks: u64| (u128::from(blocks) * u128::from(disk.fragment_size())) >> 20;
    let used = all.saturating_sub(free);
    Some(format!("Disk: {}/{} MB used ({}%)", mega(used), mega(all), percent_of(used, all)))
}

fn percent_of(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}
